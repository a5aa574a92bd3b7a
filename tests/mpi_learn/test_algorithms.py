"""Every algorithm on one rank, and on real ranks that have uneven shares, fail, and form groups, clusters and trees.

`test_references` compares several workers with the equations of the papers.
"""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
from pydantic import TypeAdapter

from mpi_learn.algorithms.algorithm import AlgorithmSetup
from mpi_learn.algorithms.allreduce import SynchronousAllReduce, make_reduction, mean_statistics, weighted_statistics
from mpi_learn.algorithms.configuration import AlgorithmConfiguration, AllReduce
from mpi_learn.algorithms.make_algorithm import make_algorithm
from mpi_learn.algorithms.rank_layout import make_rank_layout, rank_layout_of
from mpi_learn.algorithms.reduction import ExactSum
from mpi_learn.errors import ConfigurationError
from mpi_learn.flat_layout import FlatLayout, aligned_empty
from mpi_learn.optimizers.configuration import Adam, Sgd
from mpi_learn.optimizers.optimizer import make_optimizer
from mpi_learn.testing.algorithm_tests import Rank
from mpi_learn.testing.thread_ranks import run_ranks
from tests.world import in_world

N = 50


def gradients(n_steps=12):
    rng = np.random.default_rng(3)
    return [rng.normal(size=N).astype(np.float32) for _ in range(n_steps)]


def pull(weights, noise):
    """The gradient of a bowl with noise, at `weights`, of the mean over a batch of 4."""
    return weights - 0.3 + noise


def ours(options, optimizer, noises=None, batch_weight=4.0):
    """Weights of the centre after 12 steps, or those of `noises`, of one rank alone; None is a step without weight.

    Args:
        batch_weight: The divisor of the mean loss of a batch.
    """
    from mpi4py import MPI

    configuration = TypeAdapter(AlgorithmConfiguration).validate_python(options)
    weights = aligned_empty(N)
    weights[:] = np.linspace(-1, 1, N)
    algorithm = make_algorithm(configuration, AlgorithmSetup(
        MPI.COMM_SELF, make_rank_layout(1), weights, FlatLayout(((N,),)), n_sums=5, n_steps=12, learning_rate=0.1,
        make_optimizer=lambda options, updates: make_optimizer(options or optimizer, FlatLayout(((N,),))),
    ))  # fmt: skip

    def steps():
        for noise in gradients() if noises is None else noises:
            step = aligned_empty(N + 5)
            step[:N] = batch_weight * pull(weights, noise) if noise is not None else 1  # weights of both signs cancel
            step[N:] = [batch_weight if noise is not None else 0, 1, 4, 0, 0]
            yield step

    algorithm.run(steps())
    algorithm.synchronize()
    return weights


def start():
    return np.linspace(-1, 1, N)


def accumulated(n):
    w, kept = start(), []
    for t, noise in enumerate(gradients(), 1):
        kept.append(pull(w, noise))
        if len(kept) == n or t == 12:
            w, kept = w - 0.1 * np.mean(kept, axis=0), []
    return w


def downpour(sync_every):
    w, x, kept = start(), start(), []
    for noise in gradients():
        kept.append(pull(x, noise))
        x = x - 0.1 * kept[-1]
        if len(kept) == sync_every:
            w = w - 0.1 * np.mean(kept, axis=0)
            x, kept = w.copy(), []
    return w


def easgd(sync_every, alpha):
    centre, x = start(), start()
    for t, noise in enumerate(gradients(), 1):
        x = x - 0.1 * pull(x, noise)
        if t % sync_every == 0:
            d = alpha * (x - centre)
            x, centre = x - d, centre + d
    return centre


def gem(sync_every, momentum, kappa):
    theta, x, seen, m, begun = start(), start(), start(), np.zeros(N), start()
    for t, noise in enumerate(gradients(), 1):
        x = x - 0.1 * pull(x, noise)
        if t % sync_every == 0:
            d = x - begun
            m = momentum * m + d
            pi = np.clip((kappa * np.abs(m) - np.abs(theta - seen)) / (np.abs(d) + 1e-16), 0, 5)
            seen = theta.copy()
            theta = theta + pi * d
            x = begun = theta.copy()
    return theta


EQUATIONS = {
    "allreduce": ({"name": "allreduce"}, downpour(1)),
    "allreduce, two steps accumulated": ({"name": "allreduce", "accumulate": 2}, accumulated(2)),
    "allreduce, five steps accumulated": ({"name": "allreduce", "accumulate": 5}, accumulated(5)),
    "downpour": ({"name": "downpour"}, downpour(1)),
    "downpour every 3": ({"name": "downpour", "sync_every": 3}, downpour(3)),
    "synchronous downpour": ({"name": "downpour", "synchronous": True}, downpour(1)),
    "easgd": ({"name": "easgd", "elastic_force": 0.7}, easgd(1, 0.7)),
    "easgd every 4": ({"name": "easgd", "sync_every": 4}, easgd(4, 0.9)),
    "clusters": ({"name": "clusters"}, downpour(1)),
    "gem": ({"name": "gem", "momentum": 0.5, "kappa": 1.5}, gem(1, 0.5, 1.5)),
    "gem every 2": ({"name": "gem", "sync_every": 2}, gem(2, 0.9, 2.0)),
}


@pytest.mark.parametrize(("options", "expected"), EQUATIONS.values(), ids=EQUATIONS)
def test_algorithm_follows_its_equations(options, expected):
    np.testing.assert_allclose(ours(options, Sgd(learning_rate=0.1)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("batch_weight", [0.01, -2.0])
@pytest.mark.parametrize(("options", "expected"), EQUATIONS.values(), ids=EQUATIONS)
def test_batch_weights_below_one_or_below_zero_cancel_in_the_mean_gradient(options, expected, batch_weight):
    """Sample weights of simulated events are often small, and some of them are negative."""
    found = ours(options, Sgd(learning_rate=0.1), batch_weight=batch_weight)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_downpour_of_one_rank_is_plain_training_with_any_optimizer():
    np.testing.assert_array_equal(ours({"name": "downpour"}, Adam()), ours({"name": "allreduce"}, Adam()))


@pytest.mark.parametrize("name", ["allreduce", "downpour", "gem", "clusters"])  # EASGD's elastic force always moves
def test_a_step_without_weight_changes_nothing(name):
    """With Adam, a gradient of zero would still move the weights."""
    both = []
    for n_empty in (0, 5):
        steps = [*gradients(4), *[None] * n_empty]
        both.append(ours({"name": name}, Adam(learning_rate=0.1), steps))
    np.testing.assert_array_equal(*both)


def test_the_remainders_of_full_batches_do_not_dominate_a_small_one():
    """Twelve steps of one gradient, the last of 1 sample: all of it arrives except for the remainders, and no more."""
    gradient = np.linspace(0.5, 1, N, dtype=np.float32)

    def run(comm):
        """The second rank has no samples."""
        options, total = AllReduce(compression="top-k", fraction=0.1), np.zeros(N)
        reduction = make_reduction(options, FlatLayout(((N,),)), comm.size)
        for n_samples in [64] * 11 + [-0.1]:
            step = np.append(n_samples * gradient, [n_samples, 0, 0, 0, 0]).astype(np.float32)
            step = step if comm.rank == 0 else np.zeros_like(step)
            reduction.sum(comm, step)
            assert np.count_nonzero(step[:N]) == N // 10
            total += step[:N] / n_samples
        return total, reduction.rank_state()["held_back"]

    total, held_back = run_ranks(2, run)[0]
    np.testing.assert_allclose(total + held_back, 12 * gradient, rtol=1e-4)
    assert total.max() < 13


class Statistics:
    """Batch statistics, one of them infinite, as in the mask of an attention."""

    def floats(self):
        return np.array([2.0, -np.inf], np.float32)


def test_rank_without_samples_has_no_share_in_infinite_statistics():
    total = weighted_statistics(Statistics(), 3.0) + weighted_statistics(Statistics(), 0.0)
    np.testing.assert_array_equal(mean_statistics(total), [2.0, -np.inf])


TREES = {
    "downpour": {"name": "downpour"},
    "downpour every 3": {"name": "downpour", "sync_every": 3},
    "synchronous": {"name": "downpour", "synchronous": True},
    "quorum of half": {"name": "downpour", "synchronous": True, "quorum": 0.5},
    "easgd": {"name": "easgd"},
    "gem": {"name": "gem"},
    "gem every 2": {"name": "gem", "sync_every": 2},
    "downpour on two hosts": {"name": "downpour"},
    "quorum of half on two hosts": {"name": "downpour", "synchronous": True, "quorum": 0.5},
    "easgd tree on two hosts": {"name": "easgd", "masters": 3},
    "gem on two hosts": {"name": "gem"},
    "gem tree on two hosts": {"name": "gem", "masters": 3},
    "downpour in groups": {"name": "downpour", "processes": 2},
    "easgd in groups": {"name": "easgd", "processes": 2},
    "gem in groups": {"name": "gem", "processes": 2},
    "downpour tree": {"name": "downpour", "masters": 3},
    "two downpour masters": {"name": "downpour", "masters": 2},
    "synchronous tree": {"name": "downpour", "masters": 3, "synchronous": True},
    "easgd tree": {"name": "easgd", "masters": 3},
    "gem tree": {"name": "gem", "masters": 3},
    "tree of groups": {"name": "downpour", "masters": 2, "processes": 2},
    "allreduce": {"name": "allreduce"},
    "allreduce accumulated": {"name": "allreduce", "accumulate": 3},
    "allreduce in 16 bits": {"name": "allreduce", "compression": "float16"},
    "allreduce of the largest": {"name": "allreduce", "compression": "top-k", "fraction": 0.3},
    "allreduce of low rank": {"name": "allreduce", "compression": "power-sgd", "matrix_rank": 4},
    "clusters in a ring": {"name": "clusters", "size": 2, "exchange_every": 2, "neighbours": "ring"},
    "clusters in pairs": {"name": "clusters", "size": 2, "exchange_every": 2, "neighbours": "random"},
    "clusters of one": {"name": "clusters", "size": 1, "exchange_every": 1, "neighbours": "random"},
    "all clusters": {"name": "clusters", "size": 3, "exchange_every": 3, "neighbours": "all"},
    "clusters with an outer optimizer": {"name": "clusters", "size": 2, "exchange_every": 5, "outer": {"momentum": 0}},
    "downpour in 8 bits": {"name": "downpour", "compression": "int8"},
    "easgd tree in 2 bits": {"name": "easgd", "masters": 3, "compression": "2-bit"},
    "gem in 16 bits": {"name": "gem", "compression": "bfloat16"},
    "clusters in pairs in 2 bits": {"name": "clusters", "size": 2, "exchange_every": 2, "compression": "2-bit"},
}
FEW = (
    *("downpour", "synchronous", "gem every 2", "easgd tree", "tree of groups", "quorum of half on two hosts"),
    *("allreduce", "allreduce accumulated", "allreduce in 16 bits", "allreduce of the largest"),
    *("allreduce of low rank", "clusters in a ring", "clusters with an outer optimizer"),
    *("easgd tree in 2 bits", "clusters in pairs in 2 bits"),
)
"""Each kind of master, tree, group and collective once, for ``make test``; the others run with ``make test-all``."""
FAILING = ("downpour", "tree of groups", "allreduce", "clusters in a ring")
"""Each interface once under a real MPI. `test_failing_ranks` has every algorithm and place, with threads as ranks."""
WITH_MASTERS = [name for name, options in TREES.items() if options["name"] in ("downpour", "easgd", "gem")]
EXACT = [
    "allreduce",
    "allreduce accumulated",
    *(name for name in TREES if "cluster" in name and "outer" not in name and "bits" not in name),
]


def marked(names):
    return [name if name in FEW else pytest.param(name, marks=pytest.mark.thorough) for name in names]


def on_ranks(name):
    """What each of six ranks ends with, or the error that it raises."""
    return started(name.partition(",")[0] in FEW)[name]


@cache
def started(is_few):
    """Some algorithms, or all others, on six ranks; a few of them where the last rank raises, or the first one."""
    cases = {}
    for name, options in TREES.items():
        if (name in FEW) == is_few:
            cases[name] = (options, None, 2 if "two hosts" in name else 1)
        if (name in FAILING) and is_few:
            cases |= {f"{name}, {who}": (options, rank, 1) for who, rank in (("last", 5), ("first", 0))}
    done = in_world(6, "-m", "tests.mpi_learn.programs.quadratic", json.dumps(cases), timeout=240)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.mpi
@pytest.mark.parametrize("name", marked(TREES))
def test_ranks_agree_and_come_near_the_bottom(name):
    seen = on_ranks(name)
    assert all(one == seen[0] for one in seen)
    farthest = 0.9 if name.startswith("gem") else 0.65
    assert seen[0]["distance"] < farthest  # 1 at the start; uneven shares pull it towards the busier workers


@pytest.mark.mpi
@pytest.mark.parametrize("name", marked(EXACT))
def test_the_mean_of_equal_shares_moves_as_one_worker_would(name):
    """Gradients of a bowl are linear, and an exchange moves clusters of one size in opposite directions.

    Between clusters the tolerance is wider: some clusters apply an exchange some steps after the others.
    """
    is_exact = "allreduce" in name
    bottom = np.mean([np.random.default_rng(worker).normal(size=1000) for worker in range(6)], axis=0)
    left = 0.95 ** (10 * (2 if "accumulated" in name else 5)) * (1 - bottom)
    found = on_ranks(name)[0]
    assert found["distance"] == pytest.approx(np.abs(left).mean(), rel=2e-3 if is_exact else 0.1)
    assert found["sum"] == pytest.approx((bottom + left).sum(), abs=0.02 if is_exact else 1.0)


@pytest.mark.mpi
def test_compressed_gradients_reach_the_same_minimum():
    exact, half, largest = (on_ranks(f"allreduce{kind}")[0] for kind in ("", " in 16 bits", " of the largest"))
    assert half["sum"] == pytest.approx(exact["sum"], abs=0.05)
    assert half["distance"] == pytest.approx(exact["distance"], abs=1e-3)
    assert largest["distance"] < 0.1


@pytest.mark.mpi
def test_staleness_is_that_of_the_workers_wherever_their_master_is():
    for name in FEW:
        seen = on_ranks(name)[0]
        assert name in WITH_MASTERS or "staleness" not in seen, name
        if name in WITH_MASTERS and not TREES[name].get("synchronous"):
            assert 0 <= seen["staleness"] <= seen["largest_staleness"] <= 50, name
    assert on_ranks("downpour")[0]["staleness"] > 0


@pytest.mark.mpi
@pytest.mark.parametrize("name", FAILING)
@pytest.mark.parametrize("rank", [0, 5])
def test_a_rank_that_raises_ends_the_training_on_all(name, rank):
    """Rank 0 is a worker, a cluster's leader, or the first master, which raises while a worker waits for its answer."""
    seen = on_ranks(f"{name}, {'first' if rank == 0 else 'last'}")
    assert seen == [f"rank {rank}: RuntimeError: boom"] * 6


def test_layout_gives_every_master_workers_and_refuses_too_few_ranks():
    layout = make_rank_layout(11, masters=3, processes=2)
    assert layout.masters == (0, 1, 2)
    assert layout.groups == ((3, 4), (5, 6), (7, 8), (9, 10))
    assert [layout.parent(rank) for rank in (0, 1, 2, *layout.leaders)] == [None, 0, 0, 1, 2, 0, 1]
    assert layout.children(0) == (1, 2, 7)
    assert layout.children(1) == (3, 9)
    assert make_rank_layout(8, masters=1, processes=3).groups == ((1, 2, 3), (4, 5, 6, 7))
    assert make_rank_layout(1, masters=1).workers == (0,)
    with pytest.raises(ConfigurationError, match="expected 5 or more, found 4"):
        make_rank_layout(4, masters=3)
    with pytest.raises(ConfigurationError, match="a master and 2 processes per worker: expected 3 or more, found 2"):
        make_rank_layout(2, masters=1, processes=2)


@pytest.mark.parametrize(
    ("n_ranks", "options", "key", "cure"),
    [
        (3, {"masters": 1, "processes": 4}, "processes", "start 5 ranks or more, or write `processes: 2` or less"),
        (2, {"masters": 1, "processes": 2}, "processes", "start 3 ranks or more, or write `processes: 1`"),
        (4, {"masters": 3}, "masters", "start 5 ranks or more, or write fewer masters"),
        (4, {"masters": 2, "processes": 3}, "masters", "start 5 ranks or more, or write fewer masters or processes"),
    ],
)
def test_too_few_ranks_are_refused_with_the_key_to_change(n_ranks, options, key, cure):
    with pytest.raises(ConfigurationError) as caught:
        make_rank_layout(n_ranks, **options)
    assert (caught.value.where, caught.value.cure) == (f"algorithm.{key}", cure)


def test_two_masters_share_the_workers():
    """The second one does not pass on all messages to the first."""
    layout = make_rank_layout(6, masters=2)
    assert layout.children(0) == (1, 3, 5)
    assert layout.children(1) == (2, 4)


@pytest.mark.parametrize("n_ranks", [2, 3, 5, 7])
def test_ranks_that_make_a_single_cluster_of_another_size_are_refused(n_ranks):
    options = TypeAdapter(AlgorithmConfiguration).validate_python({"name": "clusters", "size": 4})
    with pytest.raises(ConfigurationError, match=rf"two clusters of 4 ranks need 8 ranks; there are {n_ranks}"):
        rank_layout_of(options, n_ranks)


@pytest.mark.parametrize(("n_ranks", "sizes"), [(1, [1]), (4, [4]), (8, [4, 4]), (10, [5, 5]), (13, [4, 4, 5])])
def test_ranks_make_clusters_of_at_least_the_size_asked_for(n_ranks, sizes):
    options = TypeAdapter(AlgorithmConfiguration).validate_python({"name": "clusters", "size": 4})
    assert [len(group) for group in rank_layout_of(options, n_ranks).groups] == sizes


def test_an_outer_optimizer_needs_all_clusters():
    read = TypeAdapter(AlgorithmConfiguration).validate_python
    assert read({"name": "clusters", "outer": {"name": "nesterov"}}).chosen_neighbours == "all"
    assert read({"name": "clusters"}).chosen_neighbours == "random"
    with pytest.raises(ValueError, match="the mean over all clusters"):
        read({"name": "clusters", "outer": {"name": "nesterov"}, "neighbours": "ring"})


def test_an_algorithm_that_ends_closes_its_sum_and_frees_its_communicators():
    closed, worlds = [], []

    class Closing(ExactSum):
        def close(self):
            closed.append(self)

    def run(comm, options):
        worlds.append(comm)
        algorithm = Rank(comm, options).algorithm
        if isinstance(algorithm, SynchronousAllReduce):
            algorithm.reduction = Closing()
        algorithm.close()

    run_ranks(2, lambda comm: run(comm, {"name": "allreduce"}))
    assert len(closed) == 2
    for options in ({"name": "clusters", "size": 2}, {"name": "gem", "processes": 2}, {"name": "downpour"}):
        run_ranks(5, lambda comm, options=options: run(comm, options))
        assert worlds[-1].unfreed() == []
