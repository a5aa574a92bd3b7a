"""Every algorithm with several workers, masters and clusters against its paper's equations in NumPy.

The ranks are threads and take their steps in a given order, which determines the order of all messages. The references
have no ranks: they are the equations, applied to several replicas in the same order.
"""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import TypeAdapter

from mpi_learn.algorithms import cluster_exchange
from mpi_learn.algorithms.configuration import AlgorithmConfiguration
from mpi_learn.algorithms.parameter_server.transfer import VECTOR
from mpi_learn.algorithms.rank_layout import rank_layout_of
from mpi_learn.testing.algorithm_tests import MOMENTUM, RATE, SAMPLES, N, Rank, start, summed_gradient
from mpi_learn.testing.thread_ranks import Turns, run_ranks
from tests.mpi_learn.shared_memory import shared_memory


def ours(options, n_ranks, epochs, *, n_hosts=None, is_turn_over_at=None):
    """What each rank has after each epoch.

    Args:
        epochs: For each epoch the order in which the workers (below masters) or the clusters take their steps; or a
            number of steps for each, in no order.
        n_hosts: Number of hosts, to which ranks are dealt in blocks: workers and masters of one host share memory;
            None: every rank is on its own host.
        is_turn_over_at: The tag of the message with which a turn is over; None: it is over after the step.
    """
    n_steps = epochs[0] if isinstance(epochs[0], int) else epochs[0].count(0)
    n_leaders = len(rank_layout_of(TypeAdapter(AlgorithmConfiguration).validate_python(options), n_ranks).leaders)
    turns = [None if isinstance(order, int) else Turns([*order, *range(n_leaders)]) for order in epochs]

    def run(comm):
        rank, found = Rank(comm, options, n_steps), []
        for order, turn in zip(epochs, turns, strict=True):
            if is_turn_over_at is not None and rank.leader is not None:
                turn.are_over_by_message = True
                comm.after_send = lambda tag, turn=turn: turn.end() if tag == is_turn_over_at else None
            found.append(rank.epoch(order if isinstance(order, int) else order.count(rank.group), turn))
        rank.algorithm.close()
        return found

    with shared_memory(n_ranks, n_hosts):
        return run_ranks(n_ranks, run)


def check(found, expected, key="weights"):
    """All ranks have the expected weights after each epoch."""
    for rank, epochs in enumerate(found):
        for epoch, (one, wanted) in enumerate(zip(epochs, expected, strict=True)):
            np.testing.assert_allclose(one[key], wanted, rtol=2e-5, atol=2e-5, err_msg=f"rank {rank}, epoch {epoch}")


class Momentum:
    """Stochastic gradient descent with momentum."""

    def __init__(self, weights):
        self.weights, self.velocity = weights, np.zeros(N)

    def step(self, gradient):
        self.velocity = MOMENTUM * self.velocity - RATE * gradient
        self.weights = self.weights + self.velocity


class Replica:
    """The state of a worker and its number of steps."""

    def __init__(self, number):
        self.number, self.n_steps, self.x = number, 0, start()

    def gradient(self):
        self.n_steps += 1
        return summed_gradient(self.number, self.n_steps - 1, self.x)


every_memory = pytest.mark.parametrize("n_hosts", [None, 1, 2], ids=["network", "shared memory", "two hosts"])


# allreduce


def allreduce(n, n_steps, accumulate):
    """One worker with all the samples."""
    model, expected, t = Momentum(start()), [], 0
    for _ in range(2):
        kept, n_kept = np.zeros(N), 0
        for step in range(n_steps):
            kept = kept + sum(summed_gradient(worker, t, model.weights) for worker in range(n))
            n_kept += sum(SAMPLES[:n])
            t += 1
            if (step + 1) % accumulate == 0 or step + 1 == n_steps:
                model.step(kept / n_kept)
                kept, n_kept = np.zeros(N), 0
        expected.append(model.weights)
    return expected


@pytest.mark.parametrize("accumulate", [1, 3])
def test_allreduce_makes_the_steps_of_one_worker_with_all_samples(accumulate):
    found = ours({"name": "allreduce", "accumulate": accumulate}, 4, [5, 5])
    check(found, allreduce(4, 5, accumulate))


# Downpour

ORDERS = [[0, 1, 2, 0, 2, 1, 1, 0, 2], [2, 1, 0, 2, 2, 1, 0, 1, 0]]
"""Two epochs of three workers, three steps each."""


def downpour(orders, n, sync_every):
    """Dean et al. 2012: the server applies each gradient when it arrives. Its version counts the updates."""
    server, replicas, expected = Momentum(start()), [Replica(k) for k in range(n)], []
    for order in orders:
        sums, pending, seen, version, staleness = [0.0] * n, [0] * n, [0] * n, 0, []
        for place, k in enumerate([*order, *range(n)]):
            replica, is_end = replicas[k], place >= len(order)
            if not is_end:
                gradient = replica.gradient()
                replica.x = replica.x - RATE * gradient / SAMPLES[k]  # where it goes on until the next exchange
                sums[k], pending[k] = sums[k] + gradient, pending[k] + 1
            if pending[k] == sync_every or (is_end and pending[k]):
                staleness.append(version - seen[k])
                server.step(sums[k] / (pending[k] * SAMPLES[k]))
                version += 1
                sums[k], pending[k], seen[k], replica.x = 0.0, 0, version, server.weights
        for replica in replicas:
            replica.x = server.weights
        expected.append((server.weights, np.mean(staleness), max(staleness)))
    return expected


@every_memory
@pytest.mark.parametrize("sync_every", [1, 2, 3])
def test_downpour_applies_gradients_in_order_of_arrival(sync_every, n_hosts):
    found = ours({"name": "downpour", "sync_every": sync_every}, 4, ORDERS, n_hosts=n_hosts)
    expected = downpour(ORDERS, 3, sync_every)
    check(found, [weights for weights, _, _ in expected])
    for epochs in found:
        for one, (_, mean, largest) in zip(epochs, expected, strict=True):
            assert (one["staleness"], one["largest_staleness"]) == pytest.approx((mean, largest))


def test_equal_workers_in_turn_are_one_less_than_their_number_behind():
    """After a first round, in which worker k is k updates behind; fresh weights at an epoch's begin are not stale."""
    found = ours({"name": "downpour"}, 5, [[0, 1, 2, 3] * 6] * 2)
    for epoch in found[0]:
        assert epoch["staleness"] == pytest.approx((0 + 1 + 2 + 3 + 5 * 4 * 3) / 24)
        assert epoch["largest_staleness"] == 3


def synchronous(n, n_steps):
    """Every round is a step of one worker with all samples."""
    server, expected, t = Momentum(start()), [], 0
    for _ in range(2):
        for _ in range(n_steps):
            server.step(sum(summed_gradient(k, t, server.weights) for k in range(n)) / sum(SAMPLES[:n]))
            t += 1
        expected.append(server.weights)
    return expected


@pytest.mark.parametrize("masters", [1, 2, 3])
def test_synchronous_downpour_is_training_with_all_samples(masters):
    found = ours({"name": "downpour", "synchronous": True, "masters": masters}, masters + 4, [4, 4])
    check(found, synchronous(4, 4))


def test_synchronous_rounds_continue_with_the_workers_that_have_steps_left():
    """A worker that has ended its epoch is neither waited for nor counted."""
    n_steps, server = (2, 3, 5), Momentum(start())
    for t in range(5):
        active = [k for k in range(3) if t < n_steps[k]]
        gradient = sum(summed_gradient(k, t, server.weights) for k in active)
        server.step(gradient / sum(SAMPLES[k] for k in active))

    def run(comm):
        rank = Rank(comm, {"name": "downpour", "synchronous": True}, 5)
        return [rank.epoch(0 if rank.worker is None else n_steps[rank.worker])]

    check(run_ranks(4, run), [server.weights])


def with_quorum(orders, n, n_enough):
    """Chen et al. 2016 ("Revisiting distributed synchronous SGD"): gradients after the first ones are dropped."""
    server, replicas, expected = Momentum(start()), [Replica(k) for k in range(n)], []
    for order in orders:
        version, seen, waiting = 0, [0] * n, []
        for replica in replicas:
            replica.x = server.weights
        for k in order:
            gradient = replicas[k].gradient()
            if seen[k] < version:
                seen[k], replicas[k].x = version, server.weights
                continue
            waiting.append((k, gradient))
            if len(waiting) == n_enough:
                server.step(sum(one for _, one in waiting) / sum(SAMPLES[k] for k, _ in waiting))
                version += 1
                for one, _ in waiting:
                    seen[one], replicas[one].x = version, server.weights
                waiting = []
        expected.append(server.weights)
    return expected


QUORUMS = {
    "two of three": (3, 2, 0.5, [[0, 1, 2, 2, 0, 1, 0, 2], [2, 0, 1, 1, 2, 0, 0, 1]]),
    "the first of two": (2, 1, 0.5, [[0, 1, 1, 0, 1, 1], [0, 1, 0, 0, 1, 1], [1, 0, 0, 1, 1, 1]]),
    "the first two of four": (4, 2, 0.5, [[0, 1, 2, 3, 2, 3, 0, 1, 1, 0], [3, 0, 1, 2, 2, 1, 3, 0, 0, 3]]),
}


@pytest.mark.parametrize(("n", "n_enough", "quorum", "orders"), QUORUMS.values(), ids=QUORUMS)
def test_a_quorum_drops_late_gradients_and_no_others(n, n_enough, quorum, orders):
    """The weights of an epoch's begin are fresh on all workers, whatever they knew before."""
    options = {"name": "downpour", "synchronous": True, "quorum": quorum}
    found = ours(options, n + 1, orders, is_turn_over_at=VECTOR)
    check(found, with_quorum(orders, n, n_enough))


@pytest.mark.parametrize("sync_every", [1, 2])
def test_a_group_of_ranks_is_one_worker_with_the_samples_of_all(sync_every):
    """Five ranks, a master and two groups of two; the two members' gradients are of the same weights."""
    order = [0, 1, 1, 0, 0, 1, 0, 1]
    server, x, t = Momentum(start()), [start(), start()], [0, 0]
    sums, seen = [0.0, 0.0], [0, 0]
    for k in order:
        members = (2 * k, 2 * k + 1)
        gradient = sum(summed_gradient(member, t[k], x[k]) for member in members)
        n_samples = sum(SAMPLES[member] for member in members)
        t[k], x[k] = t[k] + 1, x[k] - RATE * gradient / n_samples
        sums[k], seen[k] = sums[k] + gradient, seen[k] + n_samples
        if t[k] % sync_every == 0:
            server.step(sums[k] / seen[k])
            sums[k], seen[k], x[k] = 0.0, 0, server.weights
    found = ours({"name": "downpour", "processes": 2, "sync_every": sync_every}, 5, [order])
    check(found, [server.weights])


TREES = {2: {0: 1, 1: 0, 2: 1, 3: 0}, 3: {0: 1, 1: 2, 2: 0, 3: 1}}
"""Masters -> worker -> its master, of four workers: all masters serve, the first one serves also the others."""
TREE_ORDERS = [[0, 1, 2, 3, 3, 1, 0, 2, 2, 0, 3, 1], [3, 0, 1, 2, 0, 3, 2, 1, 2, 3, 0, 1]]
UNEVEN_TREE_ORDERS = [[0, 1, 2, 0, 3, 1, 0, 3], [1, 3, 0, 1, 3]]
"""At the end of an epoch one lower master has handed up less than it was sent."""


def children_of(masters):
    parents = list(TREES[masters].values())
    return {m: parents.count(m) + (masters - 1 if m == 0 else 0) for m in range(masters)}


def downpour_tree(orders, masters):
    """A lower master hands up the sum of as many gradients as it has workers; the rest at the end of an epoch.

    A worker's staleness is the number of times that its master's weights have changed since it saw them.
    """
    server, replicas, expected = Momentum(start()), [Replica(k) for k in range(4)], []
    n_children = children_of(masters)
    for order in orders:
        known, kept = dict.fromkeys(range(masters), server.weights), {m: [] for m in range(masters)}
        versions, seen, staleness = [0] * masters, [0] * 4, []
        for replica in replicas:
            replica.x = server.weights

        def hand_up(m, server=server, known=known, kept=kept, versions=versions):
            server.step(sum(g for g, _ in kept[m]) / sum(n for _, n in kept[m]))
            known[0] = known[m] = server.weights
            kept[m] = []
            for one in {0, m}:
                versions[one] += 1

        for k in order:
            m, gradient = TREES[masters][k], replicas[k].gradient()
            staleness.append(versions[m] - seen[k])
            kept[m].append((gradient, SAMPLES[k]))
            if m == 0 or len(kept[m]) == n_children[m]:
                hand_up(m)
            replicas[k].x, seen[k] = known[m], versions[m]
        for m in range(1, masters):
            if kept[m]:
                hand_up(m)
        expected.append((server.weights, np.mean(staleness)))
    return expected


@pytest.mark.parametrize("masters", [2, 3])
@pytest.mark.parametrize("orders", [TREE_ORDERS, UNEVEN_TREE_ORDERS], ids=["even", "uneven"])
def test_lower_downpour_masters_hand_up_sums_of_their_workers_gradients(orders, masters):
    found = ours({"name": "downpour", "masters": masters}, masters + 4, orders)
    expected = downpour_tree(orders, masters)
    check(found, [weights for weights, _ in expected])
    for one, (_, staleness) in zip(found[-1], expected, strict=True):
        assert one["staleness"] == pytest.approx(staleness)


# EASGD


class Elastic:
    """A centre and its moving rate."""

    def __init__(self, alpha):
        self.x, self.alpha = start(), alpha

    def attract(self, x):
        """Moves towards x; returns how far x moves."""
        d = self.alpha * (x - self.x)
        self.x = self.x + d
        return d


def easgd(orders, n, sync_every, beta):
    """Zhang, Choromanska & LeCun 2015, algorithm 1, with momentum in the workers; α = β / p."""
    centre, replicas, expected = Elastic(beta / n), [Replica(k) for k in range(n)], []
    movers = [Momentum(start()) for _ in range(n)]
    for order in orders:
        for k in order:
            replica, mover = replicas[k], movers[k]
            mover.weights = replica.x
            mover.step(replica.gradient() / SAMPLES[k])
            replica.x = mover.weights
            if replica.n_steps % sync_every == 0:
                replica.x = replica.x - centre.attract(replica.x)
        expected.append(centre.x)
    return expected


@every_memory
@pytest.mark.parametrize("sync_every", [1, 2])
def test_easgd_of_several_workers_divides_the_force_by_their_number(sync_every, n_hosts):
    options = {"name": "easgd", "elastic_force": 0.8, "sync_every": sync_every}
    check(ours(options, 4, ORDERS, n_hosts=n_hosts), easgd(ORDERS, 3, sync_every, 0.8))


def test_the_ranks_of_an_easgd_group_continue_from_its_weights_in_the_next_epoch():
    """Five ranks, a master and two groups of two."""
    orders = [[0, 1, 1, 0, 0, 1], [1, 0, 0, 0, 1, 1]]
    centre, movers, t, expected = Elastic(0.9 / 2), [Momentum(start()) for _ in range(2)], [0, 0], []
    for order in orders:
        for k in order:
            members = (2 * k, 2 * k + 1)
            gradient = sum(summed_gradient(member, t[k], movers[k].weights) for member in members)
            movers[k].step(gradient / sum(SAMPLES[member] for member in members))
            movers[k].weights = movers[k].weights - centre.attract(movers[k].weights)
            t[k] += 1
        expected.append(centre.x)
    check(ours({"name": "easgd", "processes": 2}, 5, orders), expected)


def easgd_tree(orders, masters, beta):
    """Lower centres are attracted by the first one as workers are, and keep their place from epoch to epoch."""
    n_children = children_of(masters)
    centres = [Elastic(beta / n_children[m]) for m in range(masters)]
    replicas, n_exchanges, expected = [Replica(k) for k in range(4)], [0] * masters, []
    movers = [Momentum(start()) for _ in range(4)]
    for order in orders:
        for k in order:
            replica, mover, m = replicas[k], movers[k], TREES[masters][k]
            mover.weights = replica.x
            mover.step(replica.gradient() / SAMPLES[k])
            replica.x = mover.weights - centres[m].attract(mover.weights)
            n_exchanges[m] += 1
            if m > 0 and n_exchanges[m] % n_children[m] == 0:
                centres[m].x = centres[m].x - centres[0].attract(centres[m].x)
        expected.append(centres[0].x)
    return expected


@pytest.mark.parametrize("masters", [2, 3])
def test_lower_easgd_masters_are_drawn_to_the_first_and_keep_their_centres(masters):
    found = ours({"name": "easgd", "masters": masters}, masters + 4, TREE_ORDERS * 2)
    check(found, easgd_tree(TREE_ORDERS * 2, masters, 0.9))


# GEM


class Matching(Replica):
    """A worker of Hermans & Louppe 2018: momentum m, last central weights s, and where its step began."""

    def __init__(self, number):
        super().__init__(number)
        self.m, self.s, self.begun, self.velocity = np.zeros(N), start(), start(), np.zeros(N)

    def move(self):
        self.velocity = MOMENTUM * self.velocity - RATE * self.gradient() / SAMPLES[self.number]
        self.x = self.x + self.velocity

    def push(self, theta, mu, kappa):
        """What it adds to θ."""
        d = self.x - self.begun
        self.m = mu * self.m + d
        pi = np.clip((kappa * np.abs(self.m) - np.abs(theta - self.s)) / (np.abs(d) + 1e-16), 0, 5)
        self.s, self.x = theta, theta + pi * d
        self.begun = self.x
        return pi * d


def gem(orders, n, sync_every, mu, kappa):
    theta, workers, expected = start(), [Matching(k) for k in range(n)], []
    for order in orders:
        n_steps = [0] * n
        for worker in workers:
            worker.x = worker.begun = theta
        for place, k in enumerate([*order, *range(n)]):
            if place < len(order):
                workers[k].move()
                n_steps[k] += 1
            if (place < len(order)) == (n_steps[k] % sync_every == 0):
                theta = theta + workers[k].push(theta, mu, kappa)
        expected.append(theta)
    return expected


@every_memory
@pytest.mark.parametrize("sync_every", [1, 2])
def test_gem_of_several_workers_damps_by_the_updates_of_the_other_workers(sync_every, n_hosts):
    options = {"name": "gem", "sync_every": sync_every, "momentum": 0.6, "kappa": 1.4}
    check(ours(options, 4, ORDERS, n_hosts=n_hosts), gem(ORDERS, 3, sync_every, 0.6, 1.4))


def gem_tree(orders, masters):
    """A lower master hands up the sum of as many pushes as it has workers, and then takes the first one's weights."""
    n_children = children_of(masters)
    theta, pushed = [start() for _ in range(masters)], [[] for _ in range(masters)]
    workers, expected = [Matching(k) for k in range(4)], []
    for order in orders:
        theta = [theta[0]] * masters
        for worker in workers:
            worker.x = worker.begun = theta[0]
        for k in order:
            workers[k].move()
            m = TREES[masters][k]
            push = workers[k].push(theta[m], 0.9, 2.0)
            theta[m] = theta[m] + push
            pushed[m].append(push)
            if m > 0 and len(pushed[m]) == n_children[m]:
                theta[0] = theta[0] + sum(pushed[m])
                theta[m], pushed[m] = theta[0], []
        for m in range(1, masters):
            theta[0] = theta[0] + sum(pushed[m])
            pushed[m] = []
        expected.append(theta[0])
    return expected


@pytest.mark.parametrize("masters", [2, 3])
@pytest.mark.parametrize("orders", [TREE_ORDERS, UNEVEN_TREE_ORDERS], ids=["even", "uneven"])
def test_lower_gem_masters_hand_up_the_sum_of_their_workers_pushes(orders, masters):
    found = ours({"name": "gem", "masters": masters}, masters + 4, orders)
    check(found, gem_tree(orders, masters))


# clusters


def ring(c, n, n_round):
    return {(c - 1) % n, (c + 1) % n} - {c}


def everyone(c, n, n_round):
    return set(range(n)) - {c}


def pairs(c, n, n_round):
    order = np.random.default_rng([n, n_round]).permutation(n).tolist()
    couples = [set(order[i : i + 2]) for i in range(0, n, 2)]
    return next(one for one in couples if c in one) - {c}


class Cluster:
    """Snapshots are sent every H steps; when the partners' have come, ``w ← w + mean − own snapshot``."""

    def __init__(self, members):
        self.members, self.mover, self.n_steps, self.n_rounds = members, Momentum(start()), 0, 0
        self.snapshot, self.others = None, ()

    def begin(self, number, n, partners, sent):
        self.others = [(other, self.n_rounds) for other in partners(number, n, self.n_rounds)]
        sent[number, self.n_rounds] = self.snapshot = self.mover.weights
        self.n_rounds += 1

    def arrived(self, sent):
        """What is to be added, once all have sent."""
        if self.snapshot is None or not all(one in sent for one in self.others):
            return None
        mean = (self.snapshot + sum(sent[one] for one in self.others)) / (1 + len(self.others))
        delta, self.snapshot = mean - self.snapshot, None
        return delta

    def step(self):
        gradient = sum(summed_gradient(member, self.n_steps, self.mover.weights) for member in self.members)
        self.mover.step(gradient / sum(SAMPLES[member] for member in self.members))
        self.n_steps += 1


def decentralized(orders, clusters, every, partners):
    """Blot et al. 2016 with several kinds of partners; returns the clusters' weights before each epoch's mean, too."""
    n, sent, expected = len(clusters), {}, []
    for order in orders:
        for c in order:
            cluster = clusters[c]
            delta = cluster.arrived(sent)
            cluster.step()
            if delta is not None:
                cluster.mover.weights = cluster.mover.weights + delta
            if cluster.n_steps % every == 0 and cluster.snapshot is None:
                cluster.begin(c, n, partners, sent)
        own = [cluster.mover.weights for cluster in clusters]
        n_rounds = max(cluster.n_rounds for cluster in clusters)
        while any(cluster.snapshot is not None or cluster.n_rounds < n_rounds for cluster in clusters):
            for c, cluster in enumerate(clusters):
                if cluster.snapshot is None and cluster.n_rounds < n_rounds:
                    cluster.begin(c, n, partners, sent)
                if (delta := cluster.arrived(sent)) is not None:
                    cluster.mover.weights = cluster.mover.weights + delta
        mean = sum(cluster.mover.weights for cluster in clusters) / n
        for cluster in clusters:
            cluster.mover.weights = mean
        expected.append((own, mean))
    return expected


def test_a_round_without_a_partner_exchanges_nothing(monkeypatch):
    """Of three clusters in random pairs, one has no partner: its ranks receive no change of zeros."""
    of_exchanges = []

    class Recorded(cluster_exchange.Exchange):
        def __init__(self, leaders, weights, partners, known):
            of_exchanges.append(partners)
            super().__init__(leaders, weights, partners, known)

    monkeypatch.setattr("mpi_learn.algorithms.clusters.Exchange", Recorded)
    ours({"name": "clusters", "size": 2, "exchange_every": 1, "neighbours": "random"}, 6, [9])
    assert of_exchanges
    assert all(of_exchanges)


CLUSTER_ORDERS = [[0, 1, 2, 0, 2, 1, 1, 1, 0, 2, 0, 2, 2, 1, 0], [1, 2, 0, 0, 0, 1, 2, 1, 2, 2, 1, 0, 0, 1, 2]]


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("neighbours", [ring, everyone, pairs])
def test_clusters_average_with_their_partners_and_keep_their_own_steps(neighbours, every):
    """Six ranks in three clusters, before and after the mean at the end of an epoch."""
    name = {ring: "ring", everyone: "all", pairs: "random"}[neighbours]
    options = {"name": "clusters", "size": 2, "exchange_every": every, "neighbours": name}
    found = ours(options, 6, CLUSTER_ORDERS)
    clusters = [Cluster((2 * c, 2 * c + 1)) for c in range(3)]
    expected = decentralized(CLUSTER_ORDERS, clusters, every, neighbours)
    check(found, [mean for _, mean in expected])
    for rank, epochs in enumerate(found):
        for epoch, (own, _) in zip(epochs, expected, strict=True):
            np.testing.assert_allclose(epoch["own"], own[rank // 2], rtol=2e-5, atol=2e-5)


def diloco(n_rounds, n_inner, k, rate, momentum):
    """Douillard et al. 2023 (arXiv:2311.08105), algorithm 1: k replicas, H inner steps, Nesterov outside."""
    theta, velocity, t, expected = start(), np.zeros(N), 0, []
    inner = [Momentum(theta) for _ in range(k)]  # its state is kept from round to round
    for _ in range(n_rounds):
        for replica in inner:
            replica.weights = theta
        for _ in range(n_inner):
            for c, replica in enumerate(inner):
                members = (2 * c, 2 * c + 1)
                gradient = sum(summed_gradient(member, t, replica.weights) for member in members)
                replica.step(gradient / sum(SAMPLES[member] for member in members))
            t += 1
        pseudo_gradient = sum(theta - replica.weights for replica in inner) / k
        velocity = momentum * velocity + pseudo_gradient
        theta = theta - rate * (pseudo_gradient + momentum * velocity)  # Nesterov, as in Sutskever et al. 2013
        expected.append(theta)
    return expected


@pytest.mark.parametrize(("rate", "momentum"), [(0.7, 0.9), (1.0, 0.0), (0.5, 0.3)])
def test_clusters_with_an_outer_optimizer_are_diloco(rate, momentum):
    """Epochs of H steps: the exchange begins with the last step, and is complete when the next epoch begins."""
    outer = {"name": "nesterov", "learning_rate": rate, "momentum": momentum}
    options = {"name": "clusters", "size": 2, "exchange_every": 4, "outer": outer}
    found = ours(options, 6, [[0, 1, 2] * 4, [2, 0, 1] * 4, [1, 2, 0] * 4, [0, 1, 2] * 4])
    check(found, diloco(4, 4, 3, rate, momentum))


def test_an_outer_step_spans_epochs_that_are_shorter_than_it():
    """Epochs of three steps, outer steps of six: the first epoch's mean is not yet one, nor forgotten."""
    theta, velocity, t, expected = start(), np.zeros(N), 0, []
    inner = [Momentum(theta) for _ in range(3)]
    for epoch in range(4):
        for _ in range(3):
            for c, replica in enumerate(inner):
                members = (2 * c, 2 * c + 1)
                gradient = sum(summed_gradient(member, t, replica.weights) for member in members)
                replica.step(gradient / sum(SAMPLES[member] for member in members))
            t += 1
        mean = sum(replica.weights for replica in inner) / 3
        if epoch % 2:
            velocity = 0.9 * velocity + theta - mean
            theta = mean = theta - 0.7 * (theta - mean + 0.9 * velocity)
        for replica in inner:
            replica.weights = mean
        expected.append(mean)
    options = {"name": "clusters", "size": 2, "exchange_every": 6, "outer": {"name": "nesterov"}}
    check(ours(options, 6, [[0, 1, 2] * 3] * 4), expected)


def diloco_in_the_background(n_steps, every, delay, k, rate, momentum):
    """The same, where the outer step is known `delay` inner steps late; these are kept (delta rule)."""
    theta, velocity = start(), np.zeros(N)
    inner, due, snapshots = [Momentum(theta) for _ in range(k)], -1, []
    for t in range(n_steps):
        for c, replica in enumerate(inner):
            members = (2 * c, 2 * c + 1)
            gradient = sum(summed_gradient(member, t, replica.weights) for member in members)
            replica.step(gradient / sum(SAMPLES[member] for member in members))
        if t + 1 == due:
            pseudo_gradient = theta - sum(snapshots) / k
            velocity = momentum * velocity + pseudo_gradient
            theta = theta - rate * (pseudo_gradient + momentum * velocity)
            for replica, snapshot in zip(inner, snapshots, strict=True):
                replica.weights = replica.weights + theta - snapshot
        if (t + 1) % every == 0:
            due, snapshots = t + 1 + delay, [replica.weights for replica in inner]
    return [replica.weights for replica in inner]


def test_inner_steps_during_an_outer_exchange_are_kept():
    options = {"name": "clusters", "size": 2, "exchange_every": 4, "outer": {"name": "nesterov"}}
    found = ours(options, 6, [[0, 1, 2] * 15])
    expected = diloco_in_the_background(15, 4, 1, 3, 0.7, 0.9)
    for rank, epochs in enumerate(found):
        np.testing.assert_allclose(epochs[0]["own"], expected[rank // 2], rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(epochs[0]["weights"], sum(expected) / 3, rtol=2e-5, atol=2e-5)
