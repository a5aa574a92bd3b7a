"""Names that a message suggests in place of a misspelt one."""

from __future__ import annotations

import pytest

from mpi_learn.settings.suggestions import nearest_file


@pytest.mark.parametrize(
    ("name", "found"),
    [("digit.yaml", "digits.yaml"), ("digits.yml", "digits.yaml"), ("nothere.yaml", None), ("x.yaml", None)],
)
def test_a_file_is_suggested_if_its_name_without_the_suffix_is_similar(tmp_path, name, found):
    for other in ("digits.yaml", "training.yaml", "jets.yaml", "digit.txt"):
        (tmp_path / other).write_text("")
    assert nearest_file(tmp_path / name, "*.y*ml") == found
