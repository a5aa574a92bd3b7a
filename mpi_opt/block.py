"""A block of ranks: receive a trial, run it, answer.

Every rank of a block holds a `Block`. Its rank 0, the leader, talks with the coordinator; the others are its members.
Whatever user code raises becomes part of an `Outcome` here, and the block goes on with its next trial.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from mpi_learn import comm as communication
from mpi_learn.comm import Communicator
from mpi_learn.errors import UserError
from mpi_opt.layout import fold_groups, folds_of_group
from mpi_opt.messages import (
    STOP,
    TO_BLOCK,
    TO_COORDINATOR,
    TO_LEADER,
    TO_MEMBER,
    Assignment,
    Dismissal,
    PartOutcome,
    Ready,
    Report,
    Stop,
)
from mpi_opt.objective import Objective
from mpi_opt.space import Parameters
from mpi_opt.trial import FoldOutcome, Outcome, Proposal, Reporter, Trial


@dataclass(frozen=True, slots=True)
class Order:
    """What a leader tells its members: the assignment, and whether to make the fold communicator anew first."""

    message: Assignment | Dismissal
    renew: bool


class Block:
    """One rank's part of a block.

    Args:
        comm: The block's communicator.
        index: The block's number.
        objective: What to run.
        seed: The study's.
        folds: K.
        reporter: Where intermediate values go.
    """

    def __init__(
        self, comm: Communicator, index: int, objective: Objective, *, seed: int, folds: int, reporter: Reporter
    ) -> None:
        self.comm, self.index, self.objective = comm, index, objective
        self.seed, self.folds, self.reporter = seed, folds, reporter
        self.groups = fold_groups(comm.size, folds)
        self.group = next(i for i, ranks in enumerate(self.groups) if comm.rank in ranks)
        self.fold_comm = self._split()

    def prepare(self, parameters: Parameters) -> Ready:
        """Everything that can be done, and found wrong, before the first trial. Collective over the block.

        Args:
            parameters: Some point of the space, to try the objective's inputs with.
        """
        hosts = self.comm.gather(communication.host_name(), root=0) or []
        error = None
        try:
            with communication.agreed_errors(self.comm):
                self.objective.prepare(self.comm, parameters)
        except UserError as mine:
            error = mine
        return Ready(self.index, ",".join(dict.fromkeys(hosts)), error)

    def run(self, assignment: Assignment) -> Outcome | None:
        """Runs one trial. Every rank of the block calls it with the same assignment; the leader gets the outcome."""
        started = time.perf_counter()
        part = self._run_part(assignment)
        if self.comm.rank != 0:
            self.comm.send(part, dest=0, tag=TO_LEADER)
            return None
        parts = [part]
        while len(parts) < self.comm.size:
            other, _, _ = communication.receive(self.comm, tag=TO_LEADER)
            parts.append(other)
        return merged(parts, time.perf_counter() - started)

    def renew(self) -> None:
        """Makes the fold communicator anew, after a trial that may have left it unusable. Collective over the block."""
        if self.fold_comm is not self.comm:
            self.fold_comm.Free()
        self.fold_comm = self._split()

    def _split(self) -> Communicator:
        return self.comm if self.comm.size == 1 else communication.split(self.comm, self.group, self.comm.rank)

    def _run_part(self, assignment: Assignment) -> PartOutcome:
        part = PartOutcome(assignment.number)
        proposal = Proposal(assignment.number, assignment.parameters, assignment.budget, assignment.resume_from)
        for fold in folds_of_group(self.group, len(self.groups), self.folds):
            trial = Trial(
                proposal,
                comm=self.fold_comm,
                study_seed=self.seed,
                fold=fold,
                folds=self.folds,
                reporter=self.reporter,
            )
            if not self._run_fold(trial, part):
                break
        return part

    def _run_fold(self, trial: Trial, part: PartOutcome) -> bool:
        """Runs one fold into `part`; returns whether to go on with the next."""
        started = time.perf_counter()
        try:
            value, history = self.objective(trial)
            value = _figure(value) if trial.comm.rank == 0 else None
        except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever user code raises is this trial's outcome
            part.error = str(communication.described(error, self.comm.rank))
            part.is_echo = communication.is_communication_error(error)
            communication.release(trial.comm)
            return False
        part.was_stopped = trial.was_stopped
        if trial.comm.rank == 0:
            history = history or ({"report": trial.reported} if trial.reported else {})
            part.folds.append(FoldOutcome(trial.fold, value, time.perf_counter() - started, history))
        return not trial.was_stopped


def merged(parts: list[PartOutcome], duration_s: float) -> Outcome:
    """The outcome of a trial from what the ranks of its block say; the mean over folds is its figure of merit."""
    folds = sorted((fold for part in parts for fold in part.folds), key=lambda fold: fold.fold)
    errors = sorted((part for part in parts if part.error), key=lambda part: part.is_echo)
    number = parts[0].number
    if errors:
        return Outcome(number, "failed", None, None, duration_s, folds, errors[0].error)
    values = [fold.figure_of_merit for fold in folds]
    mean = values[0] if len(values) == 1 else math.fsum(values) / len(values)
    uncertainty = float(np.std(values)) if len(values) > 1 else None
    state = "pruned" if any(part.was_stopped for part in parts) else "complete"
    return Outcome(number, state, mean, uncertainty, duration_s, folds)


def _figure(value: object) -> float:
    """An objective's value as a figure of merit.

    Raises:
        TypeError: It is not a number.
        ValueError: It is not finite.
    """
    if isinstance(value, bool | str | bytes | type(None)):
        raise TypeError(f"the objective must return a number, not {value!r}")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"the objective returned {number}")
    return number


def serve(block: Block, world: Communicator, parameters: Parameters) -> None:
    """The life of one rank of a block: prepare, then trials until the coordinator has no more."""
    ready = block.prepare(parameters)
    if block.comm.rank == 0:
        world.send(ready, dest=0, tag=TO_COORDINATOR)
        _lead(block, world)
    else:
        _follow(block)


def _lead(block: Block, world: Communicator) -> None:
    members = range(1, block.comm.size)
    renew = False
    while True:
        message, _, _ = communication.receive(world, source=0, tag=TO_BLOCK)
        sent = [block.comm.isend(Order(message, renew), dest=member, tag=TO_MEMBER) for member in members]
        for request in sent:
            request.wait()
        if isinstance(message, Dismissal):
            return
        if renew:
            block.renew()
        outcome = block.run(message)
        renew = outcome.state == "failed" and block.comm.size > 1
        world.send(outcome, dest=0, tag=TO_COORDINATOR)


def _follow(block: Block) -> None:
    while True:
        order, _, _ = communication.receive(block.comm, source=0, tag=TO_MEMBER)
        if isinstance(order.message, Dismissal):
            return
        if order.renew:
            block.renew()
        block.run(order.message)


class WorldReporter:
    """Reports over the world communicator; on rank 0 of each fold group."""

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
