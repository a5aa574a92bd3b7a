"""Both ends of the conversation over MPI: rank 0 of the world is the coordinator, all other ranks are workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from mpi_learn.mpi import communicators as communication
from mpi_learn.mpi.communicators import Communicator, Pause, RankLost
from mpi_opt.messages.link import CoordinatorLink, WorkerLink
from mpi_opt.messages.messages import (
    STOP,
    TO_COORDINATOR,
    TO_LIFELINE,
    TO_MEMBER,
    TO_RANK,
    Disband,
    End,
    Freed,
    Join,
    Lost,
    Present,
    Stop,
    ToCoordinator,
    ToRank,
)

MOST_AT_ONCE = 32
"""How many messages are received at once: the first block gets its next trial before the last result is read."""

YIELD_S = 50e-6
"""The coordinator polls without sleeping for this time, in seconds: with short trials the next message is near."""

LONGEST_PAUSE_S = 0.002
"""The longest sleep of the coordinator between two polls, in seconds: all blocks wait for it."""


END_S = 2.0
"""How long ranks that hang may take to end, when rank 0 does, in seconds."""


class MPICoordinatorLink(CoordinatorLink):
    """From rank 0, over the world communicator. Messages to dead ranks are dropped.

    A rank that has to end its process (`End`) does so at once where the search survives lost ranks. Elsewhere this
    would end the whole job: the rank is left alone, and ends when rank 0 does.

    Args:
        world: The communicator of the search.

    Attributes:
        has_called: Whether a rank had to leave its block, or to end.
        stuck: The ranks that are to end when rank 0 does.
    """

    def __init__(self, world: Communicator) -> None:
        self.world = world
        self.has_called = False
        self.stuck: set[int] = set()
        self._lost: set[int] = set()
        self._is_new = True

    def send(self, rank: int, message: ToRank) -> None:
        self._send(message, rank, TO_RANK)

    def call(self, rank: int, message: Disband | End) -> None:
        self.has_called = True
        if isinstance(message, End) and not self.is_protected:
            self.stuck.add(rank)
        else:
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

    def part(self, results: object, *, may_finalize: bool) -> None:
        """Sends `results` to every rank that is left, and arranges the end of this process.

        Args:
            results: What `MPIWorkerLink.part` returns on the other ranks.
            may_finalize: Whether this process may end with `MPI_Finalize`, if no rank is lost or stuck.
        """
        lost = communication.lost_ranks(self.world)
        is_final = bool(lost) or self.has_called or not may_finalize
        present = [rank for rank in range(1, self.world.size) if rank not in lost | self.stuck]
        communication.send_to_all(self.world, (results, is_final), present, TO_RANK)
        if is_final:
            communication.skip_finalize(self.world, present, self._end_stuck)

    def _end_stuck(self) -> None:
        """The ranks that hang end their processes, when all others have done their work."""
        communication.send_to_all(self.world, End(), sorted(self.stuck), TO_LIFELINE)
        if self.stuck:
            time.sleep(END_S)  # with the first process the launcher ends the others, and takes its status

    def _send(self, message: object, rank: int, tag: int) -> None:
        if rank not in self._lost:
            communication.send_if_alive(self.world, message, rank, tag)

    def _arrived(self) -> list[tuple[int, ToCoordinator]]:
        messages = self._losses() if self._is_new else []  # nothing else reports the losses of an earlier search
        self._is_new = False
        try:
            while len(messages) < MOST_AT_ONCE and (found := communication.poll(self.world, tag=TO_COORDINATOR)):
                messages.append((found[1], found[0]))
                if isinstance(found[0], Freed):
                    self.stuck.discard(found[1])  # it answers after all
        except RankLost:
            messages += self._losses()
        return messages

    def _losses(self) -> list[tuple[int, ToCoordinator]]:
        """The deaths that were not reported yet."""
        lost = communication.lost_ranks(self.world)
        new, self._lost = lost - self._lost, self._lost | lost
        return [(0, Lost(frozenset(new)))] if new else []


class MPIWorkerLink(WorkerLink):
    """From a rank other than 0, over the world communicator."""

    def __init__(self, world: Communicator) -> None:
        self.world = world

    @property
    def rank(self) -> int:
        return self.world.rank

    @property
    def has_thread(self) -> bool:
        return communication.threads_may_call()

    def send(self, message: ToCoordinator) -> None:
        self.world.send(message, dest=0, tag=TO_COORDINATOR)

    def poll(self, tag: int) -> object | None:
        found = communication.poll(self.world, source=0, tag=tag)
        return None if found is None else found[0]

    def receive(self, meanwhile: Callable[[], None]) -> ToRank:
        return communication.receive(self.world, source=0, tag=TO_RANK, meanwhile=meanwhile)[0]

    def form_block(self, join: Join, meanwhile: Callable[[], None]) -> Communicator:
        self._await_members(join, meanwhile)
        return communication.group_of(self.world, join.ranks, f"mpi_opt block {join.block}")

    def part(self) -> object:
        """The results of the search, from rank 0; drops messages that no trial has read.

        Raises:
            RankLost: Rank 0 has died.
        """
        results, is_final = communication.receive(self.world, source=0, tag=TO_RANK)[0]
        with suppress(*communication.FAILURES):  # trials of the next search have the same numbers
            while self.poll(STOP) is not None:
                pass
        if is_final:
            communication.skip_finalize(self.world, [])
        return results

    def _await_members(self, join: Join, meanwhile: Callable[[], None]) -> None:
        """Returns when all members have come, so that creating their communicator takes no time.

        Nothing interrupts a rank that creates a communicator together with one that has died; this wait can be.
        """
        leader, *members = join.ranks
        if self.rank == leader:
            for member in members:
                self._await_present(join.block, member, meanwhile)
            self._send_present(join.block, members)
        else:
            self._send_present(join.block, [leader])
            self._await_present(join.block, leader, meanwhile)

    def _send_present(self, block: int, ranks: Sequence[int]) -> None:
        communication.send_to_all(self.world, Present(block), ranks, TO_MEMBER)

    def _await_present(self, block: int, rank: int, meanwhile: Callable[[], None]) -> None:
        message = None
        while message != Present(block):  # older ones belong to blocks that were never formed
            message, _, _ = communication.receive(self.world, source=rank, tag=TO_MEMBER, meanwhile=meanwhile)
