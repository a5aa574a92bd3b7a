"""The coordinator's end of the conversation with the blocks: over MPI, or with one block in the same process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

from mpi_learn import comm as communication
from mpi_learn.comm import Communicator, Pause
from mpi_opt.messages import STOP, TO_BLOCK, TO_COORDINATOR, Assignment, Dismissal, Report, Stop, ToCoordinator

if TYPE_CHECKING:
    from mpi_opt.block import Block
    from mpi_opt.layout import Layout
    from mpi_opt.space import Parameters

LONGEST_PAUSE_S = 0.002
"""The coordinator sleeps no longer than this between two looks: blocks wait for it, and there is only one."""


class Link(ABC):
    """Carries messages between the coordinator and the blocks.

    Attributes:
        blocks: The world ranks of each block.
    """

    blocks: list[range]

    @abstractmethod
    def send(self, block: int, assignment: Assignment) -> None:
        """Gives a block its next trial; does not wait."""

    @abstractmethod
    def receive(self, timeout_s: float) -> list[tuple[int, ToCoordinator]]:
        """All that has come, with the world rank that sent it; waits for the first of it, at most `timeout_s`."""

    @abstractmethod
    def stop(self, number: int, ranks: list[int]) -> None:
        """Tells the first ranks of a trial's fold groups to end it."""

    @abstractmethod
    def dismiss(self) -> None:
        """Tells every block that there is nothing more to do."""


class WorldLink(Link):
    """Over the world communicator, from rank 0."""

    def __init__(self, world: Communicator, layout: Layout) -> None:
        self.world, self.blocks = world, layout.blocks

    def send(self, block: int, assignment: Assignment) -> None:
        self.world.send(assignment, dest=self.blocks[block].start, tag=TO_BLOCK)

    def receive(self, timeout_s: float) -> list[tuple[int, ToCoordinator]]:
        pause = Pause(LONGEST_PAUSE_S)
        while not (messages := self._arrived()) and pause.waited_s < timeout_s:
            pause()
        return messages

    def stop(self, number: int, ranks: list[int]) -> None:
        for rank in ranks:
            self.world.send(Stop(number), dest=rank, tag=STOP)

    def dismiss(self) -> None:
        for ranks in self.blocks:
            self.world.send(Dismissal(), dest=ranks.start, tag=TO_BLOCK)

    def _arrived(self) -> list[tuple[int, ToCoordinator]]:
        messages = []
        while (found := communication.poll(self.world, tag=TO_COORDINATOR)) is not None:
            messages.append((found[1], found[0]))
        return messages


class SerialLink(Link):
    """The only block lives in the coordinator's process and runs its trial when the coordinator waits.

    Args:
        make_block: Builds the block, given what reports on its trials.
        parameters: A point of the space, for the block's preparation.
    """

    def __init__(self, make_block: Callable[[SerialLink], Block], parameters: Parameters) -> None:
        self.blocks = [range(1)]
        self.on_report: Callable[[int, Report], None] = lambda rank, report: None
        self._block, self._parameters = make_block(self), parameters
        self._assignment: Assignment | None = None
        self._is_prepared = False
        self._stopped: set[int] = set()

    def send(self, block: int, assignment: Assignment) -> None:
        self._assignment = assignment

    def receive(self, timeout_s: float) -> list[tuple[int, ToCoordinator]]:
        if not self._is_prepared:
            self._is_prepared = True
            return [(0, self._block.prepare(self._parameters))]
        assignment, self._assignment = self._assignment, None
        return [] if assignment is None else [(0, self._block.run(assignment))]

    def stop(self, number: int, ranks: list[int]) -> None:
        self._stopped.add(number)

    def dismiss(self) -> None:
        pass

    def report(self, number: int, fold: int, step: int, value: float) -> None:
        """The block's reporter: straight to the coordinator."""
        self.on_report(0, Report(number, fold, step, value))

    def is_stopped(self, number: int) -> bool:
        """The block's reporter: whether the coordinator answered with a stop."""
        return number in self._stopped
