"""Which rank does what in a search. Plain integers, no MPI.

Rank 0 coordinates; ranks 1 … N-1 are cut into blocks of neighbours. What does not divide is spread: no rank idles and
nothing is refused. A block with at least as many ranks as there are folds is cut again, into one group of neighbours a
fold; a smaller one takes the folds in turn, all its ranks together.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cache

from mpi_opt.errors import ConfigurationError

TRIALS_PER_BLOCK = 10
"""``blocks.size: auto`` leaves every block about this many trials one after the other, so that a strategy can learn."""


@dataclass(frozen=True)
class Layout:
    """Who does what among `n_ranks` ranks.

    Args:
        n_ranks: The size of the world.
        block_size: Wished ranks a block; blocks get one more or, with too few ranks for one block, fewer.
        folds: K of the K-fold cross-validation.
        spares: Ranks, the last ones, that wait to take the place of lost ones.
    """

    n_ranks: int
    block_size: int
    folds: int = 1
    spares: int = 0

    def __post_init__(self) -> None:
        for name in ("n_ranks", "block_size", "folds"):
            if getattr(self, name) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.spares and self.n_ranks - 1 - self.spares < 1:
            raise ConfigurationError(
                f"{self.spares} spare ranks of {self.n_ranks} leave none to train",
                where="blocks.spares",
                cure="start more ranks, or fewer spares",
            )

    @classmethod
    def of(cls, n_ranks: int, block_size: int | str, folds: int, trials: int, spares: int = 0) -> Layout:
        """The layout for a configuration's ``blocks.size``, which may be ``"auto"``."""
        n_training = max(1, n_ranks - 1 - spares)
        if block_size == "auto":
            n_blocks = max(1, trials // TRIALS_PER_BLOCK)
            block_size = min(n_training, max(folds, math.ceil(n_training / n_blocks)))
        return cls(n_ranks, int(block_size), folds, 0 if n_ranks == 1 else spares)

    @property
    def is_serial(self) -> bool:
        """One process does everything."""
        return self.n_ranks == 1

    @property
    def blocks(self) -> list[range]:
        """The world ranks of each block; of the only process when it is alone."""
        if self.is_serial:
            return [range(1)]
        n_training = self.n_ranks - 1 - self.spares
        parts = spread(n_training, max(1, n_training // self.block_size))
        return [range(part.start + 1, part.stop + 1) for part in parts]

    @property
    def spare_ranks(self) -> range:
        """The world ranks that wait to take the place of lost ones."""
        return range(self.n_ranks - self.spares, self.n_ranks)


@cache
def fold_groups(n_ranks: int, folds: int) -> list[range]:
    """The ranks of a block of `n_ranks` that train together: one group a fold, or everybody for every fold in turn."""
    return spread(n_ranks, folds) if n_ranks >= folds else [range(n_ranks)]


def folds_of_group(group: int, n_groups: int, folds: int) -> range:
    """The folds that a group trains, one after the other."""
    return range(group, group + 1) if n_groups == folds else range(folds)


def spread(n: int, parts: int) -> list[range]:
    """0 … n-1 cut into `parts` runs whose lengths differ by one at most, the longer ones first."""
    short, longer = divmod(n, parts)
    ends = [short * i + min(i, longer) for i in range(parts + 1)]
    return [range(a, b) for a, b in itertools.pairwise(ends)]
