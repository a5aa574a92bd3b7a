from __future__ import annotations

from pathlib import Path

import pytest

from mpi_learn.settings.paths import file_name, replacing, temporary_files


@pytest.mark.parametrize(
    ("study", "name"), [("jets µ, 2", "jets µ, 2"), ("../a/b", "__a_b"), ("..", "_"), ("a\0b", "a_b")]
)
def test_files_of_a_study_stay_in_the_current_folder(study: str, name: str) -> None:
    assert file_name(study) == name


def test_long_names_are_shortened_and_stay_different() -> None:
    """A name may have 255 characters, a file name at most 255 bytes."""
    names = [file_name("ü" * 250 + end) for end in "ab"]
    assert len({*names}) == 2
    assert all(len(name.encode()) <= 230 for name in names)
    assert all(name.startswith("ü" * 90) for name in names)


def test_writers_of_one_file_do_not_write_to_the_same_temporary_one(tmp_path: Path) -> None:
    """On two hosts, or in two containers, they may have the same process number."""
    path = tmp_path / "checkpoint.npz"
    with replacing(path) as one, replacing(path) as other:
        one.write_text("one")
        other.write_text("other")
        assert {*temporary_files(path)} == {one, other}
    assert (path.read_text(), [*tmp_path.iterdir()]) == ("one", [path])
