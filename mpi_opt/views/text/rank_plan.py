"""The roles of N ranks in a search as text, and a batch script for the search."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import replace

from rich.text import Text

from mpi_learn.algorithms.rank_layout import RankLayout
from mpi_opt.core.block_layout import BlockLayout, fold_groups
from mpi_opt.core.counted import counted, plural

MAX_ROWS = 12

N_ROUNDS = 4
"""About how many trials a block should run one after the other, so that a strategy can learn from results."""


def plan_text(layout: BlockLayout, trials: int) -> str:
    """A few lines with the role of every rank."""
    if layout.is_serial:
        return "1 rank: one process does everything, one trial after the other"
    blocks, folds = layout.blocks, layout.n_folds
    lines = [
        counted(layout.n_ranks, "rank"),
        "  rank 0        coordinator",
        f"  {_ranks(range(1, layout.n_ranks - layout.spares)):<13} {layout}: "
        f"{len(blocks)} {plural('trial', len(blocks))} at a time, "
        f"about {-(-trials // len(blocks))} one after the other",
    ]
    for index, block in enumerate(blocks[:MAX_ROWS]):
        lines.append(f"    block {index:<3}   {_ranks(block):<12} {_block_text(block, folds)}")
    if len(blocks) > MAX_ROWS:
        lines.append(f"    … and {counted(len(blocks) - MAX_ROWS, 'more block')} of this kind")
    if layout.spares:
        lines.append(f"  {_ranks(layout.spare_ranks):<13} spare: replace lost ranks")
    return "\n".join(lines) + "\n"


def recommendation(
    layout: BlockLayout,
    trials: int,
    stop_early: bool = False,
    *,
    learns: bool = False,
    depends_on_ranks: bool = True,
) -> str:
    """The highest cost of unfavourable numbers of ranks, folds and trials, with a better block size; empty without one.

    Only one cost is named, because the better block sizes for several of them differ.

    Args:
        layout: The blocks of the search.
        trials: The number of trials.
        stop_early: Whether folds are stopped early.
        learns: Whether the strategy learns from results.
        depends_on_ranks: Whether the result of a trial depends on the size of its block.
    """
    return (
        _note_on_idle_ranks(layout, trials)
        or (_note_on_learning(layout, trials) if learns else "")
        or _note_on_folds(layout, stop_early)
        or (_note_on_sizes(layout) if depends_on_ranks else "")
    )


def _note_on_learning(layout: BlockLayout, trials: int) -> str:
    """If all of several trials start at once, before the strategy has a result."""
    if not 1 < trials <= len(layout.blocks):
        return ""
    n_training = sum(map(len, layout.blocks))
    size = max(2, min(n_training, round(n_training / max(1, trials // N_ROUNDS))))
    return (
        f"all {trials} trials start at once, so that the strategy learns from none of them; "
        f"--block-size {size} runs about {-(-trials // (n_training // size))} one after the other"
    )


def _note_on_sizes(layout: BlockLayout) -> str:
    sizes = [len(block) for block in layout.blocks]
    if len(set(sizes)) == 1:
        return ""
    return f"blocks differ in size; --block-size {_equal_size(sum(sizes), layout.block_size)} makes them all equal"


def _note_on_folds(layout: BlockLayout, stop_early: bool) -> str:
    folds, size, n_training = layout.n_folds, len(layout.blocks[0]), sum(map(len, layout.blocks))
    if size < folds:
        if stop_early:  # needs folds in turn
            return ""
        ranks = "" if n_training >= folds else f"-n {1 + folds + layout.spares} "
        return f"a block of {size} takes its {folds} folds in turn; {ranks}--block-size {folds} runs them at once"
    if folds > 1 and stop_early:
        in_turn = max(n for n in range(1, folds) if len(replace(layout, block_size=n).blocks[0]) < folds)
        return f"folds run at once, so stop_early skips none; --block-size {in_turn} or less runs them in turn"
    if folds > 1 and any(len(block) % folds for block in layout.blocks):
        n_missing = -n_training % folds
        ranks = f"-n {layout.n_ranks + n_missing} " if n_missing else ""
        even = _equal_size(n_training + n_missing, layout.block_size, multiple_of=folds)
        return f"folds get unequal numbers of ranks; {ranks}--block-size {even} makes them equal"
    return ""


def _equal_size(n_training: int, wanted: int, multiple_of: int = 1) -> int:
    """The multiple of `multiple_of` that is nearest to `wanted` and divides `n_training` ranks into equal blocks."""
    sizes = [size for size in range(multiple_of, n_training + 1, multiple_of) if n_training % size == 0]
    return min(sizes, key=lambda size: (abs(size - wanted), -size))


def _note_on_idle_ranks(layout: BlockLayout, trials: int) -> str:
    n_idle = sum(len(block) for block in layout.blocks[trials:])
    if not n_idle:
        return ""
    n = sum(len(block) for block in layout.blocks)
    there_are = f"there {'is' if trials == 1 else 'are'} only {counted(trials, 'trial')}"
    return (
        f"{n_idle} of {layout.n_ranks - 1} ranks would be idle, because {there_are}; "
        f"--block-size auto, or {-(-n // trials)}, uses them"
    )


def slurm_script(arguments: str, n_ranks: int) -> str:
    """A batch script that runs the search with protection against lost ranks and nodes; Slurm chooses the nodes."""
    return f"""#!/bin/bash
#SBATCH --job-name=mpi-opt
#SBATCH --ntasks={n_ranks}
#SBATCH --cpus-per-task=1
#SBATCH --time=02:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --open-mode=append
#SBATCH --no-kill
#SBATCH --requeue

# Load Python, mpi_opt and Open MPI 5.0.11 or newer here, for example:
# source .venv/bin/activate

# With --no-kill, the job continues without a node that is lost. If it is the node of this script, Slurm does nothing:
# a process on another node requeues the job.
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    srun --nodes=1 --ntasks=1 --relative=1 --overlap --mpi=none sh -c '
        while sleep 30; do
            nodes=$(squeue --noheader --jobs=$SLURM_JOB_ID --format=%N) && [ "$nodes" ] || continue
            scontrol show hostnames "$nodes" | grep -qx "$0" || scontrol requeue $SLURM_JOB_ID
        done' "$SLURMD_NODENAME" > /dev/null 2>&1 &
fi

# With exec, mpi-opt receives the signals of Slurm and sets the exit status: 0 finished; 75 not finished, submit again.
# -n starts mpirun, because a search under srun does not survive lost ranks. --restarts starts it again on the nodes
# that are left if one is lost.
exec mpi-opt search {arguments} -n {n_ranks} --restarts 10
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


MAX_DRAWN_RANKS = 1000
"""The largest number of ranks that are drawn."""

ROLES = {
    "C": ("coordinates the search", "bold magenta"),
    "M": ("master: holds the weights that workers share", "bold yellow"),
    "w": ("worker: trains on its share of the samples, or runs your function", "green"),
    "1": ("a stage: the ranks 1, 2, … hold some layers of one model each", "green"),
    "s": ("spare: replaces a lost rank", "cyan"),
    "·": ("idle: there are fewer trials than blocks", "dim red"),
}
MARKS = {"|": "between the folds that train side by side", ":": "between workers that compute together"}

STAGES = "123456789abcdefghijklmnop"
"""The letters of the stages of a model; the last one is that of all others."""
Training = Callable[[int], RankLayout]


def picture(layout: BlockLayout, trials: int, training: Training, width: int = 100) -> Text:
    """Every rank as a letter, in the order of ranks, and a legend of the letters.

    Args:
        layout: The blocks of the search.
        trials: The number of trials; blocks beyond this number are idle.
        training: The roles of the ranks that train one fold, by the number of these ranks.
        width: The number of columns of the terminal.
    """
    blocks = [_block(block, layout.n_folds, training, index < trials) for index, block in enumerate(layout.blocks)]
    cells = ["C", *blocks]
    cells += ["s" * layout.spares] * bool(layout.spares)
    lines = [*textwrap.wrap(" ".join(_first_ranks(cells)), width - 2, break_on_hyphens=False), ""]
    text = Text("\n".join(f"  {line}".rstrip() for line in lines))
    for letter, (_, style) in ROLES.items():
        text.highlight_regex(rf"{letter}", style)
    return text.append("\n").append("\n".join(f"  {line}" for line in _legend(set("".join(lines)))))


def _first_ranks(cells: list[str]) -> list[str]:
    """The cells up to about `MAX_DRAWN_RANKS` ranks."""
    drawn: list[str] = []
    n_ranks = 0
    for cell in cells:
        if n_ranks > MAX_DRAWN_RANKS:
            return [*drawn, "…"]
        drawn.append(cell)
        n_ranks += sum(letter in ROLES or letter in STAGES for letter in cell)
    return drawn


def _legend(used: set[str]) -> list[str]:
    """The meanings of the letters and marks in `used`."""
    letters = [f"{letter} {meaning}" for letter, (meaning, _) in ROLES.items() if letter in used]
    return letters + [f"{mark} {meaning}" for mark, meaning in MARKS.items() if mark in used]


def _block(block: range, folds: int, training: Training, is_busy: bool) -> str:
    """The ranks of a block, e.g. ``[Mww|Mww]``."""
    if not is_busy:
        return f"[{'·' * len(block)}]"
    return "[" + "|".join(_group(training(len(group))) for group in fold_groups(len(block), folds)) + "]"


def _group(layout: RankLayout) -> str:
    """The ranks that train one model, e.g. ``Mww`` or ``ww:ww``."""
    if layout.stages > 1:
        stages = "".join(STAGES[min(stage, len(STAGES) - 1)] for stage in range(layout.stages))
        return ":".join([stages] * layout.n_replicas)
    is_grouped = any(len(group) > 1 for group in layout.groups) and len(layout.groups) > 1
    return "M" * len(layout.masters) + (":" if is_grouped else "").join("w" * len(group) for group in layout.groups)
