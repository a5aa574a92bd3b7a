"""Encoded messages: their errors, their lengths, and what the errors of many messages add up to."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from mpi4py import MPI
from pydantic import ValidationError

from mpi_learn import train
from mpi_learn.algorithms.allreduce import make_reduction
from mpi_learn.algorithms.configuration import AllReduce, Clusters, Downpour, Easgd, Gem
from mpi_learn.compression.encodings import ENCODINGS
from mpi_learn.compression.error_feedback import ErrorFeedback, KnownWeights
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.optimizers.configuration import Sgd
from mpi_learn.optimizers.optimizer import make_optimizer
from mpi_learn.testing.algorithm_tests import N, Rank, mean_gradient
from mpi_learn.testing.thread_ranks import Turns, run_ranks
from mpi_learn.training.checkpoints.checkpoint_file import KeptEpoch
from tests.mpi_learn.configurations_for_tests import TORCH
from tests.mpi_learn.models_for_tests import line
from tests.optional_packages import needs
from tests.world import in_world

ALL = pytest.mark.parametrize("name", ENCODINGS)
CHUNK = 256
"""Elements that share a scale with int8 and 2-bit."""

vectors = arrays(np.float32, st.integers(0, 600), elements=st.floats(-(2.0**100), 2.0**100, width=32))
sequences = arrays(np.float32, st.tuples(st.integers(1, 12), st.integers(1, 300)), elements=st.floats(-1, 1, width=32))


def bound(name, vector):
    """The largest error of each element, from the definition of the formats; of 2-bit, of the norm of a chunk."""
    chunks = [vector[first : first + CHUNK].astype(float) for first in range(0, vector.size, CHUNK)]
    largest = np.abs(vector).max(initial=0).astype(float)
    if name == "bfloat16":
        return np.abs(vector) * 2.0**-8 + 1e-38
    if name == "float16":  # below 2^-14 of the scale, the steps are 2^-24 of it
        return np.abs(vector) * 2.0**-10 + largest / 6e4 * 2.0**-24 + 1e-37
    zero = 127 * float(np.finfo(np.float32).tiny)  # smaller chunks become 0: their scale is no normal number
    return np.concatenate([np.full(chunk.size, np.abs(chunk).max() / 254 * 1.001 + zero) for chunk in chunks] or [[]])


@settings(deadline=None)  # the first message compiles its encoding
@given(vector=vectors)
@example(vector=np.array([1.4177412e-37], np.float32))
@ALL
def test_the_error_of_a_message_is_bounded_and_its_length_is_known(name, vector):
    encoding = ENCODINGS[name]
    message = encoding.encode(vector)
    assert (message.dtype, message.size) == (np.uint8, encoding.n_bytes(vector.size))
    decoded = encoding.decode(message, vector.size)
    assert decoded.dtype == np.float32
    error = np.abs(decoded.astype(float) - vector)
    if name == "2-bit":
        for first in range(0, vector.size, CHUNK):
            chunk = slice(first, first + CHUNK)
            assert np.linalg.norm(error[chunk]) <= np.linalg.norm(vector[chunk].astype(float)) * (1 + 1e-5)
    else:
        assert (error <= bound(name, vector)).all()
    assert not decoded[vector == 0].any(), "an element without a gradient would be updated"


def test_a_message_has_the_bits_per_element_that_its_name_says():
    """And four bytes for each scale: one, or one for each 256 elements."""
    lengths = {name: encoding.n_bytes(1_024_000) for name, encoding in ENCODINGS.items()}
    scales = 4 * 4_000
    assert lengths == {
        "bfloat16": 2_048_000, "float16": 2_048_004, "int8": 1_024_000 + scales, "2-bit": 256_000 + scales,
    }  # fmt: skip


@ALL
def test_two_bits_and_more_are_as_exact_as_known_for_normal_elements(name):
    """The least error of three levels is 0.19 of the variance (Max 1960, table I)."""
    vector = np.random.default_rng(0).normal(size=100_000).astype(np.float32)
    decoded = ENCODINGS[name].decode(ENCODINGS[name].encode(vector), vector.size)
    assert np.mean((decoded - vector) ** 2) < {"bfloat16": 1e-5, "float16": 1e-6, "int8": 1e-4, "2-bit": 0.193}[name]


@ALL
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_element_that_is_not_finite_does_not_become_finite(name, bad):
    vector = np.linspace(-1, 1, 700).astype(np.float32)
    vector[300] = bad
    assert not np.isfinite(ENCODINGS[name].decode(ENCODINGS[name].encode(vector), 700)[300])


@settings(deadline=None)
@given(sequence=sequences)
@ALL
def test_the_decoded_messages_add_up_to_the_vectors_except_for_the_last_error(name, sequence):
    encoding, n = ENCODINGS[name], sequence.shape[1]
    feedback, total = ErrorFeedback(encoding, n), np.zeros(n)
    for vector in sequence:
        total += encoding.decode(feedback.encode(vector.copy()), n)
    np.testing.assert_allclose(total + feedback.held_back, sequence.sum(0, dtype=float), atol=1e-4)


@ALL
def test_what_is_held_back_stays_bounded(name):
    """Without feedback, the error of 1,000 messages of a small and a large element would be 1,000 small ones."""
    vector = np.full(CHUNK, 1e-3, np.float32)
    vector[0] = 1
    feedback = ErrorFeedback(ENCODINGS[name], CHUNK)
    total = sum(ENCODINGS[name].decode(feedback.encode(vector.copy()), CHUNK) for _ in range(1_000))
    np.testing.assert_allclose(total / 1_000, vector, rtol=0.1)


@ALL
def test_an_element_that_rests_is_sent_as_zero_and_its_remainder_is_kept(name):
    feedback = ErrorFeedback(ENCODINGS[name], 10, n_parts=2)
    feedback.held_back[:] = np.arange(10)
    message = feedback.encode(np.ones(10, np.float32), np.array([3, 7]))
    parts = [ENCODINGS[name].decode(part, 5) for part in np.split(message, 2)]
    decoded = np.concatenate(parts)
    assert list(decoded[[3, 7]]) == [0, 0]
    assert list(feedback.held_back[[3, 7]]) == [3, 7]
    others = [0, 1, 2, 4, 5, 6, 8, 9]
    np.testing.assert_allclose((decoded + feedback.held_back)[others], np.arange(1, 11)[others], rtol=1e-5)


@ALL
def test_the_receiver_knows_weights_that_no_longer_change(name):
    weights = np.random.default_rng(0).normal(size=500).astype(np.float32)
    start = np.zeros(500, np.float32)
    sender, receiver = KnownWeights(ENCODINGS[name], start), KnownWeights(ENCODINGS[name], start)
    for _ in range(200):
        receiver.follow(sender.encode(weights))
    np.testing.assert_array_equal(receiver.values, sender.values)
    np.testing.assert_allclose(receiver.values, weights, atol=1e-3)


# whole algorithms


def n_sent(options, n_steps=3, n_ranks=3):
    """The number of bytes that each rank sends in an epoch; of a collective, those for other ranks."""

    def run(comm):
        sent = []
        rank = Rank(comm, options, n_steps)
        comm = getattr(rank.algorithm, "leaders", comm)
        send, gather, spread, add = comm.Isend, comm.Allgather, comm.Alltoall, comm.Allreduce
        comm.Isend = lambda buffer, dest, tag=0: (sent.append(buffer.nbytes), send(buffer, dest, tag))[1]
        comm.Allgather = lambda own, found: (sent.append(own.nbytes * (n_ranks - 1)), gather(own, found))
        comm.Alltoall = lambda own, found: (sent.append(own.nbytes * (n_ranks - 1) // n_ranks), spread(own, found))
        comm.Allreduce = lambda _, own: (sent.append(own.nbytes), add(_, own))
        rank.algorithm.run(rank.steps(n_steps if rank.worker is not None else 0))
        return sum(sent)

    return run_ranks(n_ranks, run)


@ALL
def test_allreduce_sends_two_messages_for_each_part_and_the_sums(name):
    """Sums of 5 float32, and parts of 14 of the 40 elements."""
    message = {"bfloat16": 28, "float16": 4 + 28, "int8": 4 + 14, "2-bit": 4 + 4}[name]
    assert n_sent({"name": "allreduce", "compression": name}) == [3 * 2 * (4 * 5 + 2 * message)] * 3


@ALL
@pytest.mark.parametrize("algorithm", ["downpour", "easgd", "gem"])
def test_masters_and_workers_send_a_header_and_a_message_in_each_direction(algorithm, name):
    header, message = 16, {"bfloat16": 2 * N, "float16": 4 + 2 * N, "int8": 4 + N, "2-bit": 4 + N // 4}[name]
    master, *workers = n_sent({"name": algorithm, "compression": name})
    n_headers = 2 if algorithm == "gem" else 1  # of a pull and a push, or of a swap; and one at the end of the epoch
    assert workers == [3 * (n_headers * header + message) + header] * 2
    assert master == 2 * 3 * (header + message)


@ALL
def test_clusters_send_one_message_to_each_partner(name):
    message = {"bfloat16": 2 * N, "float16": 4 + 2 * N, "int8": 4 + N, "2-bit": 4 + N // 4}[name]
    options = {"name": "clusters", "size": 1, "exchange_every": 3, "neighbours": "all", "compression": name}
    assert n_sent(options) == [2 * message] * 3  # a cluster of one rank sums nothing


@pytest.mark.parametrize("name", ["int8", "2-bit"])
@pytest.mark.parametrize(
    "options",
    [
        {"name": "allreduce"},
        {"name": "downpour", "synchronous": True},
        {"name": "downpour", "synchronous": True, "masters": 2},
        {"name": "clusters", "size": 1, "exchange_every": 1, "neighbours": "all"},
        {"name": "clusters", "size": 1, "exchange_every": 1, "neighbours": "random"},
        {"name": "clusters", "size": 1, "exchange_every": 1, "neighbours": "ring"},
        {"name": "clusters", "size": 1, "exchange_every": 1, "outer": {"name": "nesterov"}},
        {"name": "easgd"},
        {"name": "gem"},
    ],
    ids=str,
)
def test_a_compressed_training_follows_one_in_float32(options, name):
    """The distance from the minimum of a parabola with noise, after a way of 0.64. The layout has counts, as models."""
    layout = FlatLayout(((6, 6), (2,))).with_counts()
    n_ranks = 6 if options.get("masters", 1) > 1 else 4
    has_turns = options["name"] in ("easgd", "gem", "clusters")  # in the others, the ranks wait for one another

    def optimizer(wanted, updates):
        return make_optimizer(wanted or Sgd(learning_rate=0.02), layout)

    def distance(section):
        turns = [Turns([*range(n_ranks - (options["name"] != "clusters"))] * 21) for _ in range(10)]

        def run(comm):
            rank = Rank(comm, section, 20, make=optimizer, weights_layout=layout)
            n_steps = 20 if rank.worker is not None else 0
            made = [rank.epoch(n_steps, turn if has_turns else None)["weights"] for turn in turns]
            return np.mean(made[5:], axis=0), len(rank.layout.workers)

        found = run_ranks(n_ranks, run)
        for weights, _ in found:
            np.testing.assert_array_equal(weights, found[0][0])
        n = found[0][1]
        minimum = -np.mean([mean_gradient(k, step, np.zeros(N)) for k in range(n) for step in range(200)], axis=0)
        return np.abs(found[0][0] - minimum)[: -layout.counts.size].mean()

    assert distance(options | {"compression": name}) == pytest.approx(distance(options), abs=0.03)


PROGRAM = f"""
import json
from mpi4py import MPI
from mpi_learn import train
from tests.mpi_learn.models_for_tests import line

model = {{"model": "{TORCH}:build_regression", "loss": "mse", "batch_size": 20, "epochs": 4}}
found = {{}}
for name, rate in (("gem", 0.01), ("easgd", 0.02)):
    for compression in ("none", "int8"):
        algorithm = {{"name": name, "compression": compression, "sync_every": 1}}
        optimizer = {{"name": "sgd", "learning_rate": rate}}
        result = train(model | {{"algorithm": algorithm, "optimizer": optimizer}}, MPI.COMM_WORLD, data=line())
        found.setdefault(name, []).append(result.history["loss"] + result.history["val_loss"])
if MPI.COMM_WORLD.rank == 0:
    print(json.dumps(found))
"""


@needs("torch")
@pytest.mark.mpi
def test_a_model_trains_with_changes_in_8_bits_as_with_whole_ones(tmp_path):
    """With one worker, whose order is fixed. The changes of a model have counts of 0, and are sent nevertheless."""
    done = in_world(2, "-c", PROGRAM, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for name, (whole, encoded) in json.loads(done.stdout).items():
        assert encoded == pytest.approx(whole, rel=0.02), name
        assert whole[-1] < 0.5 * whole[4], name


@needs("torch")
def test_a_training_with_compression_gets_no_more_ranks_in_elastic_blocks():
    for compression in ("none", "int8"):
        kept = KeptEpoch()
        model = {"model": f"{TORCH}:build_regression", "loss": "mse", "batch_size": {"total": 20}, "epochs": 1}
        train(
            model | {"algorithm": {"name": "allreduce", "compression": compression}},
            MPI.COMM_SELF,
            data=line(),
            kept=kept,
        )
        assert kept.is_bound == (compression == "int8")


def test_counts_are_exact_and_arrays_without_a_gradient_keep_their_remainders():
    """The second array is used by no rank in the first step, and by rank 1 alone in the second."""
    layout = FlatLayout(((30,), (30,))).with_counts()
    gradients = np.random.default_rng(0).normal(size=(2, 2, 60))

    def run(comm):
        reduction, found = make_reduction(AllReduce(compression="2-bit"), layout, comm.size), []
        for number in range(2):
            used = number == 1 and comm.rank == 1
            gradient = gradients[number, comm.rank] * np.repeat([1, used], 30)
            if number == 0:  # the second rank sums the elements from 31 on
                reduction.rank_state()["held_back"][30:60] = 1
                reduction.rank_state()["held_back_of_sums"][:29] = comm.rank
            step = np.concatenate([gradient, [1, used], [1, 0.5, 1, 0, 0]]).astype(np.float32)
            reduction.sum(comm, step)
            found.append(step)
            if number == 0:
                assert (reduction.rank_state()["held_back_of_sums"][:29] == 1).all() == (comm.rank == 1)
        return found, reduction.rank_state()["held_back"]

    for rank, ((first, second), held_back) in enumerate(run_ranks(2, run)):
        assert list(first[60:]) == [2, 0, 2, 1, 2, 0, 0]
        assert list(second[60:]) == [2, 1, 2, 1, 2, 0, 0]
        assert not first[30:60].any()
        assert second[30:60].any()
        assert (held_back[30:60] == 1).all() == (rank == 0), "rank 0 has used it in no step"


@pytest.mark.parametrize("section", [AllReduce, Downpour, Easgd, Gem, Clusters])
def test_every_algorithm_knows_the_same_compressions(section):
    assert section(compression="2-bit").compression == "2-bit"
    with pytest.raises(ValidationError, match="2-bit"):
        section(compression="3-bit")


def test_counts_are_exact_and_change_no_compressed_gradient():
    """Scales of 8 bits are those of the gradient alone, although a count is a thousand times as large."""
    plain, counted = FlatLayout(((4,), (5,))), FlatLayout(((4,), (5,), (2,)), has_counts=True)
    gradient = np.linspace(-1, 1, 9, dtype=np.float32)

    def summed(comm, layout, counts):
        reduction = make_reduction(AllReduce(compression="int8"), layout, comm.size)
        step = np.concatenate([gradient * (1 + comm.rank), counts, [1, 0, 1, 0, 0]]).astype(np.float32)
        reduction.sum(comm, step)
        return step

    without = run_ranks(2, lambda comm: summed(comm, plain, []))
    others = run_ranks(2, lambda comm: summed(comm, counted, [1000, 2000]))
    for one, other in zip(without, others, strict=True):
        assert list(other[9:11]) == [2000, 4000]
        np.testing.assert_allclose(other[:9], one[:9], atol=0.02)
