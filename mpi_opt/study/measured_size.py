"""The measured size of the blocks of a study (``blocks.size: measured``), which is recorded as an event."""

from __future__ import annotations

import re

from mpi_opt.core.counted import counted
from mpi_opt.store import Store

SIZE_MEASURED = "size_measured"
"""Event: the size of the blocks that was measured, for how many ranks, and why it is the best."""


def size_text(size: int, n_ranks: int, why: str) -> str:
    """The event as text; `recorded_size` reads it."""
    return f"{counted(size, 'rank')} per block, on {counted(n_ranks, 'rank')}: {why}"


def recorded_size(store: Store, study_id: int, n_ranks: int, *, on_any_ranks: bool) -> tuple[int, str] | None:
    """The latest measured size of a study, with its event; None if there is none.

    Args:
        n_ranks: All ranks of the search.
        on_any_ranks: Whether a size that was measured on another number of ranks is also used.
    """
    for event in reversed(store.events(study_id)):
        found = re.match(r"(\d+) ranks? per block, on (\d+) ranks?: ", event.detail)
        if event.kind == SIZE_MEASURED and found and (on_any_ranks or int(found[2]) == n_ranks):
            return int(found[1]), event.detail
    return None
