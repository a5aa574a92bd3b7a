from __future__ import annotations

from itertools import pairwise

import pytest

from mpi_opt.core.thinning import thinned


@pytest.mark.parametrize(("n", "most"), [(5, 10), (10, 10), (11, 10), (1000, 10), (1003, 300), (7, 3), (3, 2)])
def test_a_thinned_list_has_the_best_and_others_spread_over_the_rest(n: int, most: int) -> None:
    chosen = list(thinned(range(n), most))
    assert len(chosen) == min(n, most)
    assert chosen[: most // 2] == list(range(min(n, most // 2)))
    gaps = {later - earlier for earlier, later in pairwise(chosen[most // 2 :])}
    assert not gaps or max(gaps) - min(gaps) <= 1
    if len(chosen) > most // 2:  # beyond the best: as far as the end of the list
        assert n - chosen[-1] <= max(gaps, default=n) + 1
