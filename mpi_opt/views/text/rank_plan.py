"""Who will do what on N ranks, as text; and a batch script that starts it."""

from __future__ import annotations

from mpi_opt.core.block_layout import Layout, fold_groups

MOST_ROWS = 12


def plan_text(layout: Layout, trials: int) -> str:
    """A few lines that name every rank's part."""
    if layout.is_serial:
        return "1 rank: one process does everything, one trial after the other"
    blocks, folds = layout.blocks, layout.folds
    sizes = sorted({len(block) for block in blocks})
    size = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} or {sizes[-1]}"
    lines = [
        f"{layout.n_ranks} ranks",
        "  rank 0        coordinator",
        f"  {_ranks(range(1, layout.n_ranks - layout.spares)):<13} {len(blocks)} {_plural('block', len(blocks))} of "
        f"{size} {_plural('rank', sizes[-1])}: {len(blocks)} trials at a time, "
        f"about {-(-trials // len(blocks))} one after the other",
    ]
    for index, block in enumerate(blocks[:MOST_ROWS]):
        lines.append(f"    block {index:<3}   {_ranks(block):<12} {_block_text(block, folds)}")
    if len(blocks) > MOST_ROWS:
        lines.append(f"    … and {len(blocks) - MOST_ROWS} more blocks like these")
    if layout.spares:
        lines.append(f"  {_ranks(layout.spare_ranks):<13} waiting to take the place of lost ranks")
    return "\n".join(lines) + "\n"


def notes(layout: Layout, trials: int, stop_early: bool = False) -> list[str]:
    """What a poor choice of numbers costs."""
    found = []
    blocks = layout.blocks
    n = sum(len(block) for block in blocks)
    if len({len(block) for block in blocks}) > 1:
        better = [size for size in range(1, n + 1) if n % size == 0]
        nearest = min(better, key=lambda size: (abs(size - layout.block_size), -size))
        found.append(f"blocks differ in size; --block-size {nearest} makes them all equal")
    folds = layout.folds
    if len(blocks[0]) < folds:
        found.append(
            f"a block of {len(blocks[0])} takes its {folds} folds in turn; --block-size {folds} runs them at once"
        )
    elif folds > 1 and stop_early:
        found.append(
            f"folds run at once, so stop_early spares none; --block-size {folds - 1} or less runs them in turn"
        )
    elif folds > 1 and any(len(block) % folds for block in blocks):
        even = -(-layout.block_size // folds) * folds
        found.append(f"folds get unequal numbers of ranks; --block-size {even} would even them")
    if len(blocks) > trials:
        idle = sum(len(block) for block in blocks[trials:])
        found.append(
            f"{idle} of {layout.n_ranks - 1} ranks would idle, for there are only {trials} trials; "
            f"--block-size auto, or {-(-n // trials)}, uses them"
        )
    return found


def slurm_script(arguments: str, n_ranks: int) -> str:
    """A batch script that runs the search with protection against lost ranks; Slurm chooses the nodes."""
    return f"""#!/bin/bash
#SBATCH --job-name=mpi-opt
#SBATCH --ntasks={n_ranks}
#SBATCH --cpus-per-task=1
#SBATCH --time=02:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --open-mode=append

# load or activate what holds python, mpi_opt and an Open MPI 5, for example
# source .venv/bin/activate

# -n starts mpirun (not srun: only mpirun survives lost ranks); exec, so that mpi-opt gets the signals and sets the
# status: 0 finished, 75 not finished, submit it again
exec mpi-opt search {arguments} -n {n_ranks}
"""


def _block_text(block: range, folds: int) -> str:
    if folds == 1:
        return "trains" if len(block) == 1 else "train together"
    groups = fold_groups(len(block), folds)
    if len(groups) == 1:
        return f"folds 0 to {folds - 1} in turn"
    return ", ".join(f"fold {i}: {_ranks(range(block[g.start], block[g.stop - 1] + 1))}" for i, g in enumerate(groups))


def _ranks(ranks: range) -> str:
    return f"rank {ranks.start}" if len(ranks) == 1 else f"ranks {ranks.start}–{ranks.stop - 1}"


def _plural(word: str, n: int) -> str:
    return word if n == 1 else f"{word}s"
