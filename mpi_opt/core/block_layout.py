"""The roles of the ranks in a search, as plain integers without MPI.

Rank 0 is the coordinator. Ranks 1 … N-1 are divided into blocks of consecutive ranks. Block sizes differ by at most
one, so that no rank is idle for any N. A block with at least as many ranks as folds is divided into one group of
consecutive ranks per fold. A smaller block runs the folds one after the other on all of its ranks.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cache

from mpi_opt.core.counted import counted
from mpi_opt.errors import ConfigurationError

TRIALS_PER_BLOCK = 10
"""``blocks.size: auto`` gives each block about this many consecutive trials, so that the strategy can learn."""

MEASURED = "measured"
"""The ``blocks.size`` of a search that measures which size is the best."""


@dataclass(frozen=True)
class BlockLayout:
    """The roles of `n_ranks` ranks.

    Args:
        n_ranks: Size of the world communicator.
        block_size: Requested number of ranks per block. Blocks may get more, or fewer if there are too few ranks for
            one block.
        n_folds: K of the K-fold cross-validation.
        spares: Number of ranks, the last ones, that wait to replace lost ranks.
        unit: Every block has a multiple of this number of ranks, also after a loss.

    Raises:
        ConfigurationError: A number is less than 1, or the spare ranks leave none for training.
    """

    n_ranks: int
    block_size: int
    n_folds: int = 1
    spares: int = 0
    unit: int = 1

    def __post_init__(self) -> None:
        for name in ("n_ranks", "block_size", "n_folds"):
            if (number := getattr(self, name)) < 1:
                raise ConfigurationError(f"{name} must be at least 1, not {number}", cure="give it a number from 1")
        if self.spares and self.n_ranks - 1 - self.spares < 1:
            raise ConfigurationError(
                f"{self.spares} spare ranks of {self.n_ranks} leave none to train",
                where="blocks.spares",
                cure="start more ranks, or fewer spares",
            )

    @classmethod
    def of(
        cls, n_ranks: int, block_size: int | str, n_folds: int, trials: int, spares: int = 0, stages: int = 1
    ) -> BlockLayout:
        """The layout for a configuration's ``blocks.size``, which may be ``"auto"``.

        For `MEASURED`, it has the smallest blocks, until the size is known.

        Args:
            stages: Number of ranks that hold one model.
        """
        n_training = max(1, n_ranks - 1 - spares)
        if block_size == MEASURED:
            block_size = 1
        if block_size == "auto":
            n_blocks = max(1, trials // TRIALS_PER_BLOCK)
            block_size = min(n_training, max(n_folds, math.ceil(n_training / n_blocks)))
        if stages > 1 and n_ranks > 1:
            return cls._with_stages(n_ranks, int(block_size), n_folds, spares, stages)
        return cls(n_ranks, int(block_size), n_folds, 0 if n_ranks == 1 else spares)

    @classmethod
    def _with_stages(cls, n_ranks: int, wanted: int, n_folds: int, spares: int, stages: int) -> BlockLayout:
        """Blocks of equal size, in which each fold has a multiple of `stages` ranks; the ranks that are left are spare.

        Raises:
            ConfigurationError: There are too few ranks for one block.
        """
        in_turn = max(stages, wanted // stages * stages)
        unit = stages if in_turn < n_folds else stages * n_folds
        size = max(unit, wanted // unit * unit)
        n_training = n_ranks - 1 - spares
        if n_training < size and n_training >= unit:
            size = n_training // unit * unit
        if n_training < size:
            folds = f" for each of {n_folds} folds" if unit > stages else ""
            raise ConfigurationError(
                f"a model in {stages} stages needs {unit} ranks that train, {stages}{folds}; there are {n_training}",
                where="blocks.size",
                cure=f"start {unit + 1 + spares} ranks or more, or one",
            )
        return cls(n_ranks, size, n_folds, spares + n_training % size, unit)

    @property
    def is_serial(self) -> bool:
        """Whether there is only one process, which does everything."""
        return self.n_ranks == 1

    @property
    def blocks(self) -> list[range]:
        """The world ranks of each block. With one process the only block is rank 0."""
        if self.is_serial:
            return [range(1)]
        n_training = self.n_ranks - 1 - self.spares
        parts = even_parts(n_training, max(1, n_training // self.block_size))
        return [range(part.start + 1, part.stop + 1) for part in parts]

    def __str__(self) -> str:
        """The number of blocks and their sizes: ``2 blocks of 1 rank``."""
        if self.is_serial:
            return "one process"
        sizes = sorted({len(block) for block in self.blocks})
        blocks = counted(len(self.blocks), "block")
        return f"{blocks} of {' or '.join(map(str, sizes))} {'rank' if sizes == [1] else 'ranks'}"

    @property
    def spare_ranks(self) -> range:
        """The world ranks that wait to replace lost ranks."""
        return range(self.n_ranks - self.spares, self.n_ranks)


@cache
def fold_groups(n_ranks: int, n_folds: int) -> list[range]:
    """The groups of ranks in a block of `n_ranks`: one per fold, or a single one that runs all folds in turn."""
    return even_parts(n_ranks, n_folds) if n_ranks >= n_folds else [range(n_ranks)]


def folds_of_group(group: int, n_groups: int, n_folds: int) -> range:
    """The folds that a group trains, one after the other."""
    return range(group, group + 1) if n_groups == n_folds else range(n_folds)


def even_parts(n: int, parts: int) -> list[range]:
    """Divides 0 … n-1 into `parts` ranges whose lengths differ by at most one, longer ones first."""
    short, longer = divmod(n, parts)
    ends = [short * i + min(i, longer) for i in range(parts + 1)]
    return [range(a, b) for a, b in itertools.pairwise(ends)]
