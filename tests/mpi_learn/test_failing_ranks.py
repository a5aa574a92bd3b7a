"""A rank that raises, anywhere in an epoch, ends the training on all ranks with the same error."""

from __future__ import annotations

import gc
import time
import weakref
from threading import get_ident

import numpy as np
import pytest

from mpi_learn.algorithms import cluster_exchange
from mpi_learn.compression.encodings import ENCODINGS
from mpi_learn.compression.error_feedback import KnownWeights
from mpi_learn.data.samples.batches import Dealer
from mpi_learn.errors import TrainingError
from mpi_learn.mpi import messaging
from mpi_learn.mpi.communicators import agreed_errors, result_of_rank
from mpi_learn.testing.algorithm_tests import Rank
from mpi_learn.testing.thread_ranks import run_ranks
from tests.mpi_learn.shared_memory import shared_memory
from tests.mpi_learn.test_algorithm_conformance import ALGORITHMS

N_STEPS = 4

N_MASTERS = {
    name: options.get("masters", 1)
    for name, options in ALGORITHMS.items()
    if options["name"] not in ("allreduce", "clusters")
}
"""The first ranks of these algorithms are masters."""


def error_of_each(options, failing, place, n_ranks=6, n_hosts=None):
    """Runs an epoch that ends well, and one in which rank `failing` raises; returns what each rank raises.

    A worker raises before step `place`; a master, for which `place` is None, when it handles its first message.
    """

    def run(comm):
        rank = Rank(comm, options, N_STEPS)
        centre = getattr(rank.algorithm, "centre", None)

        def failing_steps():
            for number, step in enumerate(rank.steps(N_STEPS)):
                if number == place:
                    raise RuntimeError("boom")
                yield step
            if place == N_STEPS:
                raise RuntimeError("boom")

        try:
            rank.epoch(N_STEPS if rank.worker is not None else 0)
            with agreed_errors(comm):
                if comm.rank != failing:
                    rank.algorithm.run(rank.steps(N_STEPS if rank.worker is not None else 0))
                elif rank.worker is not None:
                    assert place is not None
                    rank.algorithm.run(failing_steps())
                else:
                    assert place is None
                    centre.absorb = boom
                    rank.algorithm.run(())
            return "no error"
        except TrainingError as error:
            return f"{error.rank}: {error.reason}"
        finally:
            rank.algorithm.close()
            comms.append(comm)

    comms = []
    with shared_memory(n_ranks, n_hosts):
        seen = run_ranks(n_ranks, run)
    assert comms[0].unreceived() == [], "MPICH delivers these to the next communicator"
    return seen


def boom(*arguments):
    raise RuntimeError("boom")


@pytest.mark.parametrize(("name", "failing"), [(name, rank) for name, n in N_MASTERS.items() for rank in range(n)])
def test_a_master_that_raises_ends_the_training_on_all(name, failing):
    """While the worker whose message it handles waits for an answer."""
    assert error_of_each(ALGORITHMS[name], failing, None) == [f"{failing}: RuntimeError: boom"] * 6


@pytest.mark.parametrize("name", ["downpour", "gem", "quorum of half", "easgd tree"])
def test_a_rank_that_raises_ends_a_training_with_shared_memory(name):
    for failing, place in ((0, None), (5, 2)):
        seen = error_of_each(ALGORITHMS[name], failing, place, n_hosts=1)
        assert seen == [f"{failing}: RuntimeError: boom"] * 6


INT8 = {"compression": "int8"}
CLUSTERS = {"name": "clusters", "size": 2, "exchange_every": 1}
STEPS_OF_COMPRESSION = {
    "worker encodes": ({"name": "downpour"} | INT8, 5, (type(ENCODINGS["int8"]), "encode")),
    "master encodes": ({"name": "gem"} | INT8, 0, (type(ENCODINGS["int8"]), "encode")),
    "master encodes in a round": ({"name": "downpour", "synchronous": True} | INT8, 0, (KnownWeights, "encode")),
    "lower master encodes": ({"name": "easgd", "masters": 3} | INT8, 2, (type(ENCODINGS["int8"]), "encode")),
    "master copies weights": ({"name": "gem"} | INT8, 0, (KnownWeights, "__init__")),
    "lower master copies weights": ({"name": "easgd", "masters": 3} | INT8, 2, (KnownWeights, "__init__")),
    "cluster copies weights": (CLUSTERS | INT8, 2, (cluster_exchange.Acquaintance, "__init__")),
    "cluster encodes": (CLUSTERS | INT8, 2, (type(ENCODINGS["int8"]), "encode")),
}


@pytest.mark.parametrize("in_first_epoch", [True, False])
@pytest.mark.parametrize(("options", "failing", "step"), STEPS_OF_COMPRESSION.values(), ids=STEPS_OF_COMPRESSION)
def test_a_rank_that_raises_in_its_compression_ends_the_training(options, failing, step, in_first_epoch, monkeypatch):
    failing_threads, original = set(), getattr(*step)
    monkeypatch.setattr(*step, lambda *arguments: boom() if get_ident() in failing_threads else original(*arguments))

    def run(comm):
        rank = Rank(comm, options, N_STEPS)
        n_steps = N_STEPS if rank.worker is not None else 0
        if not in_first_epoch:
            rank.epoch(n_steps)
        try:
            with agreed_errors(comm):
                if comm.rank == failing:
                    failing_threads.add(get_ident())
                rank.algorithm.run(rank.steps(n_steps))
        except TrainingError as error:
            return f"{error.rank}: {error.reason}"
        finally:
            failing_threads.discard(get_ident())
            rank.algorithm.close()
            comms.append(comm)

    comms = []
    assert run_ranks(6, run) == [f"{failing}: RuntimeError: boom"] * 6
    assert comms[0].unreceived() == []


def test_a_worker_whose_optimizer_raises_after_an_exchange_blocks_no_other_rank():
    def run(comm):
        rank = Rank(comm, {"name": "downpour", "processes": 2, "sync_every": 2}, N_STEPS)
        if comm.rank == 1:  # the leader of a group, which updates between two exchanges with the master
            rank.algorithm.worker.optimizer.update = boom
        try:
            with agreed_errors(comm):
                rank.algorithm.run(rank.steps(N_STEPS if rank.worker is not None else 0))
        except TrainingError as error:
            return f"{error.rank}: {error.reason}"
        return "no error"

    assert run_ranks(5, run) == ["1: RuntimeError: boom"] * 5


@pytest.mark.parametrize("name", ["downpour in groups", "easgd in groups", "gem in groups"])
def test_a_leader_that_raises_before_its_first_step_blocks_no_other_rank(name):
    """The other ranks of its group wait for its weights, and not in a step."""

    def run(comm):
        rank = Rank(comm, ALGORITHMS[name], N_STEPS)
        if comm.rank == 1:
            rank.algorithm.worker.begin_epoch = boom
        with pytest.raises(TrainingError) as caught, agreed_errors(comm):
            rank.algorithm.run(rank.steps(N_STEPS if rank.worker is not None else 0))
        return f"{caught.value.rank}: {caught.value.reason}"

    assert run_ranks(5, run) == ["1: RuntimeError: boom"] * 5


@pytest.mark.parametrize(
    ("name", "failing"),
    [("two clusters", 4), ("clusters in pairs", 0), ("easgd in groups", 3), ("downpour in groups", 0)],
)
def test_optimizer_that_one_rank_cannot_make_leaves_no_communicator_behind(name, failing):
    def run(comm):
        comms.append(comm)
        with pytest.raises(TrainingError, match="boom") as caught, agreed_errors(comm):
            Rank(comm, ALGORITHMS[name], make=boom if comm.rank == failing else None)
        return caught.value.rank

    comms = []
    assert run_ranks(6, run) == [failing] * 6
    assert comms[0].unfreed() == []


LEAVING = {
    "clusters": (
        {"name": "clusters", "size": 1, "exchange_every": 100},
        lambda of_ranks: of_ranks[3].alarm.has_arrived(),
    ),
    "two masters": ({"name": "downpour", "masters": 2}, lambda of_ranks: of_ranks[0].server.has_failure),
}
"""Options, and a function that returns whether the failure of rank 2 is known where rank 3 learns of it."""


@pytest.mark.parametrize(("options", "is_known"), LEAVING.values(), ids=LEAVING)
def test_other_ranks_leave_the_epoch_in_which_a_rank_fails(options, is_known):
    """They do not waste the rest of the epoch. Rank 2 is another cluster, or a worker of the lower master."""
    of_ranks = {}

    def run(comm):
        rank, n_made = Rank(comm, options, 50), 0
        of_ranks[comm.rank] = rank.algorithm

        def steps():
            nonlocal n_made
            for number, step in enumerate(rank.steps(50 if rank.worker is not None else 0)):
                if comm.rank == 2:
                    raise RuntimeError("boom")
                deadline = time.monotonic() + 10
                while comm.rank == 3 and number == 3 and not is_known(of_ranks):
                    assert time.monotonic() < deadline, "no rank has reported the failure"
                    time.sleep(1e-3)
                n_made += 1
                yield step

        with pytest.raises(TrainingError, match="boom"), agreed_errors(comm):
            rank.algorithm.run(steps())
        rank.algorithm.close()
        return n_made

    assert run_ranks(4, run)[3] <= 4


def test_no_samples_are_dealt_after_a_failure():
    """Worker 2 exchanges at the end of the epoch only, and learns of the failure when it asks for more samples."""
    of_ranks = {}

    def run(comm):
        make_deal = lambda: Dealer(1000, batch_size=1, n_workers=2).deal  # noqa: E731
        rank, n_parts = Rank(comm, {"name": "downpour", "sync_every": 1000}, N_STEPS, make_deal=make_deal), 0
        of_ranks[comm.rank] = rank.algorithm

        def steps():
            nonlocal n_parts
            while rank.algorithm.dealing.next_part() is not None:
                if comm.rank == 1:
                    raise RuntimeError("boom")
                n_parts += 1
                deadline = time.monotonic() + 10
                while not of_ranks[0].server.has_failure:
                    assert time.monotonic() < deadline, "no rank has reported the failure"
                    time.sleep(1e-3)
                yield from rank.steps(1)

        with pytest.raises(TrainingError, match="boom"), agreed_errors(comm):
            rank.algorithm.run(steps() if rank.worker is not None else ())
        return n_parts

    assert run_ranks(3, run)[2] <= 1


def test_failed_trainings_leave_no_exchanges_behind():
    """The memory of their weights is released, too."""
    for _ in range(3):
        error_of_each(ALGORITHMS["clusters in a ring"], 5, 2)
    gc.collect()
    assert not cluster_exchange._UNDER_WAY


def test_an_exchange_whose_communicator_has_failed_is_kept_only_until_mpi_gives_it_up():
    class Broken:
        def Test(self):  # noqa: N802
            from mpi_learn.mpi.messaging import RankLost

            raise RankLost

    class Comm:
        rank, size = 0, 2

        def Irecv(self, *arguments, **named):  # noqa: N802
            return Broken()

        Isend = Irecv

    for _ in range(5):
        cluster_exchange.Exchange(Comm(), np.zeros(3, np.float32), (1,))
    assert len(cluster_exchange._UNDER_WAY) == 1
    cluster_exchange._UNDER_WAY.clear()


def test_message_that_is_not_received_in_time_is_kept_until_mpi_gives_it_up():
    class Send:
        has_ended = False

        def test(self):
            return self.has_ended, None

    class Comm:
        def issend(self, message, dest, tag):
            send = Send()
            sends.append(weakref.ref(send))
            return send

    def n_kept():
        gc.collect()
        return sum(send() is not None for send in sends)

    sends = []
    messaging.deliver(Comm(), "the results", ranks=[1, 2], tag=0, limit_s=0.01)
    assert n_kept() == 2
    sends[0]().has_ended = True
    messaging.deliver(Comm(), "the results", ranks=[], tag=0, limit_s=0.01)
    assert n_kept() == 1
    sends[1]().has_ended = True
    messaging.deliver(Comm(), "the results", ranks=[], tag=0, limit_s=0.01)
    assert n_kept() == 0


def test_result_of_one_rank_or_its_error_reaches_all_ranks():
    def run(comm):
        found = result_of_rank(comm, lambda: comm.rank, rank=2)
        with pytest.raises(TrainingError, match="boom") as caught:
            result_of_rank(comm, boom, rank=1)
        return found, caught.value.rank

    assert run_ranks(3, run) == [(2, 1)] * 3
