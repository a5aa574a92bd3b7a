from __future__ import annotations

from itertools import pairwise

import pytest

from mpi_opt.core.thinning import thinned


@pytest.mark.parametrize(("n", "most"), [(5, 10), (10, 10), (11, 10), (1000, 10), (1003, 300), (7, 3), (3, 2)])
def test_half_of_a_thinned_list_are_its_best_and_the_others_are_evenly_spread(n: int, most: int) -> None:
    chosen = list(thinned(range(n), most))
    assert len(chosen) == min(n, most)
    assert chosen[: most // 2] == list(range(min(n, most // 2)))
    gaps = {later - earlier for earlier, later in pairwise(chosen[most // 2 :])}
    assert not gaps or max(gaps) - min(gaps) <= 1
