"""How the ranks of a block run the folds of a trial and merge their parts into one outcome."""

from __future__ import annotations

import math
import sys
import time

import pytest
from mpi4py import MPI

from mpi_learn.mpi.messaging import RankLost
from mpi_learn.testing.thread_ranks import ThreadComm, run_ranks
from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.folds.fold_stopping import ReferenceTrial
from mpi_opt.core.objective import TrialSettings
from mpi_opt.core.trial import Outcome, Proposal, State
from mpi_opt.messages.messages import TO_LEADER, Assignment
from mpi_opt.worker.block import Block, merged
from mpi_opt.worker.watchdog import Disbanded, TrialTimeout
from tests.mpi_opt.outcomes import a_fold, one_figure


def fold(index: int, state: State = "complete", **failure: object) -> Outcome:
    figures = one_figure(None if failure else float(index))
    return Outcome(7, state, figures, 1.0, fold=index, **failure)


@pytest.mark.parametrize(("was_stopped", "state"), [((False, False), "complete"), ((False, True), "pruned")])
def test_a_trial_of_which_one_rank_was_stopped_is_pruned(was_stopped, state):
    folds = [fold(index, "pruned" if stopped else "complete") for index, stopped in enumerate(was_stopped)]
    assert merged(folds, 1.0, TrialSettings(0, 2)).state == state


def test_the_error_of_a_trial_is_that_of_the_rank_that_failed_first():
    folds = [
        fold(0),
        fold(1, "failed", error="revoked", is_consequence=True),
        fold(2, "failed", error="ValueError: no"),
    ]
    outcome = merged(folds, 1.0, TrialSettings(0, 3))
    assert (outcome.number, outcome.state, outcome.error) == (7, "failed", "ValueError: no")


def test_an_error_of_mpi_is_the_consequence_of_another_ranks_only_if_it_names_a_lost_rank(thread_comms, monkeypatch):
    """The first rank only waits for the others, and its code wraps the error of the revoked communicator."""
    monkeypatch.setattr("mpi_learn.mpi.messaging.is_protected", lambda: True)
    monkeypatch.setattr("mpi_learn.mpi.messaging.revoke_if_protected", lambda comm: None)

    def wraps() -> None:
        try:
            raise MPI.Exception(MPI.ERR_REVOKED)
        except MPI.Exception as error:
            raise ValueError("cannot add") from error

    def rank(comm) -> Outcome | None:
        def called(trial):
            if comm.rank == trial.number:
                raise MPI.Exception(MPI.ERR_TRUNCATE)
            wraps()

        block = Block(comm, 5, called, TrialSettings(0), reporter=NoReporter(), watchdog=NoWatchdog())
        return [block.run(Assignment(Proposal(number, {}), "", None)) for number in range(2)]

    for number, outcome in enumerate(run_ranks(2, rank, timeout_s=20)[0]):
        assert outcome.error.startswith(f"rank {number} on ")
        assert "MPI_ERR_TRUNCATE" in outcome.error.splitlines()[0]


@pytest.mark.parametrize("failing", [0, 1])
def test_a_measured_training_ends_with_its_last_rank_and_fails_if_one_of_them_does(thread_comms, failing):
    ended = []

    class Measured:
        def measure(self, trial, limit_s):
            if trial.comm.rank == failing:
                raise ValueError("no")
            time.sleep(0.2)
            ended.append(trial.comm.rank)
            return None, {}

    def rank(comm):
        block = Block(comm, 5, Measured(), TrialSettings(0), reporter=NoReporter(), watchdog=NoWatchdog())
        return block.run(Assignment(Proposal(0, {}), measured_s=1.0)), list(ended)

    outcome, ended_before = run_ranks(2, rank, timeout_s=20)[0]
    assert "ValueError: no" in outcome.error
    assert ended_before == [1 - failing]


def test_folds_are_in_order_whichever_part_arrives_first():
    outcome = merged([fold(index) for index in (2, 0, 1)], 1.0, TrialSettings(0, 3))
    assert [one.fold for one in outcome.folds] == [0, 1, 2]
    assert outcome.figure_of_merit == 1.0


@pytest.mark.parametrize("selection", ["mean", "median", "mean+std"])
def test_folds_whose_mean_is_too_large_for_a_number_fail_the_trial(selection):
    largest = sys.float_info.max
    folds = [a_fold(index, largest, 1.0) for index in range(2)]
    settings = TrialSettings(0, 2, figures_of_merit=FiguresOfMerit(selection=selection))
    outcome = merged(folds, 1.0, settings)
    assert (outcome.state, outcome.figure_of_merit) == ("failed", None)
    assert "too large" in outcome.error


class NoWatchdog:
    """Watches nothing."""

    def guard(self, comm, timeout_s, spent_s=0.0) -> None:
        pass

    def stop_guarding(self) -> None:
        pass

    def raise_late(self) -> None:
        pass

    def cause(self, error) -> BaseException:
        return error

    def check(self, block) -> None:
        pass


class NoReporter:
    """Reports nothing and stops no trial."""

    def is_stopped(self, number) -> bool:
        return False

    def abandon(self, block, number, error) -> None:
        pass


@pytest.fixture
def thread_comms(monkeypatch):
    """Lets a `Block` split the communicators of threads."""
    monkeypatch.setattr("mpi_opt.worker.block.communicators.split", lambda comm, color, key: comm.Split(color, key))


@pytest.fixture
def run_trials(thread_comms):
    """Runs trials on a block of threads; returns the leader's outcomes."""

    def run(n_ranks: int, folds: int, n_trials: int, objective) -> list[Outcome]:
        reference = ReferenceTrial(1.0, (1.0,) * folds, scatter=0.01, degrees_of_freedom=100.0)

        def rank(comm) -> list[Outcome | None]:
            def called(trial):
                return objective(trial, comm.rank), None

            block = Block(comm, 0, called, TrialSettings(0, folds), reporter=NoReporter(), watchdog=NoWatchdog())
            return [block.run(Assignment(Proposal(number, {}), "", reference)) for number in range(n_trials)]

        return run_ranks(n_ranks, rank, timeout_s=20)[0]

    return run


def test_a_leader_is_ready_only_when_its_members_have_checked_the_objective(thread_comms):
    """A leader that is ready may be dismissed and end, while a member still waits for messages of the check."""
    done = []

    class LateComm(ThreadComm):
        def allreduce(self, value, op=MPI.SUM):
            found = super().allreduce(value, op)
            time.sleep(0.2 * self.rank)
            done.append(self.rank)
            return found

    class NoObjective:
        notes, choice = (), None

        def prepare(self, comm, parameters) -> None:
            pass

    def rank(comm) -> None:
        block = Block(
            LateComm(comm._shared, comm.rank),
            0,
            NoObjective(),
            TrialSettings(0),
            reporter=NoReporter(),
            watchdog=NoWatchdog(),
        )
        block.prepare()
        done.append(f"{comm.rank} is prepared")

    run_ranks(2, rank, timeout_s=20)
    assert done.index(1) < done.index("0 is prepared")


def test_folds_on_groups_of_ranks_are_not_stopped(run_trials):
    (outcome,) = run_trials(2, 2, 1, lambda trial, rank: 9.0)
    assert outcome.state == "complete"
    assert [one.fold for one in outcome.folds] == [0, 1]


def test_all_ranks_of_a_block_stop_after_the_same_fold_although_one_failed_before(run_trials):
    ran = []

    def objective(trial, rank):
        ran.append((trial.number, rank, trial.fold))
        if trial.number == 0 and rank == 1:
            raise ValueError("no")
        return 1.0 if trial.number == 0 else 9.0

    outcomes = run_trials(2, 4, 2, objective)
    assert [outcome.state for outcome in outcomes] == ["failed", "pruned"]
    assert sorted(one for one in ran if one[0] == 1) == [(1, 0, 0), (1, 1, 0)]


def test_no_member_starts_the_next_fold_if_the_figure_of_merit_is_invalid(thread_comms):
    """Only the leader reads the figure of merit. A member alone in the next fold would wait for it forever."""
    ran = []

    def rank(comm) -> Outcome | None:
        def called(trial):
            ran.append((comm.rank, trial.fold))
            return math.nan, None

        block = Block(comm, 0, called, TrialSettings(0, 3), reporter=NoReporter(), watchdog=NoWatchdog())
        return block.run(Assignment(Proposal(0, {}), "", None))

    outcome = run_ranks(2, rank, timeout_s=20)[0]
    assert outcome.state == "failed"
    assert "nan" in outcome.error
    assert sorted(ran) == [(0, 0), (1, 0)]


def test_a_disbanded_block_starts_no_other_fold_although_the_objective_caught_the_interruption():
    ran = []

    class Watchdog(NoWatchdog):
        def check(self, block) -> None:
            if ran:
                raise Disbanded

    def called(trial):
        ran.append(trial.fold)
        return 1e9, None

    block = Block(MPI.COMM_SELF, 0, called, TrialSettings(0, 3), reporter=NoReporter(), watchdog=Watchdog())
    with pytest.raises(Disbanded):
        block.run(Assignment(Proposal(0, {}), "", None))
    assert ran == [0]


def test_the_value_of_a_stopped_trial_does_not_include_the_fold_that_was_not_trained_to_its_end():
    class Reporter(NoReporter):
        """Stops the trial in its second fold."""

        fold = 0

        def report(self, number, fold, step, value) -> None:
            self.fold = fold

        def is_stopped(self, number) -> bool:
            return self.fold == 1

    def called(trial):
        for step in range(3):
            trial.report(step, 1.0 - 0.1 * step)
            if trial.should_stop():
                break
        return 1.0 - 0.1 * step, None

    block = Block(MPI.COMM_SELF, 0, called, TrialSettings(0, 3), reporter=Reporter(), watchdog=NoWatchdog())
    outcome = block.run(Assignment(Proposal(0, {}), "", None))
    assert (outcome.state, outcome.figure_of_merit) == ("pruned", pytest.approx(0.8))
    assert [one.fold for one in outcome.folds] == [0]


def test_the_time_limit_is_that_of_all_folds_of_a_trial_together():
    spent = []

    class Watchdog(NoWatchdog):
        def guard(self, comm, timeout_s, spent_s=0.0) -> None:
            spent.append((timeout_s, spent_s))

    def called(trial):
        time.sleep(0.05)
        return 1.0, None

    settings = TrialSettings(0, 3, timeout_s=60.0)
    block = Block(MPI.COMM_SELF, 0, called, settings, reporter=NoReporter(), watchdog=Watchdog())
    block.run(Assignment(Proposal(0, {}), "", None))
    assert [limit for limit, _ in spent] == [60.0] * 3
    first, second, third = (seconds for _, seconds in spent)
    assert second - first >= 0.049
    assert third - second >= 0.049


@pytest.mark.parametrize(
    ("code", "name"),
    [(MPI.ERR_TRUNCATE, "MPI_ERR_TRUNCATE"), (MPI.ERR_REVOKED, "MPI_ERR_REVOKED")],
    ids=["any", "revoked"],
)
def test_without_protection_an_error_of_mpi_is_reported_although_others_may_wait(code, name, thread_comms, monkeypatch):
    """Without protection a lost rank ends the job, so that the error cannot be the consequence of a loss."""
    monkeypatch.setattr("mpi_learn.mpi.messaging.is_protected", lambda: False)
    abandoned = []

    class Recorder(NoReporter):
        def abandon(self, block, number, error) -> None:
            abandoned.append((block, number, error))

    def rank(comm) -> Outcome | None:
        def called(trial):
            if comm.rank == 1:
                raise MPI.Exception(code)
            return 1.0, None

        block = Block(comm, 5, called, TrialSettings(0), reporter=Recorder(), watchdog=NoWatchdog())
        return block.run(Assignment(Proposal(7, {}), "", None))

    outcome = run_ranks(2, rank, timeout_s=20)[0]
    assert name in outcome.error
    ((block, number, error),) = abandoned
    assert (block, number) == (5, 7)
    assert name in error


def test_no_rank_waits_for_one_whose_fold_failed_in_another_group(thread_comms):
    """The rank is alone in its group, so that its block must not be given up."""

    class Recorder(NoReporter):
        def abandon(self, block, number, error) -> None:
            raise AssertionError("no rank waits")

    def rank(comm) -> Outcome | None:
        def called(trial):
            if trial.fold == 1:
                raise ValueError("no")
            return 1.0, None

        block = Block(comm, 5, called, TrialSettings(0, 2), reporter=Recorder(), watchdog=NoWatchdog())
        return block.run(Assignment(Proposal(7, {}), "", None))

    assert "ValueError: no" in run_ranks(2, rank, timeout_s=20)[0].error


@pytest.mark.parametrize(("is_timeout", "is_consequence"), [(False, True), (True, False)])
def test_a_trial_that_knows_no_cause_is_a_consequence_and_one_that_takes_too_long_is_none(
    monkeypatch, is_timeout, is_consequence
):
    """The watchdog revokes the communicator before it interrupts a trial that takes too long."""
    monkeypatch.setattr("mpi_learn.mpi.messaging.is_protected", lambda: True)

    class Watchdog(NoWatchdog):
        def cause(self, error: BaseException) -> BaseException:
            if not is_timeout:
                return error
            late = TrialTimeout("too long")
            late.__cause__ = error
            return late

    def revoked(trial):
        raise MPI.Exception(MPI.ERR_REVOKED)

    block = Block(MPI.COMM_SELF, 0, revoked, TrialSettings(0), reporter=NoReporter(), watchdog=Watchdog())
    outcome = block.run(Assignment(Proposal(0, {}), "", None))
    assert (outcome.state, outcome.is_consequence) == ("failed", is_consequence)


def test_the_objective_knows_the_attempt():
    def called(trial):
        return trial.attempt, None

    block = Block(MPI.COMM_SELF, 0, called, TrialSettings(0), reporter=NoReporter(), watchdog=NoWatchdog())
    assert block.run(Assignment(Proposal(0, {}), attempt=3)).figure_of_merit == 3


def test_a_trial_whose_interruption_came_too_late_to_be_raised_has_failed():
    class Watchdog(NoWatchdog):
        def raise_late(self) -> None:
            raise TrialTimeout("too long")

    block = Block(
        MPI.COMM_SELF, 0, lambda trial: (1.0, None), TrialSettings(0), reporter=NoReporter(), watchdog=Watchdog()
    )
    outcome = block.run(Assignment(Proposal(0, {}), "", None))
    assert outcome.state == "failed"
    assert "TrialTimeout: too long" in outcome.error


def test_a_member_of_a_disbanded_block_does_not_wait_until_its_leader_receives_its_part(thread_comms):
    class Deserted(ThreadComm):
        def isend(self, value, dest, tag=0):
            return MPI.COMM_SELF.issend(value, dest=0, tag=tag)

    class Watchdog(NoWatchdog):
        has_run = False

        def check(self, block) -> None:
            if self.has_run:
                raise Disbanded

        def stop_guarding(self) -> None:
            self.has_run = True

    def rank(comm) -> None:
        comm = Deserted(comm._shared, comm.rank)
        settings = TrialSettings(0)
        block = Block(comm, 0, lambda trial: (1.0, None), settings, reporter=NoReporter(), watchdog=Watchdog())
        if comm.rank == 1:
            with pytest.raises(Disbanded):
                block.run(Assignment(Proposal(0, {}), "", None))

    run_ranks(2, rank, timeout_s=20)
    assert [fold.number for fold in MPI.COMM_SELF.recv(source=0, tag=TO_LEADER)] == [0]


def test_the_error_of_an_interrupted_trial_is_the_interruption_and_not_its_consequence():
    class Watchdog(NoWatchdog):
        def cause(self, error) -> BaseException:
            return TimeoutError("too long") if isinstance(error, RankLost) else error

    def called(trial):
        raise RankLost("revoked")

    block = Block(MPI.COMM_SELF, 0, called, TrialSettings(0), reporter=NoReporter(), watchdog=Watchdog())
    outcome = block.run(Assignment(Proposal(0, {}), "", None))
    assert outcome.state == "failed"
    assert "TimeoutError: too long" in outcome.error
