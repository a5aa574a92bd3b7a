"""The coordinator's end of the conversation with the other ranks: over MPI, or within a search of one process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from mpi_learn.mpi import communicators as communication
from mpi_learn.mpi.communicators import Communicator, Pause, RankLost
from mpi_opt.messages.messages import (
    STOP,
    TO_COORDINATOR,
    TO_LIFELINE,
    TO_RANK,
    Assignment,
    Disband,
    End,
    Join,
    Lost,
    Ready,
    Report,
    Stop,
    ToCoordinator,
    ToRank,
)

if TYPE_CHECKING:
    from mpi_opt.core.trial import Outcome

MOST_AT_ONCE = 32
"""So many messages are taken at once: the first block gets its next trial before the last one's result is read."""

YIELD_S = 50e-6
"""For so long the coordinator only gives way to others between two looks: with short trials the next one is near."""

LONGEST_PAUSE_S = 0.002
"""The coordinator sleeps no longer than this between two looks: blocks wait for it, and there is only one."""


class Link(ABC):
    """Carries messages between the coordinator and the other ranks."""

    @abstractmethod
    def send(self, rank: int, message: ToRank) -> None:
        """Sends to a rank that waits for it; does not wait."""

    @abstractmethod
    def call(self, rank: int, message: Disband | End) -> None:
        """Sends to a rank's lifeline, which hears it even while user code runs; does not wait."""

    @abstractmethod
    def stop(self, number: int, ranks: list[int]) -> None:
        """Tells the first ranks of a trial's fold groups to end it."""

    @property
    @abstractmethod
    def is_protected(self) -> bool:
        """Whether the search survives lost ranks."""

    @abstractmethod
    def receive(self, timeout_s: float) -> list[tuple[int, ToCoordinator]]:
        """All that has come, with the world rank that sent it; waits for the first of it, at most `timeout_s`."""


class WorldLink(Link):
    """Over the world communicator, from rank 0. What is for a rank that has died is dropped.

    Attributes:
        has_called: Whether a rank was called away from its block, or to its end.
        ended: Ranks that were told to end. Without protection their death would end the job: they are not told.
    """

    def __init__(self, world: Communicator) -> None:
        self.world = world
        self.has_called = False
        self.ended: set[int] = set()
        self._lost: set[int] = set()
        self._is_new = True

    def send(self, rank: int, message: ToRank) -> None:
        self._send(message, rank, TO_RANK)

    def call(self, rank: int, message: Disband | End) -> None:
        if isinstance(message, End):
            self.ended.add(rank)
            if not self.is_protected:
                return
        self.has_called = True
        self._send(message, rank, TO_LIFELINE)

    def stop(self, number: int, ranks: list[int]) -> None:
        for rank in ranks:
            self._send(Stop(number), rank, STOP)

    @property
    def is_protected(self) -> bool:
        return communication.is_protected()

    def receive(self, timeout_s: float) -> list[tuple[int, ToCoordinator]]:
        pause = Pause(LONGEST_PAUSE_S, YIELD_S)
        while not (messages := self._arrived()) and pause.waited_s < timeout_s:
            pause()
        return messages

    def _send(self, message: object, rank: int, tag: int) -> None:
        if rank not in self._lost:  # else, `receive` has told, or will
            communication.send_if_alive(self.world, message, rank, tag)

    def _arrived(self) -> list[tuple[int, ToCoordinator]]:
        messages = self._losses() if self._is_new else []  # of an earlier search nothing else tells
        self._is_new = False
        try:
            while len(messages) < MOST_AT_ONCE and (found := communication.poll(self.world, tag=TO_COORDINATOR)):
                messages.append((found[1], found[0]))
        except RankLost:
            messages += self._losses()
        return messages

    def _losses(self) -> list[tuple[int, ToCoordinator]]:
        """The deaths of which nothing was said yet."""
        lost = communication.lost_ranks(self.world)
        new, self._lost = lost - self._lost, self._lost | lost
        return [(0, Lost(frozenset(new)))] if new else []


class SerialLifeline(Protocol):
    """What a link within one process asks of its block's lifeline."""

    must_end: Callable[[], bool]
    has_given_up: bool


class SerialBlock(Protocol):
    """A block of one rank, in the coordinator's own process."""

    lifeline: SerialLifeline

    def prepare(self) -> Ready:
        """Prepares the objective."""

    def run(self, assignment: Assignment) -> Outcome:
        """Runs a trial."""


class SerialLink(Link):
    """The only block lives in the coordinator's process and runs its trial when the coordinator waits.

    Args:
        make_block: Builds the block, given what reports on its trials.
    """

    def __init__(self, make_block: Callable[[SerialLink], SerialBlock]) -> None:
        self.on_report: Callable[[int, Report], None] = lambda rank, report: None
        self._block = make_block(self)
        self._must_end: Callable[[], bool] = lambda: False
        self._message: ToRank | None = None
        self._stopped: set[int] = set()

    def end_when(self, must_end: Callable[[], bool]) -> None:
        """While a trial runs the coordinator cannot look whether the search is to end: the trial is ended for it."""
        self._must_end = self._block.lifeline.must_end = must_end

    def send(self, rank: int, message: ToRank) -> None:
        self._message = message

    def call(self, rank: int, message: Disband | End) -> None:
        pass

    def stop(self, number: int, ranks: list[int]) -> None:
        self._stopped.add(number)

    @property
    def is_protected(self) -> bool:
        return True  # there is nobody to lose

    def receive(self, timeout_s: float) -> list[tuple[int, ToCoordinator]]:
        message, self._message = self._message, None
        if isinstance(message, Join):
            return [(0, self._block.prepare())]
        if isinstance(message, Assignment):
            outcome = self._block.run(message)
            was_ended = outcome.state == "pruned" or self._block.lifeline.has_given_up
            return [] if was_ended and self._must_end() else [(0, outcome)]  # the next search runs it
        return []

    def report(self, number: int, fold: int, step: int, value: float) -> None:
        """The block's reporter: straight to the coordinator."""
        self.on_report(0, Report(number, fold, step, value))

    def is_stopped(self, number: int) -> bool:
        """The block's reporter: whether the coordinator answered with a stop, or the search is to end."""
        return number in self._stopped or self._must_end()

    def abandon(self, block: int, number: int, error: str) -> None:
        """The block's reporter: there are no other ranks."""
