"""The interfaces of the two ends of the communication between the coordinator and a worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from mpi_learn.mpi.communicators import Communicator
from mpi_opt.messages.messages import FromCoordinator, Join, ToCoordinator, ToRank


class CoordinatorLink(ABC):
    """The coordinator's end.

    Attributes:
        leave_s: Time after which a rank that does not leave its block is given up, in seconds.
        processes_continue: Whether the program continues after the search, on every rank.
    """

    leave_s: float = 30.0
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
