"""One float an epoch for every metric."""

from __future__ import annotations

import math


class History:
    """What ``result.history`` shows: metric name -> one float an epoch, NaN where it was not measured."""

    def __init__(self, epochs: dict[str, list[float]] | None = None) -> None:
        self.columns = epochs or {}

    def __len__(self) -> int:
        return max(map(len, self.columns.values()), default=0)

    def append(self, metrics: dict[str, float]) -> None:
        """Adds an epoch."""
        n = len(self)
        for name in metrics:
            self.columns.setdefault(name, [math.nan] * n)
        for name, column in self.columns.items():
            column.append(metrics.get(name, math.nan))
