"""Masters and workers besides their equations: numbers of updates, distribution of samples, states, restarts."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from mpi_learn.algorithms.parameter_server.downpour import FirstCentre
from mpi_learn.algorithms.parameter_server.masters import Server
from mpi_learn.algorithms.parameter_server.transfer import Transfers
from mpi_learn.algorithms.parameter_server.worker import RemoteLink
from mpi_learn.data.samples.batches import Dealer
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.optimizers.configuration import Sgd
from mpi_learn.optimizers.optimizer import make_optimizer
from mpi_learn.testing.algorithm_tests import RATE, N, Rank, mean_gradient, with_momentum
from mpi_learn.testing.thread_ranks import Turns, run_ranks

UPDATES = [
    {"name": "downpour"},
    {"name": "downpour", "sync_every": 3},
    {"name": "downpour", "synchronous": True, "sync_every": 2},
    {"name": "downpour", "processes": 2},
    {"name": "downpour", "masters": 2},
    {"name": "downpour", "masters": 3, "synchronous": True},
    {"name": "easgd", "sync_every": 2},
    {"name": "easgd", "masters": 3},
    {"name": "gem"},
    {"name": "allreduce", "accumulate": 3},
    {"name": "clusters", "size": 2},
]


@pytest.mark.parametrize("options", UPDATES, ids=str)
def test_schedules_are_given_the_number_of_updates_of_an_epoch(options):
    """Otherwise a learning rate would fall, or rise, at another pace than the epochs."""

    def run(comm):
        promised = []

        def make(own, updates):
            promised.append((updates, make_optimizer(own or Sgd(), FlatLayout(((N,),)))))
            return promised[-1][1]

        rank = Rank(comm, options, 5, make=make)
        for _ in range(2):
            rank.epoch(5 if rank.worker is not None else 0)
        return [(updates, optimizer.n_steps / 2) for updates, optimizer in promised]

    found = [pair for rank in run_ranks(7, run) for pair in rank]
    assert found
    assert all(promised == made for promised, made in found)


@pytest.mark.parametrize("masters", [1, 2, 3])
@pytest.mark.parametrize("name", ["downpour", "easgd", "gem"])
def test_dealt_samples_are_all_taken_once_by_whichever_worker_is_free(name, masters):
    """Below several masters, too: the first one deals for all."""
    n_samples = 500

    def run(comm):
        def make_deal():
            return Dealer(n_samples, batch_size=3, n_workers=4).deal

        rank = Rank(comm, {"name": name, "masters": masters}, 9, make_deal=make_deal)
        taken = []

        def steps():
            while (part := rank.algorithm.dealing.next_part()) is not None:
                taken.extend(range(n_samples)[part])
                yield from rank.steps(1)

        for _ in range(2):
            rank.algorithm.run(steps() if rank.worker is not None else ())
            rank.algorithm.synchronize()
        return taken, rank.weights.copy()

    found = run_ranks(masters + 4, run)
    taken = sorted(sample for samples, _ in found for sample in samples)
    assert taken == sorted([*range(n_samples)] * 2)
    assert all(not samples for samples, _ in found[:masters])
    for _, weights in found:
        np.testing.assert_array_equal(weights, found[0][1])


def test_one_rank_alone_is_dealt_all_samples():
    def run(comm):
        rank = Rank(comm, {"name": "downpour"}, 9, make_deal=lambda: Dealer(50, batch_size=7, n_workers=1).deal)
        taken = []

        def steps():
            while (part := rank.algorithm.dealing.next_part()) is not None:
                taken.extend(range(50)[part])
                yield from rank.steps(1)

        rank.algorithm.run(steps())
        return taken

    assert run_ranks(1, run) == [[*range(50)]]


LOW_RANK = {"name": "allreduce", "compression": "power-sgd", "matrix_rank": 2}
STATES = {
    "allreduce": ({"name": "allreduce"}, 3),
    "largest elements": ({"name": "allreduce", "compression": "top-k", "fraction": 0.2}, 3),
    "low rank": (LOW_RANK, 3),
    "in 2 bits": ({"name": "allreduce", "compression": "2-bit"}, 3),
    "downpour in 2 bits": ({"name": "downpour", "compression": "2-bit"}, 3),
    "easgd tree in 2 bits": ({"name": "easgd", "masters": 2, "compression": "2-bit"}, 5),
    "gem in 8 bits": ({"name": "gem", "compression": "int8"}, 3),
    "outer optimizer in 2 bits": (
        {"name": "clusters", "size": 1, "exchange_every": 4, "outer": {"name": "nesterov"}, "compression": "2-bit"},
        3,
    ),
    "during exact steps": (LOW_RANK | {"exact_steps": 14}, 3),
    "after exact steps": (LOW_RANK | {"exact_steps": 6}, 3),
    "exact steps of accumulated gradients": (LOW_RANK | {"exact_steps": 5, "accumulate": 3}, 3),
    "downpour": ({"name": "downpour", "sync_every": 3}, 3),
    "easgd": ({"name": "easgd", "sync_every": 5}, 3),
    "easgd tree": ({"name": "easgd", "masters": 2}, 5),
    "easgd in groups": ({"name": "easgd", "processes": 2}, 5),
    "gem": ({"name": "gem", "sync_every": 3}, 3),
    "gem tree": ({"name": "gem", "masters": 2}, 5),
    "clusters": ({"name": "clusters", "size": 1, "exchange_every": 3}, 3),
    "outer optimizer": ({"name": "clusters", "size": 2, "exchange_every": 6, "outer": {"name": "nesterov"}}, 4),
}
"""Algorithm and number of ranks."""


def state_after(options, n_ranks, n_epochs, state=None):
    """Weights, state and own state of each rank after some epochs of four steps that continue from `state`."""
    n_leaders = n_ranks - options.get("masters", 1) if options["name"] in ("downpour", "easgd", "gem") else n_ranks
    n_leaders //= options.get("processes", options.get("size", 1))
    turns = [Turns([*range(n_leaders)] * 5) for _ in range(n_epochs)]
    has_turns = options["name"] != "allreduce"

    def run(comm):
        rank = Rank(comm, options, 4)
        if state is not None:
            rank.weights[:], rank.n_made = state[comm.rank]["weights"], state[comm.rank]["n_made"]
            for name, array in rank.algorithm.state().items():
                array[...] = state[0]["state"][name]
            for name, array in rank.algorithm.rank_state().items():
                array[...] = state[comm.rank]["rank_state"][name]
        for turn in turns:
            rank.epoch(4 if rank.worker is not None else 0, turn if has_turns else None)
        return {
            "weights": rank.weights.copy(),
            "n_made": rank.n_made,
            "state": {name: array.copy() for name, array in rank.algorithm.state().items()},
            "rank_state": {name: array.copy() for name, array in rank.algorithm.rank_state().items()},
        }

    return run_ranks(n_ranks, run)


@pytest.mark.parametrize(("options", "n_ranks"), STATES.values(), ids=STATES)
def test_an_interrupted_training_resumes_exactly(options, n_ranks):
    whole = state_after(options, n_ranks, 5)
    both = state_after(options, n_ranks, 2, state_after(options, n_ranks, 3))
    for one, other in zip(whole, both, strict=True):
        np.testing.assert_array_equal(one["weights"], other["weights"])
        for kind in ("state", "rank_state"):
            for name, array in one[kind].items():
                np.testing.assert_array_equal(array, other[kind][name], err_msg=name)


def test_gem_counts_only_changes_by_workers_after_a_start_from_other_weights():
    """Such as a checkpoint's: its first push is that of a training that began with these weights."""

    def first_push(comm, weights):
        rank = Rank(comm, {"name": "gem"}, 1)
        rank.weights[:] = weights  # after the algorithm was built
        rank.epoch(1)
        return rank.weights - weights

    def expected(weights):
        theta = seen = weights.astype(np.float64)
        d = -RATE * mean_gradient(0, 0, theta)
        return np.clip((2.0 * np.abs(d) - np.abs(theta - seen)) / (np.abs(d) + 1e-16), 0, 5) * d

    weights = np.linspace(5, -3, N).astype(np.float32)
    (found,) = run_ranks(1, lambda comm: first_push(comm, weights))
    np.testing.assert_allclose(found, expected(weights), rtol=1e-4, atol=1e-5)


FRESH = {
    "easgd": ({"name": "easgd"}, 3),
    "easgd tree": ({"name": "easgd", "masters": 2}, 5),
    "gem": ({"name": "gem"}, 3),
    "outer optimizer": ({"name": "clusters", "size": 1, "exchange_every": 4, "outer": {"name": "nesterov"}}, 3),
}


@pytest.mark.parametrize(("options", "n_ranks"), FRESH.values(), ids=FRESH)
def test_a_training_from_other_weights_forgets_those_at_construction(options, n_ranks):
    """As from another training's checkpoint, which has nothing of what each rank alone knows."""
    weights = np.linspace(50, 40, N).astype(np.float32)

    def trained(at_construction):
        turns = Turns([*range(n_ranks - options.get("masters", options["name"] != "clusters"))] * 5)

        def run(comm):
            rank = Rank(comm, options, 4, weights=at_construction)
            rank.weights[:] = weights
            return rank.epoch(4 if rank.worker is not None else 0, turns)["weights"]

        return run_ranks(n_ranks, run)

    np.testing.assert_array_equal(trained(None), trained(weights))


def test_rounding_makes_no_quorum_larger():
    """0.28 × 25 is slightly more than 7 in floating point, and 7 of 25 workers are enough."""
    workers, all_have_answers = tuple(range(1, 26)), threading.Barrier(25, timeout=10)

    def run(comm):
        transfers = Transfers.make("none", FlatLayout(((N,),)), sends_weights=False)
        if comm.rank == 0:
            centre = FirstCentre(np.zeros(N, np.float32), with_momentum(None, 1), in_rounds=True)
            server = Server(
                comm,
                workers,
                centre,
                workers=workers,
                mailboxes={},
                transfers=dict.fromkeys(workers, transfers),
                quorum=0.28,
            )
            server.begin_epoch(centre.weights)
            return server.serve()
        link = RemoteLink(comm, 0, None, transfers)
        if comm.rank <= 7:
            link.swap(np.zeros(N, np.float32), 1.0)
        all_have_answers.wait()
        return link.end_epoch(has_failed=False)

    run_ranks(26, run)
