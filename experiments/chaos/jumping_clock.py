"""A strategy whose process, rank 0, has a clock that jumps: by the seconds in the file ``clock``, if there is one."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from mpi_opt.strategies.designs.random_search import RandomSearch

REREAD_S = 0.2
_real, _read_at_s, _offset_s = time.time, 0.0, 0.0


def _jumping() -> float:
    """`time.time` with the offset in the file. Clocks in C, such as `datetime.now`, do not jump."""
    global _read_at_s, _offset_s
    if time.monotonic() - _read_at_s > REREAD_S:
        _read_at_s, _offset_s = time.monotonic(), 0.0
        with suppress(OSError, ValueError):
            _offset_s = float(Path("clock").read_text())
    return _real() + _offset_s


class JumpingClock(RandomSearch):
    """Random search."""


time.time = _jumping
