"""The messages of a search: sender, receiver, tag and purpose; and the interface of the links that carry them.

| from | to | message | tag | when |
|---|---|---|---|---|
| coordinator | any rank | `Join` | `TO_RANK` | the rank joins a block |
| member of a block | leader, then back | `ReadyToForm` | `TO_MEMBER` | the rank is ready; all members are |
| leader of a block | coordinator | `Ready` | `TO_COORDINATOR` | its objective is prepared, or its preparation failed |
| coordinator | leader of a block | `Assignment` | `TO_RANK` | the block is idle and there is a proposal |
| leader of a block | its members | `Assignment` | `TO_MEMBER` | it has received one (block communicator) |
| first rank of a fold group | coordinator | `Report` | `TO_COORDINATOR` | the objective reports an intermediate value |
| coordinator | first ranks of the fold groups | `Stop` | `STOP` | the trial is pruned, or the search ends |
| first rank of a fold group | coordinator | `TrialProgress` | `TO_COORDINATOR` | an epoch has ended, if elastic |
| coordinator | first ranks of the fold groups | `Leave` | `STOP` | the trial continues on another number of ranks |
| leader of a block | its members | `NextFold` | `NEXT_FOLD` | a fold has ended and others remain (block communicator) |
| member of a block | leader | list of `Outcome` | `TO_LEADER` | its folds have ended (block communicator) |
| leader of a block | its members | bool | `HAS_LEFT` | parallel folds with `blocks.elastic` end (block communicator) |
| leader of a block | coordinator | `Outcome` | `TO_COORDINATOR` | the trial has ended |
| any rank of a block | coordinator | `Abandoned` | `TO_COORDINATOR` | its part failed; other ranks may wait for it |
| any rank of a block | coordinator | `Broken` | `TO_COORDINATOR` | communication in the block has failed |
| any rank | coordinator | `Alive` | `TO_COORDINATOR` | at intervals, from a second thread |
| coordinator | ranks of a block | `Disband` | `TO_WATCHDOG` | the block has lost a rank, is given up, or is regrouped |
| any rank | coordinator | `LeftBlock` | `TO_COORDINATOR` | it has left its block and can join another |
| coordinator | any rank | `Dismissal` | `TO_RANK` | the search is over and the rank runs no trial |
| coordinator | any rank | `EndProcess` | `TO_WATCHDOG` | it hangs, or its block is retired; see `EndProcess` |
| coordinator | all live ranks | `SearchResult` | `TO_RANK` | after the last message of the search |

The leader of a block is its first rank. Messages with the tag `TO_WATCHDOG` are received even while user code runs. All
messages are small Python objects; arrays are never sent this way.

In every message, `number` is the number of the trial, and `block` the index of the block, which is never used twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mpi_learn.mpi.communicators import Communicator
from mpi_learn.settings.user_files import SourceCode
from mpi_opt.core.folds.fold_stopping import ReferenceTrial
from mpi_opt.core.objective import Choice
from mpi_opt.core.trial import Outcome, Proposal
from mpi_opt.errors import MPILearnError

if TYPE_CHECKING:
    from mpi_opt.study.study import Study


TO_COORDINATOR, TO_RANK, TO_WATCHDOG, STOP, TO_MEMBER, TO_LEADER, NEXT_FOLD, HAS_LEFT = range(32_001, 32_009)
"""Tags have large values: the messages may share the world communicator with user code, which uses small ones."""


@dataclass(frozen=True, slots=True)
class Join:
    """The receiver becomes a member of a block.

    Attributes:
        ranks: The world ranks of all members, the leader first.
        code: The user's Python files as rank 0 has read them at the start of the search, which the receiver runs; None
            if it reads them itself.
        choice: See `Assignment`.
    """

    block: int
    ranks: tuple[int, ...]
    code: SourceCode | None = None
    choice: Choice | None = None


@dataclass(frozen=True, slots=True)
class ReadyToForm:
    """The sender is ready to form its block. Sent over the world communicator, before the block has its own.

    From a member to the leader: this member is ready. From the leader to the members: all are.
    """

    block: int


@dataclass(frozen=True, slots=True)
class Ready:
    """A block is ready for trials, or the preparation of its objective has failed.

    Attributes:
        hosts: The distinct hosts of its ranks, separated by commas.
        error: The error of the preparation: a user's mistake, or an unexpected error with the rank that raised it.
        notes, choice: See `Objective`.
    """

    block: int
    hosts: str
    error: MPILearnError | None = None
    notes: tuple[str, ...] = ()
    choice: Choice | None = None


@dataclass(frozen=True)  # without slots, which are pickled by functions in Python if they are frozen
class Assignment:
    """A trial to run.

    Attributes:
        proposal: The proposal, as the strategy made it.
        study: The study's key, as in `Trial.study`.
        reference: The trial with which consecutive folds are compared; None to run all folds.
        seed: The seed with which the study was created; None for the seed of the configuration, which may have changed.
        before_s: Seconds that the trial has run before, on other ranks from which it continues.
        measured_s: The trial does not run: its training is measured for about this number of seconds, on all ranks of
            the block. The history of the `Outcome` has the fields of `TrainingTimes`, one value each. None: it runs.
        renew: From the leader to its members: whether to replace the fold communicator first, because the last trial
            may have left it unusable.
        attempt: The number of the attempt, from 1.
        choice: The choice of the study, that of the block that was ready first; None if there is none yet, or nothing
            to choose.
    """

    proposal: Proposal
    study: str = ""
    reference: ReferenceTrial | None = None
    seed: int | None = None
    before_s: float = 0.0
    measured_s: float | None = None
    renew: bool = False
    attempt: int = 1
    choice: Choice | None = None

    @property
    def number(self) -> int:
        """The number of the trial."""
        return self.proposal.number


@dataclass(frozen=True, slots=True)
class NextFold:
    """Whether the next fold of a trial runs after the end of `fold`."""

    number: int
    fold: int
    runs: bool


@dataclass(frozen=True, slots=True)
class Broken:
    """Communication in the sender's block has failed; the block can run no more trials.

    Attributes:
        reason: MPI's error, in one line.
    """

    block: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Abandoned:
    """The sender's part of a trial has failed, and other ranks may wait for it forever. Sent without protection only.

    Attributes:
        error: The same text as in its `Outcome`.
    """

    block: int
    number: int
    error: str


@dataclass(frozen=True, slots=True)
class Disband:
    """The receiver must leave this block."""

    block: int


@dataclass(frozen=True, slots=True)
class LeftBlock:
    """The sender has left this block."""

    block: int


@dataclass(frozen=True, slots=True)
class Alive:
    """The process of the sender exists and its host answers."""


@dataclass(frozen=True, slots=True)
class Dismissal:
    """The search is over."""


@dataclass(frozen=True, slots=True)
class EndProcess:
    """The receiver must end its process at once.

    It still runs a trial at the end of the search, does not leave its block, or its block is retired.
    """


@dataclass(frozen=True, slots=True)
class Report:
    """An intermediate value of a fold, in the user's direction."""

    number: int
    fold: int
    step: int
    value: float


@dataclass(frozen=True, slots=True)
class TrialProgress:
    """A trial could continue on another number of ranks now.

    Attributes:
        done, total: Number of its epochs, or other units of work: those that are done, and all.
        most_ranks: The largest number of ranks that it can use.
        elapsed_s: Seconds since this attempt began on the sender.
    """

    number: int
    done: float
    total: float
    most_ranks: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class Stop:
    """The trial must end at the next opportunity."""

    number: int


@dataclass(frozen=True, slots=True)
class Leave:
    """The trial must leave its block after its present epoch, to continue on another number of ranks.

    It then has an `Outcome` with the state ``queued``.
    """

    number: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The world ranks `ranks` have died. Created by the link, not sent by a rank."""

    ranks: frozenset[int]


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The end of a search.

    Attributes:
        study: The study after the search; None if only rank 0 receives it.
        error: The error that ended the search, which the receiver raises; None if there was none.
        skips_finalize: Whether the receiver must end without ``MPI_Finalize``.
    """

    study: Study | None
    error: MPILearnError | None
    skips_finalize: bool


ToCoordinator = Ready | Report | TrialProgress | Outcome | Abandoned | Broken | LeftBlock | Alive | Lost
ToRank = Join | Assignment | Dismissal
FromCoordinator = ToRank | Stop | Leave | Disband | EndProcess

TAGS: dict[type[FromCoordinator], int] = {
    Join: TO_RANK,
    Assignment: TO_RANK,
    Dismissal: TO_RANK,
    Stop: STOP,
    Leave: STOP,
    Disband: TO_WATCHDOG,
    EndProcess: TO_WATCHDOG,
}
"""Message of the coordinator -> its tag."""


class CoordinatorLink(ABC):
    """The coordinator's end.

    Attributes:
        leave_s: Time after which a rank that does not leave its block is given up, in seconds.
        shares_process: Whether trials run in the process of the coordinator.
        processes_continue: Whether the program continues after the search, on every rank.
    """

    leave_s: float = 30.0
    shares_process: bool = False
    processes_continue: bool = False

    @abstractmethod
    def send(self, rank: int, message: FromCoordinator) -> None:
        """Sends a message to a rank, with its tag in `TAGS`. Does not block."""

    @property
    @abstractmethod
    def is_protected(self) -> bool:
        """Whether the search survives lost ranks."""

    @property
    def unreliable_version(self) -> str:
        """The version of the MPI library, if a search may hang in it after the loss of a rank; otherwise empty."""
        return ""

    @abstractmethod
    def receive(self, timeout_s: float, is_interrupted: Callable[[], bool]) -> list[tuple[int, ToCoordinator]]:
        """Waits for messages.

        Args:
            timeout_s: The longest wait, in seconds.
            is_interrupted: Called at least every 20 ms during the wait, which ends if it returns True.

        Returns:
            The messages that have arrived, each with the world rank of its sender; may be empty.
        """


class WorkerLink(ABC):
    """A worker's end."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """The world rank of this worker; 0 only if coordinator and worker share one process."""

    @property
    @abstractmethod
    def has_thread(self) -> bool:
        """Whether `poll` may be called by a thread that does not run user code."""

    @abstractmethod
    def send(self, message: ToCoordinator) -> None:
        """Sends to the coordinator."""

    @abstractmethod
    def poll(self, tag: int) -> object | None:
        """The next message from the coordinator with this tag; None if no message has arrived. Does not block.

        Raises:
            RankLost: The coordinator has died.
        """

    @abstractmethod
    def receive(self, meanwhile: Callable[[], None]) -> ToRank:
        """Waits for the next message from the coordinator with the tag `TO_RANK`.

        Args:
            meanwhile: Called repeatedly during the wait; may raise.
        """

    @abstractmethod
    def form_block(self, join: Join, meanwhile: Callable[[], None]) -> Communicator:
        """Creates the communicator of a new block. Collective over ``join.ranks``.

        Args:
            join: The block and its members.
            meanwhile: Called repeatedly during the wait for the other members; may raise.
        """
