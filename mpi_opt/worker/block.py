"""A block of ranks: runs trials and merges the parts of its ranks into one outcome.

Every rank of a block holds a `Block`. Its rank 0 is the leader, which communicates with the coordinator; the others are
members. An exception of user code becomes part of an `Outcome`, and the block continues with its next trial.
"""

from __future__ import annotations

import math
import os
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter

from mpi_learn.mpi import communicators, messaging, process_end
from mpi_learn.mpi.communicators import Communicator
from mpi_opt.core.block_layout import fold_groups, folds_of_group
from mpi_opt.core.figures import Figures, Measured
from mpi_opt.core.folds.fold_stopping import ReferenceTrial
from mpi_opt.core.objective import Objective, TrialSettings
from mpi_opt.core.trial import Outcome, Reporter, Trial
from mpi_opt.errors import MPILearnError
from mpi_opt.messages.messages import HAS_LEFT, NEXT_FOLD, TO_LEADER, Assignment, NextFold, Ready
from mpi_opt.worker.watchdog import TrialTimeout, Watchdog


class Block:
    """One rank's part of the block with the index `index`. The ranks of the block are those of `comm`.

    Attributes:
        check: Called repeatedly while ranks of the block wait for one another; raises `Disbanded`.
    """

    def __init__(
        self,
        comm: Communicator,
        index: int,
        objective: Objective,
        settings: TrialSettings,
        *,
        reporter: Reporter,
        watchdog: Watchdog,
    ) -> None:
        self.comm, self.index, self.objective = comm, index, objective
        self.settings, self.reporter, self.watchdog = settings, reporter, watchdog
        self.check = partial(watchdog.check, index)
        self.groups = fold_groups(comm.size, settings.n_folds)
        self.group = next(i for i, ranks in enumerate(self.groups) if comm.rank in ranks)
        self.fold_comm = self._split()

    def prepare(self) -> Ready:
        """Prepares the objective; an error becomes part of the message. Collective over the block."""
        error = None
        try:
            with communicators.agreed_errors(self.comm):
                self.objective.prepare(self.comm, self.settings.example_parameters)
        except MPILearnError as mine:
            error = mine
        # the last collective call: a leader that is ready may be dismissed and end at any time
        hosts = self.comm.gather(communicators.host_name(), root=0) or []
        return Ready(self.index, ",".join(dict.fromkeys(hosts)), error, self.objective.notes, self.objective.choice)

    def run(self, assignment: Assignment) -> Outcome | None:
        """Runs one trial; returns its outcome on the leader, None on the members. Collective over the block."""
        if assignment.renew:
            self._renew()
        if assignment.measured_s is not None:
            return self._measure(assignment, assignment.measured_s)
        if assignment.choice is not None:
            self.objective.choose(assignment.choice)
        began_s = time.perf_counter()  # what the ranks share is a cost of a change of their number
        # the ranks of a fold may have been those of another one before, or may be all that the next attempt has
        if self.settings.n_folds > 1 and (self.settings.is_elastic or assignment.before_s > 0):
            self.objective.share(self.comm, assignment.study, assignment.number)
        folds = self._collected(self._run_folds(assignment, began_s))
        if self.settings.is_elastic and len(self.groups) > 1 and self._has_left(folds):
            # now, because it may continue on ranks of some folds only
            self.objective.share(self.comm, assignment.study, assignment.number)
        if self.comm.rank != 0:
            return None
        duration_s = time.perf_counter() - began_s + assignment.before_s
        return merged(folds, duration_s, self.settings, assignment.reference)

    def _collected(self, folds: list[Outcome]) -> list[Outcome]:
        """The outcomes of all ranks on the leader, its own first, once all ranks have ended their parts."""
        if self.comm.rank != 0:
            messaging.send(self.comm, folds, dest=0, tag=TO_LEADER, meanwhile=self.check)
            return folds
        for _ in range(1, self.comm.size):
            others, _, _ = messaging.receive(self.comm, tag=TO_LEADER, meanwhile=self.check)
            folds += others
        return folds

    def _has_left(self, folds: list[Outcome]) -> bool:
        """Whether the trial continues on another number of ranks, as the leader knows from all folds. Collective."""
        if self.comm.rank > 0:
            return bool(messaging.receive(self.comm, source=0, tag=HAS_LEFT, meanwhile=self.check)[0])
        has_left = "queued" in (states := {one.state for one in folds}) and "failed" not in states
        for member in range(1, self.comm.size):
            self.comm.send(has_left, dest=member, tag=HAS_LEFT)
        return has_left

    def _measure(self, assignment: Assignment, limit_s: float) -> Outcome | None:
        """Measures the training of the first fold on all ranks; returns the times on the leader. Collective."""
        comm = self.comm if self.comm.size == 1 else communicators.split(self.comm, 0, self.comm.rank)
        folds = self.settings.n_folds
        trial = Trial(assignment.proposal, comm=comm, study_seed=self.settings.seed, folds=folds)
        # a leader that has failed must not begin another training while members wait for it in a collective
        outcomes = self._collected([self._run_fold(trial, time.perf_counter(), limit_s)])
        if self.comm.rank != 0:
            return None
        return min(outcomes, key=lambda one: (one.state != "failed", one.is_consequence))  # of any rank that failed

    def _renew(self) -> None:
        """Replaces the fold communicator after a trial that may have left it unusable. Collective over the block.

        The old communicator is not freed, because its context would be reused. MPICH would deliver unreceived messages
        of the failed trial to the next communicator, and Open MPI crashes if the notice of a revoked communicator
        arrives late. An unfreed communicator takes about 8 KB. Open MPI provides 65,000 communicators and MPICH 2,000;
        after that number the ranks of this block can run no more trials.
        """
        if len(self.groups) < self.comm.size:  # groups of one rank have no unreceived messages
            self.fold_comm = self._split()

    def _split(self) -> Communicator:
        return self.comm if self.comm.size == 1 else communicators.split(self.comm, self.group, self.comm.rank)

    def _run_folds(self, assignment: Assignment, began_s: float) -> list[Outcome]:
        """The outcomes of the folds of this rank's group; only the first rank of the group has figures of merit."""
        folds, trial_started_s = list[Outcome](), began_s - assignment.before_s
        for fold in folds_of_group(self.group, len(self.groups), self.settings.n_folds):
            self.check()  # user code may have caught the exception that the disbanding of the block raised in it
            trial = Trial(
                assignment.proposal,
                comm=self.fold_comm,
                study_seed=self.settings.seed if assignment.seed is None else assignment.seed,
                fold=fold,
                folds=self.settings.n_folds,
                reporter=self.reporter,
                study=assignment.study,
                attempt=assignment.attempt,
                is_parallel=len(self.groups) > 1,
                began_s=began_s,
            )
            outcome = self._run_fold(trial, trial_started_s)
            if outcome.state == "pruned" and folds:  # not comparable with the folds that are complete
                outcome.figures_of_merit = Figures()
            folds.append(outcome)
            if not self._continues(trial, folds, assignment.reference):
                break
        return folds

    def _continues(self, trial: Trial, folds: list[Outcome], reference: ReferenceTrial | None) -> bool:
        """Whether the next fold runs. The leader decides and sends its decision to the members.

        Only the leader has the figure of merit, which may be invalid. The leader always sends its decision. A member
        whose own fold failed or was stopped ends its part without waiting for it.
        """
        may_continue = folds[-1].state == "complete"
        if len(self.groups) > 1 or trial.fold == self.settings.n_folds - 1:
            return may_continue
        if self.comm.rank > 0:
            return may_continue and self._await_decision(trial)
        if may_continue and reference is not None:
            may_continue = not reference.is_clearly_worse(_main_figures(folds))
        for member in range(1, self.comm.size):
            self.comm.send(NextFold(trial.number, trial.fold, may_continue), dest=member, tag=NEXT_FOLD)
        return may_continue

    def _await_decision(self, trial: Trial) -> bool:
        while True:
            decision: NextFold = messaging.receive(self.comm, source=0, tag=NEXT_FOLD, meanwhile=self.check)[0]
            if (decision.number, decision.fold) == (trial.number, trial.fold):
                return decision.runs  # other decisions concern folds that have failed on this rank

    def _run_fold(self, trial: Trial, trial_started_s: float, measured_s: float | None = None) -> Outcome:
        run = self.objective if measured_s is None else partial(self.objective.measure, limit_s=measured_s)
        outcome, has_returned = Outcome(trial.number, "complete", fold=trial.fold), False
        started_s = time.perf_counter()
        try:
            try:
                self.watchdog.guard(trial.comm, self.settings.timeout_s, started_s - trial_started_s)
                with ending_forked_children():
                    value, history = run(trial)
            finally:
                self.watchdog.stop_guarding()
            self.watchdog.raise_late()
            has_returned = True
            if trial.comm.rank == 0 and measured_s is None and not trial.has_left:
                outcome.figures_of_merit = self.settings.figures_of_merit.read(value)
        except BaseException as raised:  # noqa: BLE001 - any exception of user code is the outcome of the trial
            self.watchdog.stop_guarding()  # again: an interruption may have been raised in the `finally` clause
            error = self.watchdog.cause(raised)
            failure = communicators.as_training_error(error, self.comm.rank)
            if has_returned and error is raised:  # the return value is wrong: no line of the user raised the error
                failure.traceback = ""
            outcome.state, outcome.error, outcome.host_fault = "failed", str(failure), failure.host_fault
            # without protection the loss of a rank ends the job, and an error of MPI is that of user code
            outcome.is_consequence = messaging.is_protected() and messaging.is_consequence(error)
            outcome.is_consequence &= not isinstance(error, TrialTimeout)  # which has revoked the communicator itself
            messaging.revoke_if_protected(trial.comm)  # frees the ranks of this fold that wait for this one
            if trial.comm.size > 1 and not outcome.is_consequence:  # without protection, nothing frees them
                self.reporter.abandon(self.index, trial.number, outcome.error)
            return outcome
        # a single fold is the whole trial, with the time before it continued on these ranks
        outcome.duration_s = time.perf_counter() - (started_s if trial.folds > 1 else trial_started_s)
        if trial.has_left:
            outcome.state = "queued"
        elif trial.was_stopped:
            outcome.state = "pruned"
        if history:  # of a training, which reports one of its metrics
            outcome.history = history
        else:
            outcome.reported = trial.reported
        return outcome


def merged(
    outcomes: list[Outcome], duration_s: float, settings: TrialSettings, reference: ReferenceTrial | None = None
) -> Outcome:
    """The outcome of a trial, from those of its folds on all ranks. Its figures of merit aggregate those of the folds.

    If not all folds have run because the trial was clearly worse than the `reference`, its figure of merit is the
    expected one of all folds.
    """
    folds = sorted(filter(attrgetter("figures_of_merit"), outcomes), key=attrgetter("fold"))
    outcome = Outcome(outcomes[0].number, "complete", duration_s=duration_s, folds=folds)
    # a cause comes before its consequences on other ranks: only the first error is reported
    if failed := sorted(filter(attrgetter("error"), outcomes), key=attrgetter("is_consequence")):
        outcome.state, outcome.error, outcome.host_fault = "failed", failed[0].error, failed[0].host_fault
        outcome.is_consequence = failed[0].is_consequence  # no rank of the block knows a cause
        return outcome
    # also if some folds were stopped when the others left: the next attempt stops at its first report
    if any(one.state == "queued" for one in outcomes):
        return Outcome(outcome.number, "queued", duration_s=duration_s)
    if any(one.state == "pruned" for one in outcomes):
        outcome.state = "pruned"
    elif reference is not None and len(folds) < settings.n_folds:
        (name,), values = folds[0].figures_of_merit, _main_figures(folds)
        expected = Measured(reference.expected(values), reference.uncertainty(values))
        outcome.state, outcome.figures_of_merit = "pruned", Figures({name: expected})
        return outcome
    figures = settings.figures_of_merit.aggregate_folds(folds)
    if all(map(math.isfinite, figures.values())):
        outcome.figures_of_merit = figures
    else:
        shown = ", ".join(f"{value:g}" for value in _main_figures(folds))
        outcome.state = "failed"
        outcome.error = f"the figures of merit of the folds are too large to aggregate: {shown}"
    return outcome


def _main_figures(folds: list[Outcome]) -> list[float]:
    return [figure for fold in folds if (figure := fold.figures_of_merit.main) is not None]


@contextmanager
def ending_forked_children() -> Iterator[None]:
    """Ends child processes that user code has forked, at the end of the ``with`` statement.

    Only this process continues the search.
    """
    process = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != process:
            error = sys.exc_info()[1]
            status = int(error is not None)
            if isinstance(error, SystemExit) and isinstance(error.code, int | None):
                status = error.code or 0
            elif error is not None:
                traceback.print_exception(error)
            process_end.flush()
            os._exit(status)
