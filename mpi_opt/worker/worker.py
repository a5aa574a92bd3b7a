"""The life of a rank that does not coordinate: join a block, serve in it, be freed, join another; until dismissed."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import suppress

from mpi_learn.mpi import communicators as communication
from mpi_learn.mpi.communicators import Communicator
from mpi_opt.messages.messages import (
    STOP,
    TO_COORDINATOR,
    TO_MEMBER,
    TO_RANK,
    Abandoned,
    Assignment,
    Broken,
    Dismissal,
    Freed,
    Join,
    Order,
    Present,
    Report,
    Stop,
    ToRank,
)
from mpi_opt.worker.block import Block
from mpi_opt.worker.watchdog import Lifeline, end_process, end_unfinished


class Disbanded(Exception):
    """This rank's block is no more."""


class Dismissed(Exception):
    """The search is over."""


class Rank:
    """One rank of the world.

    Args:
        world: Where the coordinator is rank 0.
        make_block: Builds this rank's part of a block from its communicator and index.
        lifeline: Hears the coordinator while user code runs.
    """

    def __init__(
        self, world: Communicator, make_block: Callable[[Communicator, int], Block], lifeline: Lifeline
    ) -> None:
        self.world, self.make_block, self.lifeline = world, make_block, lifeline

    def serve(self) -> None:
        """Joins blocks as it is told, until it is dismissed.

        Ends the process if the coordinator is lost, or something fails that nobody foresaw: others notice that death,
        and would wait for ever for a rank that has left.
        """
        try:
            self._serve()
        except communication.FAILURES:
            end_unfinished("the coordinator was lost")
        except BaseException:  # noqa: BLE001 - whatever it is
            traceback.print_exc()
            end_process("of an error in this program")

    def _serve(self) -> None:
        while not isinstance(message := self._next_message(), Dismissal):
            if not isinstance(message, Join):  # what was on its way to a block that is no more
                continue
            try:
                self._serve_in(message)
            except Dismissed:
                return
            except Disbanded:
                self.world.send(Freed(message.block), dest=0, tag=TO_COORDINATOR)

    def _serve_in(self, join: Join) -> None:
        comm = None
        try:
            self._await_all(join)
            comm = communication.group_of(self.world, join.ranks, f"mpi_opt block {join.block}")
            block = self.make_block(comm, join.block)
            ready = block.prepare()
            if comm.rank == 0:
                self.world.send(ready, dest=0, tag=TO_COORDINATOR)
                self._lead(block)
            else:
                self._follow(block)
        except communication.FAILURES:
            if comm is not None:
                communication.release(comm)
            self.world.send(Broken(join.block), dest=0, tag=TO_COORDINATOR)
            self._await_disband(join.block)

    def _await_all(self, join: Join) -> None:
        """Returns when all of the block's ranks have come, so that making its communicator takes an instant only.

        Nothing frees a rank that makes a communicator with one that has died; from here it can be called away.
        """
        leader, *members = join.ranks
        if self.world.rank == leader:
            for member in members:
                self._await_present(join.block, member)
            communication.send_to_all(self.world, Present(join.block), members, TO_MEMBER)
        else:
            self.world.send(Present(join.block), dest=leader, tag=TO_MEMBER)
            self._await_present(join.block, leader)

    def _await_present(self, block: int, rank: int) -> None:
        word = None
        while word != Present(block):  # older ones are of blocks that never came to be
            word, _, _ = communication.receive(
                self.world, source=rank, tag=TO_MEMBER, meanwhile=lambda: self._check(block)
            )

    def _lead(self, block: Block) -> None:
        members = range(1, block.comm.size)
        renew = False
        while True:
            message = self._next_message(block.index)
            if not isinstance(message, Assignment):
                raise Dismissed
            for member in members:
                block.comm.send(Order(message, renew), dest=member, tag=TO_MEMBER)
            if renew:
                block.renew()
            outcome = block.run(message, lambda: self._check(block.index))
            renew = outcome.state == "failed" and block.comm.size > 1
            self.world.send(outcome, dest=0, tag=TO_COORDINATOR)

    def _follow(self, block: Block) -> None:
        while True:
            order, _, _ = communication.receive(
                block.comm, source=0, tag=TO_MEMBER, meanwhile=lambda: self._check_dismissal(block.index)
            )
            if order.renew:
                block.renew()
            block.run(order.assignment, lambda: self._check(block.index))

    def _next_message(self, block: int | None = None) -> ToRank:
        check = (lambda: None) if block is None else (lambda: self._check(block))
        return communication.receive(self.world, source=0, tag=TO_RANK, meanwhile=check)[0]

    def _check(self, block: int) -> None:
        if self.lifeline.disbanded >= block:
            raise Disbanded

    def _check_dismissal(self, block: int) -> None:
        """A member that waits for its leader: nothing else than a dismissal comes from the coordinator meanwhile."""
        self._check(block)
        if communication.poll(self.world, source=0, tag=TO_RANK) is not None:
            raise Dismissed

    def _await_disband(self, block: int) -> None:
        """The coordinator says what becomes of the block."""
        while True:
            if isinstance(self._next_message(block), Dismissal):
                raise Dismissed


class WorldReporter:
    """Reports over the world communicator; intermediate values from the first rank of each fold group."""

    def __init__(self, world: Communicator) -> None:
        self.world = world

    def report(self, number: int, fold: int, step: int, value: float) -> None:
        """Sends the value on its way; small enough never to wait."""
        self.world.send(Report(number, fold, step, value), dest=0, tag=TO_COORDINATOR)

    def is_stopped(self, number: int) -> bool:
        """Whether the word to stop this trial has come; words about earlier trials are dropped."""
        stopped = False
        while (found := communication.poll(self.world, source=0, tag=STOP)) is not None:
            message: Stop = found[0]
            stopped = stopped or message.number == number
        return stopped

    def abandon(self, block: int, number: int, error: str) -> None:
        """Tells the coordinator, which gives the block up if it does not answer soon."""
        if not communication.is_protected():
            self.world.send(Abandoned(block, number, error), dest=0, tag=TO_COORDINATOR)


def forget_stops(world: Communicator) -> None:
    """Drops words to stop that no trial has looked for: trials of the next search have the same numbers."""
    with suppress(*communication.FAILURES):  # the coordinator may have gone
        while communication.poll(world, source=0, tag=STOP) is not None:
            pass
