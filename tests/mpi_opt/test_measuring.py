"""Short trainings are measured on blocks of one size after another, before or without a search."""

from __future__ import annotations

import itertools
import time
from dataclasses import asdict

import pytest

from mpi_learn.training.timing.times import TrainingTimes
from mpi_opt.coordinator.blocks.block_membership import BlockMembership
from mpi_opt.coordinator.blocks.block_pool import BlockPool
from mpi_opt.coordinator.blocks.faults import SilentRanks
from mpi_opt.coordinator.measuring import Measuring, MeasuringFailed, measured_sizes
from mpi_opt.core.block_layout import BlockLayout
from mpi_opt.core.trial import TRIALS_PER_STUDY, Outcome
from mpi_opt.messages.messages import Abandoned, Alive, Assignment, EndProcess, Join, LeftBlock, Lost
from tests.mpi_opt.fakes import ScriptedLink

POINTS = [{"x": 0}, {"x": 1}]


class MeasuredLink(ScriptedLink):
    """Blocks whose trainings take 12 s divided by the ranks of the block; those with a point in `failing` fail."""

    def __init__(self, failing=()) -> None:
        super().__init__(self.measured)
        self.failing, self.ranks, self.sizes = failing, {}, []
        self.busy: dict[int, int] = {}

    def send(self, rank, message) -> None:
        if isinstance(message, Join):
            self.ranks[rank] = message.ranks
        if isinstance(message, Assignment):
            self.busy[message.number] = rank
        super().send(rank, message)

    def measured(self, assignment: Assignment) -> Outcome:
        n = len(self.ranks[self.busy[assignment.number]])
        self.sizes.append(n)
        if (n, assignment.proposal.parameters["x"]) in self.failing:
            return Outcome(assignment.number, "failed", error="ValueError: too large\nmore")
        times = TrainingTimes(1, 12 / n, 0, 0, 0, 0, 2, 10, 100)
        return Outcome(assignment.number, "complete", history={k: [v] for k, v in asdict(times).items()})


def measuring(link, n_ranks=6, spares=0, unit=1) -> Measuring:
    membership = BlockMembership.of(BlockLayout(n_ranks, unit, unit=unit), itertools.count())
    return Measuring(BlockPool(link, membership), POINTS, n_ranks, spares, unit, print, lambda: False)


def test_all_blocks_of_a_size_train_at_once_and_the_ranks_then_form_wider_ones():
    link = MeasuredLink()
    measured = measuring(link)
    for size in measured_sizes(5, 1):
        measured.measure(size)
    # a first training on each block of one rank is not counted; then two points on 5, 2, 1 and 1 blocks
    assert link.sizes == [1] * 15 + [2] * 4 + [4] * 2 + [5] * 2
    (curve, _) = measured.curves()
    assert {n: times.compute_s for n, times in curve.measured.items()} == {1: 12, 2: 6, 4: 3, 5: 12 / 5}


def test_spare_ranks_are_not_measured_and_remain():
    measured = measuring(MeasuredLink(), n_ranks=6, spares=1)
    measured.measure(1)
    measured.measure(2)
    membership = measured.pool.membership
    assert sorted(membership.blocks.values()) == [(1, 2), (3, 4)]
    assert membership.spare == {5}


def test_the_trainings_have_numbers_that_no_trial_has():
    link = MeasuredLink()
    measuring(link).measure(1)
    assert min(link.busy) >= TRIALS_PER_STUDY


def test_a_size_on_which_a_point_fails_is_left_out():
    measured = measuring(MeasuredLink(failing={(2, 1), (4, 0)}))
    for size in (1, 2, 4):
        measured.measure(size)
    assert [curve.n for curve in measured.curves()] == [[1], [1]]
    assert measured.failures == ["ValueError: too large"] * 3


def test_a_point_that_fails_on_all_sizes_is_left_out():
    measured = measuring(MeasuredLink(failing={(1, 1), (2, 1)}))
    for size in (1, 2):
        measured.measure(size)
    (curve,) = measured.curves()
    assert curve.n == [1, 2]


def test_points_without_a_common_size_or_without_any_cannot_be_compared():
    measured = measuring(MeasuredLink(failing={(1, 1), (2, 0)}))
    with pytest.raises(MeasuringFailed, match="no training has ended"):
        measured.curves()
    for size in (1, 2):
        measured.measure(size)
    with pytest.raises(MeasuringFailed, match=r"no number of ranks on which all .* ValueError: too large"):
        measured.curves()


def test_the_last_reason_for_missing_times_is_said_if_there_is_one():
    said, measured = [], measuring(MeasuredLink(failing={(2, 1)}))
    measured.note = said.append
    measured.measure(1)
    measured.note_failures()
    assert said == []
    measured.measure(2)
    measured.note_failures()
    assert said == ["note: some trainings could not be measured: ValueError: too large"]


def test_a_size_on_which_every_training_fails_is_left_out():
    measured = measuring(MeasuredLink(failing={(2, 0), (2, 1)}))
    for size in (1, 2, 4):
        measured.measure(size)
    assert measured.curves()[0].n == [1, 4]


def test_a_lost_rank_ends_the_measurement_and_its_block():
    link = MeasuredLink()
    measured = measuring(link)
    measured.measure(1)
    link.waiting.append((0, Lost(frozenset({2}))))
    with pytest.raises(MeasuringFailed, match="1 rank lost"):
        measured.measure(2)
    assert all(2 not in ranks for ranks in measured.pool.membership.blocks.values())


class StrandedLink(MeasuredLink):
    """The first block of two ranks never ends its training: its second rank sends `messages`."""

    def __init__(self, messages) -> None:
        super().__init__()
        self.messages, self.hangs = messages, None

    def send(self, rank, message) -> None:
        super().send(rank, message)
        if self.hangs is None and isinstance(message, Assignment) and len(self.ranks[rank]) == 2:
            self.hangs = self.assigned.pop(message.number)
            block = self.joined[-2]
            self.waiting += [(rank + 1, one) for one in self.messages(block, message.number)]


def test_a_block_of_which_a_rank_has_failed_is_given_up_if_its_training_does_not_end(monkeypatch):
    monkeypatch.setattr("mpi_opt.coordinator.measuring.STRANDED_S", 0.05)
    measured = measuring(StrandedLink(lambda block, number: [Abandoned(block, number, "ValueError: no\nmore")]))
    measured.measure(1)
    with pytest.raises(
        MeasuringFailed, match=r"a block does not answer after a rank of it has failed: ValueError: no$"
    ):
        measured.measure(2)
    assert (1, 2) not in measured.pool.membership.blocks.values()


def test_a_training_that_ends_although_a_rank_has_failed_ends_no_measurement(monkeypatch):
    monkeypatch.setattr("mpi_opt.coordinator.measuring.STRANDED_S", 0.02)
    measured = measuring(link := MeasuredLink(), n_ranks=3)
    measured.measure(1)

    def send(rank, message, send=link.send):
        send(rank, message)
        if isinstance(message, Assignment):
            failed = Abandoned(link.joined[-1], message.number, "the rank has failed")
            link.waiting += [(rank + 1, failed), (rank, link.measured(message)), (rank + 1, failed)]
            del link.assigned[message.number]
            time.sleep(0.04)

    link.send = send
    measured.measure(2)
    assert measured.times[0][2].compute_s == 6


def test_a_rank_that_gives_no_sign_of_life_ends_the_measurement_and_is_asked_to_end():
    measured = measuring(link := StrandedLink(lambda block, number: [Alive()]))
    measured.silent = SilentRanks(0.05)
    measured.measure(1)
    with pytest.raises(MeasuringFailed, match="1 rank gave no sign of life"):
        measured.measure(2)
    assert (2, "EndProcess") in link.called
    assert 2 in measured.pool.membership.lost


def test_a_rank_that_does_not_leave_its_block_for_a_wider_one_ends_the_measurement():
    measured = measuring(link := MeasuredLink())
    link.leave_s = 0.05
    measured.measure(1)

    def call(rank, message):
        if rank != 2 or isinstance(message, EndProcess):
            link.called.append((rank, type(message).__name__))
            link.waiting += [] if isinstance(message, EndProcess) else [(rank, LeftBlock(message.block))]

    link.call_watchdog = call
    with pytest.raises(MeasuringFailed, match="1 rank did not leave the block"):
        measured.measure(2)
    assert (2, "EndProcess") in link.called


def test_sizes_are_powers_of_two_and_all_ranks():
    assert measured_sizes(5, 1) == [1, 2, 4, 5]
    assert measured_sizes(1, 1) == [1]
    assert measured_sizes(5, 2) == [2, 4]
