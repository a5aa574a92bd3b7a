"""The two ends of the conversation between the coordinator and a worker: what a link must be able to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from mpi_learn.mpi.communicators import Communicator
from mpi_opt.messages.messages import Disband, End, Join, ToCoordinator, ToRank

LEAVE_S = 30.0
"""A rank that has to leave its block and has not done so after this time is given up, in seconds."""


class CoordinatorLink(ABC):
    """The coordinator's end.

    Attributes:
        leave_s: How long a rank may take to leave its block before it is given up, in seconds.
    """

    leave_s: float = LEAVE_S

    @abstractmethod
    def send(self, rank: int, message: ToRank) -> None:
        """Sends to a rank that waits for a message; returns at once."""

    @abstractmethod
    def call(self, rank: int, message: Disband | End) -> None:
        """Sends to a rank's watchdog, which receives it even while user code runs; returns at once."""

    @abstractmethod
    def stop(self, number: int, ranks: list[int]) -> None:
        """Tells the first ranks of a trial's fold groups to stop it."""

    @property
    @abstractmethod
    def is_protected(self) -> bool:
        """Whether the search survives lost ranks."""

    @abstractmethod
    def receive(self, timeout_s: float) -> list[tuple[int, ToCoordinator]]:
        """Waits at most `timeout_s` for a message.

        Returns:
            All messages that have arrived, each with the world rank that sent it; empty after `timeout_s`.
        """


class WorkerLink(ABC):
    """A worker's end."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """This worker's rank in the world; 0 only where coordinator and worker share one process."""

    @property
    @abstractmethod
    def has_thread(self) -> bool:
        """Whether `poll` may be called from a thread other than the one that runs user code."""

    @abstractmethod
    def send(self, message: ToCoordinator) -> None:
        """Sends to the coordinator."""

    @abstractmethod
    def poll(self, tag: int) -> object | None:
        """A message of the coordinator with this tag that has arrived; None if there is none. Returns at once.

        Raises:
            RankLost: The coordinator has died.
        """

    @abstractmethod
    def receive(self, meanwhile: Callable[[], None]) -> ToRank:
        """Waits for the coordinator's next `ToRank`.

        Args:
            meanwhile: Called again and again during the wait; may raise.
        """

    @abstractmethod
    def form_block(self, join: Join, meanwhile: Callable[[], None]) -> Communicator:
        """The communicator of a new block. Collective over ``join.ranks``.

        Args:
            join: The block.
            meanwhile: Called again and again during the wait for the other members; may raise.
        """
