"""Who sends what to whom in a search.

| from | to | message | tag | when |
|---|---|---|---|---|
| leader of a block | coordinator | `Ready` | `TO_COORDINATOR` | the block has prepared its objective, or could not |
| coordinator | leader of a block | `Assignment` | `TO_BLOCK` | the block is free and the strategy has a proposal |
| coordinator | leader of a block | `Dismissal` | `TO_BLOCK` | the search is over |
| first rank of a fold group | coordinator | `Report` | `TO_COORDINATOR` | the objective reported an intermediate value |
| coordinator | first ranks of the fold groups | `Stop` | `STOP` | the strategy prunes the trial, or the search ends |
| leader of a block | coordinator | `Outcome` | `TO_COORDINATOR` | the trial ended, well or not |
| leader of a block | its members | `Assignment`, `Dismissal` | `TO_MEMBER` | forwarded as it came (block communicator) |
| member of a block | its leader | `PartOutcome` | `TO_LEADER` | the member has finished its part (block communicator) |

The leader of a block is its rank 0. All of it is small; arrays never travel this way.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mpi_learn.errors import UserError
from mpi_opt.space import Parameters
from mpi_opt.trial import FoldOutcome, Outcome

TO_COORDINATOR, TO_BLOCK, STOP, TO_MEMBER, TO_LEADER = range(1, 6)


@dataclass(frozen=True, slots=True)
class Ready:
    """A block can take trials; or, with an `error`, never will.

    Attributes:
        block: Its index.
        hosts: The hosts of its ranks, each once, separated by commas.
        error: What the user must mend.
    """

    block: int
    hosts: str
    error: UserError | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """A trial to run.

    Attributes:
        number: The trial.
        parameters: Its active hyperparameters.
        budget: Epochs; None for what the configuration says.
        resume_from: The trial whose checkpoint to go on from.
    """

    number: int
    parameters: Parameters
    budget: float | None = None
    resume_from: int | None = None


@dataclass(frozen=True, slots=True)
class Dismissal:
    """There is nothing more to do."""


@dataclass(frozen=True, slots=True)
class Report:
    """An intermediate value, in the user's direction."""

    number: int
    fold: int
    step: int
    value: float


@dataclass(frozen=True, slots=True)
class Stop:
    """End this trial at the next opportunity."""

    number: int


@dataclass(slots=True)
class PartOutcome:
    """What one rank of a block says of its part of a trial.

    Attributes:
        number: The trial.
        folds: The folds of which this rank was the first rank.
        error: Why its part failed: reason, rank, host and traceback as text.
        is_echo: The error only says that another rank of the trial failed.
        was_stopped: Whether the objective was told to stop.
    """

    number: int
    folds: list[FoldOutcome] = field(default_factory=list)
    error: str | None = None
    is_echo: bool = False
    was_stopped: bool = False


ToCoordinator = Ready | Report | Outcome
