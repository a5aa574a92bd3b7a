"""The notes about lost ranks that a search prints at its start."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import yaml

from mpi_learn.mpi.library import MPI
from mpi_learn.mpi.messaging import unreliable_version
from mpi_opt.coordinator.run_coordinator import UNPROTECTED, UNRELIABLE, _announce
from mpi_opt.messages import links
from mpi_opt.study.progress import Progress
from mpi_opt.study.study import Study
from tests.in_process import in_process
from tests.mpi_opt.fakes import ScriptedLink
from tests.world import in_world


class Notes(Progress):
    def __init__(self):
        self.texts = []

    def note(self, text):
        self.texts.append(text)


@pytest.mark.parametrize(
    ("library", "version"),
    [
        ("Open MPI v5.0.10, package: Open MPI conda Distribution, ident: 5.0.10, repo rev: v5.0.10", "5.0.10"),
        ("Open MPI v5.0.11, package: Open MPI runner Distribution, ident: 5.0.11", ""),
        ("Open MPI v5.1.0a1, package: Open MPI", ""),
        ("MPICH Version:      4.2.1", ""),
        ("", ""),
    ],
)
def test_open_mpi_before_5_0_11_is_too_old_to_survive_losses(library, version):
    assert unreliable_version(library) == version


def test_link_over_mpi_reports_the_version_of_its_library(monkeypatch):
    link = links.MPICoordinatorLink(MPI.COMM_SELF)
    monkeypatch.setattr(links, "MPI", SimpleNamespace(Get_library_version=lambda: "Open MPI v5.0.9, package: x"))
    assert link.unreliable_version == "5.0.9"


@pytest.mark.parametrize(
    ("is_protected", "version", "expected"),
    [
        (True, "", []),
        (True, "5.0.8", [f"{UNRELIABLE}; this one is 5.0.8"]),
        (False, "5.0.8", [UNPROTECTED]),
    ],
)
def test_search_says_at_its_start_what_the_loss_of_a_rank_does(is_protected, version, expected, monkeypatch):
    monkeypatch.setattr(ScriptedLink, "is_protected", is_protected)
    monkeypatch.setattr(ScriptedLink, "unreliable_version", version)
    notes = Notes()
    _announce(notes, ScriptedLink(run=None), None)
    assert notes.texts == expected


@pytest.mark.mpi
def test_search_of_a_finished_study_has_no_notes_and_records_nothing(tmp_path):
    (tmp_path / "o.py").write_text("def f(trial):\n    return 1.0\n")
    space = {"x": {"type": "integer", "low": 0, "high": 1}}
    content = {"study": "s", "store": "sqlite:///s.db", "objective": "o.py:f", "space": space, "folds": 1}
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(content | {"search": {"strategy": "random", "trials": 3}}))
    assert in_process("search", "s.yaml", cwd=tmp_path).returncode == 0
    events = Study.open(f"{tmp_path}/s.db", "s").events()
    done = in_world(3, "-m", "mpi_opt", "search", "s.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    first, second, *_ = done.stdout.splitlines()
    assert first == "study s in sqlite:///s.db is finished: 3 trials, none run"
    assert second.startswith("done: 3/3 trials, best 1 (trial 0)"), done.stdout
    assert Study.open(f"{tmp_path}/s.db", "s").events() == events
