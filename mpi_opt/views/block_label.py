"""The block of an attempt as a label."""

from __future__ import annotations

from mpi_opt.study.reading import EXTERNAL_BLOCK


def block_label(block: int) -> int | str:
    """The number of a block; ``external`` for attempts that a workload system runs."""
    return "external" if block == EXTERNAL_BLOCK else block
