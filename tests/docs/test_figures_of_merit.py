"""The numbers of the page on figures of merit, recomputed from the ATLAS events, and general properties."""

from __future__ import annotations

import re
import runpy
from types import SimpleNamespace

import numpy as np
import pytest

from mpi_learn.settings.user_code import load_function
from tests.docs.pages import DOCS, write_files
from tests.shared_data import ATLAS, needs_shared


@pytest.fixture
def folder(tmp_path, monkeypatch):
    write_files(tmp_path, "figure-of-merit.md")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _merit(folder, name):
    return load_function(f"merit.py:{name}", folder)


class FirstColumn:
    """A model whose score is the first feature."""

    def predict(self, x, verbose=0):
        return x[:, :1]


def test_efficiency_is_the_share_of_signal_beyond_the_background_that_is_rejected(folder):
    score = np.concatenate([np.arange(100.0), np.arange(50.0, 150.0)])
    is_signal = np.arange(200) >= 100
    # 90 of 100 background events lie below 90, and 60 of 100 signal events above
    assert _merit(folder, "efficiency")(score, is_signal, 0.9) == pytest.approx(0.6, abs=0.011)


def test_significance_without_separation_is_that_of_no_cut(folder):
    rng = np.random.default_rng(1)
    n = 20_000
    is_signal, score = rng.random(n) < 0.5, np.zeros(n)
    s, b = 692.0, 411_010.0
    no_cut = np.sqrt(2 * ((s + b) * np.log1p(s / b) - s))
    found = _merit(folder, "significance")(score, is_signal, np.ones(n), fewest=np.sum(~is_signal))
    assert found == pytest.approx(no_cut, rel=1e-6)


def test_functions_take_a_result(folder):
    rng = np.random.default_rng(2)
    y = (rng.random(1000) < 0.5).astype("float32")
    x = (rng.normal(size=(1000, 2)) + 4 * y[:, None]).astype("float32")
    result = SimpleNamespace(model=FirstColumn(), validation=(x, y))
    assert _merit(folder, "signal_efficiency")(result) > 0.9
    both = _merit(folder, "labels_and_weights")(y, np.ones_like(y))
    assert both.shape == (1000, 2)
    result = SimpleNamespace(model=FirstColumn(), validation=(x, both))
    assert _merit(folder, "median_significance")(result) > 3


@needs_shared
def test_numbers_of_the_page_are_those_of_the_events(folder):
    import h5py

    (folder / "atlas-higgs-challenge-2014-v2.csv.gz").symlink_to(ATLAS)
    runpy.run_path("prepare_atlas.py")
    with h5py.File("atlas.h5") as file:
        columns = list(file["X"].attrs["columns"])
        score = -file["X"][:, columns.index("DER_mass_transverse_met_lep")]
        is_signal, weight = file["y"][:] == 1, file["weight"][:]
    assert len(score) == 9998
    efficiency, significance = _merit(folder, "efficiency"), _merit(folder, "significance")
    everything = np.full(len(score), 0.0)
    fewest = int(np.sum(~is_signal))
    found = [
        efficiency(score, is_signal, 0.9),
        efficiency(score, is_signal, 0.99),
        significance(score, is_signal, weight),
        significance(everything, is_signal, weight, fewest=fewest),
    ]
    page = (DOCS / "figure-of-merit.md").read_text().split("## Numbers to check against")[1]
    shown = [float(number) for number in re.findall(r"\| ([\d.]+) \|$", page, re.MULTILINE)]
    assert shown == pytest.approx(found, abs=0.006)
    assert shown[:2] == pytest.approx(found[:2], abs=0.0006)


def test_events_are_not_named_by_a_path_of_ours():
    for page in DOCS.glob("*.md"):
        assert "shared/data" not in page.read_text()
