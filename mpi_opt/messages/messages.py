"""Who sends what to whom in a search.

| from | to | message | tag | when |
|---|---|---|---|---|
| coordinator | any rank | `Join` | `TO_RANK` | the rank becomes part of a block, with others |
| member of a block | leader, then back | `Present` | `TO_MEMBER` | it has come; all have come |
| leader of a block | coordinator | `Ready` | `TO_COORDINATOR` | its objective is prepared, or cannot be |
| coordinator | leader of a block | `Assignment` | `TO_RANK` | the block is free, and there is a proposal |
| leader of a block | its members | `Order` | `TO_MEMBER` | it forwards an assignment (block communicator) |
| first rank of a fold group | coordinator | `Report` | `TO_COORDINATOR` | an intermediate value |
| coordinator | first ranks of the fold groups | `Stop` | `STOP` | the trial is pruned, or the search ends |
| leader of a block | its members | `Verdict` | `VERDICT` | a fold ended that is not the last (block communicator) |
| member of a block | leader | `PartOutcome` | `TO_LEADER` | its part has ended (block communicator) |
| leader of a block | coordinator | `Outcome` | `TO_COORDINATOR` | the trial ended, well or not |
| any rank of a block | coordinator | `Abandoned` | `TO_COORDINATOR` | it failed, and cannot free those who wait |
| any rank of a block | coordinator | `Broken` | `TO_COORDINATOR` | it cannot reach the others any more |
| coordinator | ranks of a block | `Disband` | `TO_WATCHDOG` | the block lost a rank, or is given up |
| any rank | coordinator | `Freed` | `TO_COORDINATOR` | it has left its block and can join another |
| coordinator | all ranks | `Dismissal` | `TO_RANK` | the search is over |
| coordinator | ranks that do not answer | `End` | `TO_WATCHDOG` | the search is over and they are still busy |

The leader of a block is its first rank. What is for `TO_WATCHDOG` is heard even while user code runs. All of it is
small; arrays never travel this way.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mpi_learn.errors import MPILearnError
from mpi_opt.core.fold_stopping import Yardstick
from mpi_opt.core.trial import FoldOutcome, Outcome, Proposal

TO_COORDINATOR, TO_RANK, TO_WATCHDOG, STOP, TO_MEMBER, TO_LEADER, VERDICT = range(32_001, 32_008)
"""Large, because they may travel over the world communicator itself, where the user's own messages have small ones."""


@dataclass(frozen=True, slots=True)
class Join:
    """Become part of a block.

    Attributes:
        block: Its index; never used before.
        ranks: The world ranks of all its members, the leader first.
    """

    block: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Present:
    """A rank has come to its block, or all have; over the world communicator, for there is no other yet.

    Attributes:
        block: Its index.
    """

    block: int


@dataclass(frozen=True, slots=True)
class Ready:
    """A block can take trials; or, with an `error`, never will.

    Attributes:
        block: Its index.
        hosts: The hosts of its ranks, each once, separated by commas.
        error: What the user must mend; or, of what nobody foresaw, which rank raised it.
    """

    block: int
    hosts: str
    error: MPILearnError | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """A trial to run.

    Attributes:
        proposal: What to try.
        study: The study's key; see `Trial.study`.
        yardstick: What folds that run in turn are compared with; None: all of them are run.
    """

    proposal: Proposal
    study: str = ""
    yardstick: Yardstick | None = None

    @property
    def number(self) -> int:
        """The trial."""
        return self.proposal.number


@dataclass(frozen=True, slots=True)
class Order:
    """What a leader tells its members.

    Attributes:
        assignment: What to run.
        renew: Make the fold communicator anew first: the last trial may have left it unusable.
    """

    assignment: Assignment
    renew: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a trial goes on with its next fold.

    Attributes:
        number: The trial.
        fold: The one that has ended.
        goes_on: Whether the next one is run.
    """

    number: int
    fold: int
    goes_on: bool


@dataclass(frozen=True, slots=True)
class Broken:
    """A communication in the sender's block failed, so that the block no longer works.

    Attributes:
        block: Its index.
        reason: MPI's error, in one line.
    """

    block: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The sender has failed its part of a trial, and others may wait for it for ever: without protection.

    Attributes:
        block: Its index.
        number: The trial.
        error: As in its `PartOutcome`.
    """

    block: int
    number: int
    error: str


@dataclass(frozen=True, slots=True)
class Disband:
    """Leave this block."""

    block: int


@dataclass(frozen=True, slots=True)
class Freed:
    """The sender has left this block."""

    block: int


@dataclass(frozen=True, slots=True)
class Dismissal:
    """There is nothing more to do."""


@dataclass(frozen=True, slots=True)
class End:
    """There is nothing more to do, at once: end this process."""


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
        is_clearly_worse: Whether the folds so far were enough to know that the trial is not the best one.
    """

    number: int
    folds: list[FoldOutcome] = field(default_factory=list)
    error: str | None = None
    is_echo: bool = False
    was_stopped: bool = False
    is_clearly_worse: bool = False


@dataclass(frozen=True, slots=True)
class Lost:
    """Not sent by anybody: what the link itself found out.

    Attributes:
        ranks: World ranks that have died.
    """

    ranks: frozenset[int]


ToCoordinator = Ready | Report | Outcome | Abandoned | Broken | Freed | Lost
ToRank = Join | Assignment | Dismissal
