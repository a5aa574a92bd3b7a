"""Curves without a value in some epochs, as with ``validation: {every: 2}``, in figures, reports and texts."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

from mpi_opt.core.search_space.space import Real, Space
from mpi_opt.store import Store
from mpi_opt.study.study import Study
from mpi_opt.views.page.report import report
from mpi_opt.views.text import tables
from tests.mpi_opt.outcomes import a_fold, an_end, an_outcome
from tests.mpi_opt.store.made_up import start
from tests.optional_packages import needs

VALIDATED_AT = 1  # of every two epochs


def study_of(path: Path, n_epochs: int) -> Study:
    """A study of one trial that is validated in every second epoch; the last value is 1 / n_epochs."""
    values = [1 / (epoch + 1) if epoch % 2 == VALIDATED_AT or n_epochs == 1 else math.nan for epoch in range(n_epochs)]
    with Store.open(str(path)) as store:
        study = store.create_study("a", strategy="random", seed=1, configuration={}, space=Space({"x": Real(0, 1)}))
        store.start(study.id, [start(0)])
        fold = a_fold(0, values[-1], 1.0, {"val_loss": values})
        store.finish(study.id, [an_end(an_outcome(0, "complete", values[-1], None, 1.0, [fold]), 1, 0)])
        return Study.read(store, "a")


@pytest.mark.parametrize("n_epochs", [10, 120, 300])
def test_curve_of_a_report_has_values_in_as_many_epochs_as_it_shows(tmp_path: Path, n_epochs: int) -> None:
    page = report(study_of(tmp_path / "a.db", n_epochs))
    data = json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.S)[1])
    curve = data["curves"]["val_loss"]
    known = [value for value in curve["lines"][0]["values"] if value is not None]
    assert len(known) == (5 if n_epochs == 10 else 60)
    assert known[-1] == pytest.approx(1 / n_epochs)


@needs("matplotlib")
@pytest.mark.parametrize("n_epochs", [1, 10])
def test_curve_of_a_figure_connects_the_known_values(tmp_path: Path, n_epochs: int) -> None:
    from mpi_opt.views.figures import plots

    axes = plots.curves(study_of(tmp_path / "a.db", n_epochs)).axes[0]
    (line,) = axes.lines
    assert list(line.get_xdata()) == ([0] if n_epochs == 1 else [1, 3, 5, 7, 9])
    assert (line.get_marker() == ".") is (n_epochs == 1)


def test_text_of_a_curve_has_known_values_only(tmp_path: Path) -> None:
    text = tables.curves_table(study_of(tmp_path / "a.db", 64).curves())
    assert "nan" not in text
    _, row = text.splitlines()
    assert re.split(r" {2,}", row.strip())[-4:] == ["0.5", "0.015625", "0.015625", "0.5"]
