"""The program of every rank except rank 0: joins blocks, runs trials in them and leaves them.

It imports no validation of configurations and no command line, because hundreds of ranks start at once.
"""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from mpi_learn.job.stop_request import ignored_requests
from mpi_learn.mpi import messaging
from mpi_learn.mpi.communicators import Communicator
from mpi_learn.settings.user_files import fix, is_fixed
from mpi_opt.core.objective import Objective, TrialSettings, WorkerPlan
from mpi_opt.messages.links import MPIWorkerLink
from mpi_opt.messages.messages import (
    STOP,
    TO_MEMBER,
    TO_RANK,
    Abandoned,
    Assignment,
    Broken,
    Dismissal,
    Join,
    Leave,
    LeftBlock,
    Report,
    Stop,
    ToRank,
    TrialProgress,
    WorkerLink,
)
from mpi_opt.worker.block import Block
from mpi_opt.worker.watchdog import Disbanded, Watchdog, end_process, end_unfinished, is_main_thread

if TYPE_CHECKING:
    from mpi_opt.study.study import Study


class Dismissed(Exception):
    """The search is over."""


class Worker:
    """A rank that runs the trials of a study, in the block that the coordinator assigns to it."""

    def __init__(self, link: WorkerLink, watchdog: Watchdog, objective: Objective, settings: TrialSettings) -> None:
        self.link, self.watchdog = link, watchdog
        self.objective, self.settings = objective, settings
        self.reporter = LinkReporter(link)

    def serve(self) -> None:
        """Joins blocks when the coordinator asks for it, until the search is over.

        Raises:
            MPI.Exception, RankLost: The coordinator was lost.
        """
        while not isinstance(message := self._next_message(), Dismissal):
            if not isinstance(message, Join):  # a message for a block that no longer exists
                continue
            try:
                self._serve_in(message)
            except Dismissed:
                return
            except Disbanded:
                self.link.send(LeftBlock(message.block))

    def serve_or_die(self) -> None:
        """Runs `serve`, and ends the process if the coordinator is lost or this program has an error.

        The other ranks detect the end of the process. They would wait forever for a live rank that does not serve.
        """
        try:
            self.serve()
        except messaging.FAILURES:
            end_unfinished("the coordinator was lost")
        except BaseException:  # noqa: BLE001 - any error must end the process
            traceback.print_exc()
            end_process("of an error in this program")

    def _serve_in(self, join: Join) -> None:
        self.reporter.drop_stops()
        if join.code is not None and not is_fixed():
            fix(join.code)
        if join.choice is not None:  # before the objective is prepared, which then measures nothing
            self.objective.choose(join.choice)
        comm = None
        try:
            comm = self.link.form_block(join, partial(self.watchdog.check, join.block))
            block = Block(
                comm, join.block, self.objective, self.settings, reporter=self.reporter, watchdog=self.watchdog
            )
            ready = block.prepare()
            if comm.rank == 0:
                self.link.send(ready)
                self._lead(block)
            else:
                self._follow(block)
        except messaging.FAILURES as error:
            if comm is not None:  # other members may wait for this one, and must leave the block as well
                messaging.revoke_if_protected(comm)
            self.link.send(Broken(join.block, " ".join(str(error).split())))
            self._await_disband(join.block)

    def _lead(self, block: Block) -> None:
        members = range(1, block.comm.size)
        renew = False
        while True:
            message = self._next_message(block.index)
            if not isinstance(message, Assignment):
                raise Dismissed
            assignment = replace(message, renew=True) if renew else message
            self.reporter.drop_leaves()
            for member in members:
                block.comm.send(assignment, dest=member, tag=TO_MEMBER)
            outcome = block.run(assignment)
            assert outcome is not None, "the leader of a block has the outcome"
            # the fold communicator may be unusable: all ranks of the block replace it before the next trial
            renew = outcome.state == "failed"
            self.link.send(outcome)

    def _follow(self, block: Block) -> None:
        while True:
            assignment, _, _ = messaging.receive(
                block.comm, source=0, tag=TO_MEMBER, meanwhile=lambda: self._check_dismissal(block.index)
            )
            block.run(assignment)

    def _next_message(self, block: int | None = None) -> ToRank:
        return self.link.receive((lambda: None) if block is None else partial(self.watchdog.check, block))

    def _check_dismissal(self, block: int) -> None:
        """Raises `Disbanded` or `Dismissed`. The only message with the tag `TO_RANK` to a member is `Dismissal`."""
        self.watchdog.check(block)
        if self.link.poll(TO_RANK) is not None:
            raise Dismissed

    def _await_disband(self, block: int) -> None:
        """Waits until the coordinator disbands a block in which communication has failed."""
        while True:
            if isinstance(self._next_message(block), Dismissal):
                raise Dismissed


class LinkReporter:
    """Sends reports to the coordinator. The first rank of each fold group sends the intermediate values."""

    def __init__(self, link: WorkerLink) -> None:
        self.link = link
        self._requests: list[Stop | Leave] = []  # of the present trial, in the order of their arrival

    def report(self, number: int, fold: int, step: int, value: float) -> None:
        """Sends an intermediate value. Does not block, because the message is small."""
        self.link.send(Report(number, fold, step, value))

    def progress(self, number: int, done: float, total: float, most_ranks: int, elapsed_s: float) -> None:
        """Sends how much of the trial is done, when it could continue on another number of ranks."""
        self.link.send(TrialProgress(number, done, total, most_ranks, elapsed_s))

    def is_stopped(self, number: int) -> bool:
        """Whether the coordinator has stopped this trial. Messages about earlier trials are dropped."""
        return self._take(Stop(number))

    def must_leave(self, number: int) -> bool:
        """Whether this trial must leave its block, to continue on another number of ranks."""
        return self._take(Leave(number))

    def drop_stops(self) -> None:
        """Drops stop messages of an earlier block: the same trial may run again in the next one."""
        while self.link.poll(STOP) is not None:
            pass
        self._requests.clear()

    def drop_leaves(self) -> None:
        """Drops requests to leave of an earlier attempt, before a trial begins.

        The same trial may run again in this block, after a fault of its host. It is not asked to leave before its first
        epoch has ended; but it may already be stopped.
        """
        self._receive()
        self._requests = [one for one in self._requests if not isinstance(one, Leave)]

    def _receive(self) -> None:
        while isinstance(message := self.link.poll(STOP), Stop | Leave):
            self._requests.append(message)

    def _take(self, request: Stop | Leave) -> bool:
        """Whether the coordinator has sent this request, which is then forgotten: the trial may come back."""
        self._receive()
        has_come = request in self._requests
        self._requests = [one for one in self._requests if one.number == request.number and one != request]
        return has_come

    def abandon(self, block: int, number: int, error: str) -> None:
        """Without protection, asks the coordinator to give the block up if its trial does not end soon."""
        if not messaging.is_protected():
            self.link.send(Abandoned(block, number, error))


def serve_search(plan: WorkerPlan, world: Communicator) -> Study | None:
    """Runs trials until the search is over; returns the study if all ranks receive it.

    Args:
        plan: The same on every rank.
        world: The ranks of the search, a communicator of its own.

    Raises:
        UserError, SearchFailed: The error with which the search ended on rank 0.
    """
    link = MPIWorkerLink(world)
    with ignored_requests() if is_main_thread() else contextlib.nullcontext():
        serve(plan, link, Worker.serve_or_die, may_end_process=messaging.is_protected())
    try:
        result = link.receive_result()
    except messaging.FAILURES:
        end_unfinished("the coordinator was lost")
    if result.error is not None:
        raise result.error
    return result.study


def serve(plan: WorkerPlan, link: WorkerLink, run: Callable[[Worker], None], *, may_end_process: bool) -> None:
    """Runs trials on a worker until it is dismissed.

    Args:
        plan: The settings for workers.
        link: The connection to the coordinator.
        run: `Worker.serve` or `Worker.serve_or_die`.
        may_end_process: Whether the watchdog may end this process.
    """
    alive_s = plan.settings.alive_s if link.rank > 0 else None
    watchdog = Watchdog(link, may_end_process=may_end_process, alive_s=alive_s)
    worker = Worker(link, watchdog, plan.objective, plan.settings)
    watchdog.open()
    try:
        run(worker)
    finally:
        watchdog.close()
        fix(None)  # the code of this search, which the worker has fixed
