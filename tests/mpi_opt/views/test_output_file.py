from __future__ import annotations

from pathlib import Path

import pytest

from mpi_learn.settings.paths import file_name
from mpi_opt.errors import ConfigurationError
from mpi_opt.views.output_file import written_aside


def test_a_file_that_cannot_be_finished_leaves_the_earlier_one_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("earlier")
    with pytest.raises(OSError, match="disk full"), written_aside(path) as aside:
        aside.write_text("half")
        raise OSError("disk full")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text() == "earlier"


def test_file_that_cannot_be_created_is_an_error_of_the_user() -> None:
    with pytest.raises(ConfigurationError, match="cannot be written"), written_aside(Path("/proc/report.html")):
        pass


def test_a_finished_file_replaces_the_earlier_one(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("earlier")
    with written_aside(path) as aside:
        aside.write_text("new")
        assert path.read_text() == "earlier"
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text() == "new"


def test_the_longest_name_leaves_room_for_the_name_of_the_unfinished_file(tmp_path: Path) -> None:
    path = tmp_path / f"{file_name('lr.0.001-' * 99)}.html"
    with written_aside(path) as aside:
        aside.write_text("new")
    assert path.read_text() == "new"
