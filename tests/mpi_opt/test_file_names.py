from __future__ import annotations

import pytest

from mpi_learn.settings.paths import file_name


@pytest.mark.parametrize(
    ("study", "name"), [("jets µ, 2", "jets µ, 2"), ("../a/b", "__a_b"), ("..", "_"), ("a\0b", "a_b")]
)
def test_files_of_a_study_stay_in_the_current_folder(study: str, name: str) -> None:
    assert file_name(study) == name
