from __future__ import annotations

import pytest

from mpi_learn.settings.paths import file_name


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
