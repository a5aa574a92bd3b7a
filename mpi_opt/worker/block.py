"""A block of ranks: runs trials and merges the parts of its ranks into one outcome.

Every rank of a block holds a `Block`. Its rank 0 is the leader, which communicates with the coordinator; the others are
members. An exception of user code becomes part of an `Outcome`, and the block continues with its next trial.
"""

from __future__ import annotations

import math
import time
from functools import partial
from operator import attrgetter

from mpi_learn.mpi import agreement, communicators, lost_ranks, messaging
from mpi_learn.mpi.communicators import Communicator
from mpi_opt.core.block_layout import fold_groups, folds_of_group
from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.folds.fold_stopping import ReferenceTrial
from mpi_opt.core.objective import Objective, TrialSettings
from mpi_opt.core.trial import FoldOutcome, Outcome, Reporter, State, Trial
from mpi_opt.errors import MPILearnError
from mpi_opt.messages.messages import NEXT_FOLD, TO_LEADER, Assignment, NextFold, PartOutcome, Ready
from mpi_opt.worker.forked_children import ending_forked_children
from mpi_opt.worker.watchdog import Watchdog


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
            with agreement.agreed_errors(self.comm):
                self.objective.prepare(self.comm, self.settings.example_parameters)
        except MPILearnError as mine:
            error = mine
        # the last collective call: a leader that is ready may be dismissed and end at any time
        hosts = self.comm.gather(communicators.host_name(), root=0) or []
        return Ready(self.index, ",".join(dict.fromkeys(hosts)), error)

    def run(self, assignment: Assignment) -> Outcome | None:
        """Runs one trial; returns its outcome on the leader, None on the members. Collective over the block."""
        started = time.perf_counter()
        part = self._run_part(assignment)
        if self.comm.rank != 0:
            messaging.send(self.comm, part, dest=0, tag=TO_LEADER, meanwhile=self.check)
            return None
        parts = [part]
        while len(parts) < self.comm.size:
            other, _, _ = messaging.receive(self.comm, tag=TO_LEADER, meanwhile=self.check)
            parts.append(other)
        return merged(parts, time.perf_counter() - started, self.settings.figures_of_merit, assignment.reference)

    def renew(self) -> None:
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

    def _run_part(self, assignment: Assignment) -> PartOutcome:
        part, started = PartOutcome(assignment.number), time.perf_counter()
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
            )
            if not self._continues(self._run_fold(trial, part, started), trial, part, assignment.reference):
                break
        return part

    def _continues(self, may_continue: bool, trial: Trial, part: PartOutcome, reference: ReferenceTrial | None) -> bool:
        """Whether the next fold runs. The leader decides and sends its decision to the members.

        Only the leader has the figure of merit, which may be invalid. The leader always sends its decision. A member
        whose own fold failed or was stopped ends its part without waiting for it.
        """
        if len(self.groups) > 1 or trial.fold == self.settings.n_folds - 1:
            return may_continue
        if self.comm.rank > 0:
            return may_continue and self._await_decision(trial)
        if may_continue and reference is not None:
            part.is_clearly_worse = reference.is_clearly_worse(_figures_of_merit(part.folds))
        continues = may_continue and not part.is_clearly_worse
        for member in range(1, self.comm.size):
            self.comm.send(NextFold(trial.number, trial.fold, continues), dest=member, tag=NEXT_FOLD)
        return continues

    def _await_decision(self, trial: Trial) -> bool:
        while True:
            decision: NextFold = messaging.receive(self.comm, source=0, tag=NEXT_FOLD, meanwhile=self.check)[0]
            if (decision.number, decision.fold) == (trial.number, trial.fold):
                return decision.runs  # other decisions concern folds that have failed on this rank

    def _run_fold(self, trial: Trial, part: PartOutcome, trial_started: float) -> bool:
        """Runs one fold and adds it to `part`; returns whether the next fold may run."""
        started, has_returned = time.perf_counter(), False
        try:
            try:
                self.watchdog.guard(trial.comm, self.settings.timeout_s, started - trial_started)
                with ending_forked_children():
                    value, history = self.objective(trial)
            finally:
                self.watchdog.stop_guarding()
            self.watchdog.raise_late()
            has_returned = True
            figures = self.settings.figures_of_merit.read(value) if trial.comm.rank == 0 else ()
        except BaseException as raised:  # noqa: BLE001 - any exception of user code is the outcome of the trial
            self.watchdog.stop_guarding()  # again: an interruption may have been raised in the `finally` clause
            error = self.watchdog.cause(raised)
            failure = agreement.as_training_error(error, self.comm.rank)
            if has_returned and error is raised:  # the return value is wrong: no line of the user raised the error
                failure.traceback = ""
            part.error, part.host_fault = str(failure), failure.host_fault
            # without protection the loss of a rank ends the job, and an error of MPI is that of user code
            part.is_consequence = lost_ranks.is_protected() and lost_ranks.is_consequence(error)
            lost_ranks.release(trial.comm)
            if trial.comm.size > 1 and not part.is_consequence:
                self.reporter.abandon(self.index, trial.number, part.error)
            return False
        part.was_stopped = trial.was_stopped
        is_partial = trial.was_stopped and part.folds  # not comparable with the folds that are complete
        if trial.comm.rank == 0 and not is_partial:
            reported = {} if history else trial.reported  # a training reports a metric of its history
            duration_s, by_name = time.perf_counter() - started, self.settings.figures_of_merit.by_name(figures)
            part.folds.append(FoldOutcome(trial.fold, figures[0], duration_s, history or {}, by_name, reported))
        return not trial.was_stopped


def merged(
    parts: list[PartOutcome],
    duration_s: float,
    figures_of_merit: FiguresOfMerit,
    reference: ReferenceTrial | None = None,
) -> Outcome:
    """The outcome of a trial, from the parts of its ranks. Its figure of merit aggregates those of the folds.

    If the trial was clearly worse than the `reference` after some of its folds, its figure of merit is the expected one
    of all folds.
    """
    number, folds = parts[0].number, sorted((fold for part in parts for fold in part.folds), key=attrgetter("fold"))
    errors = sorted(filter(attrgetter("error"), parts), key=attrgetter("is_consequence"))
    if errors:
        return Outcome(
            number, "failed", duration_s=duration_s, folds=folds, error=errors[0].error, host_fault=errors[0].host_fault
        )
    if reference is not None and any(part.is_clearly_worse for part in parts):
        values = _figures_of_merit(folds)
        expected, uncertainty = reference.expected(values), reference.uncertainty(values)
        return figures_of_merit.outcome(number, "pruned", (expected,), (uncertainty,), duration_s, folds)
    state: State = "pruned" if any(part.was_stopped for part in parts) else "complete"
    figures, uncertainties = figures_of_merit.aggregate_folds(folds)
    if not all(map(math.isfinite, figures)):
        shown = ", ".join(f"{value:g}" for value in _figures_of_merit(folds))
        error = f"the figures of merit of the folds are too large to aggregate: {shown}"
        return Outcome(number, "failed", duration_s=duration_s, folds=folds, error=error)
    return figures_of_merit.outcome(number, state, figures, uncertainties, duration_s, folds)


def _figures_of_merit(folds: list[FoldOutcome]) -> list[float]:
    return [fold.figure_of_merit for fold in folds]
