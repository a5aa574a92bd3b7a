"""`batch_size: auto`: the choice by timed steps, with a model in NumPy whose steps take the time of a formula."""

from __future__ import annotations

import json
import math
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn import read_configuration, train
from mpi_learn.errors import ConfigurationError, OutOfMemory, TrainingError
from mpi_learn.settings.yaml_file import read_yaml
from mpi_learn.testing.thread_ranks import run_ranks
from mpi_learn.training.checkpoints.checkpoint_file import load_checkpoint
from mpi_learn.training.result import save_result
from mpi_learn.training.timing import timed_choices
from mpi_learn.training.train import check
from tests.mpi_learn.configurations_for_tests import KERAS, NUMBERS
from tests.mpi_learn.linear_model import LinearModel
from tests.mpi_learn.models_for_tests import line
from tests.mpirun import patient_s
from tests.optional_packages import needs
from tests.world import in_world

AUTO = NUMBERS | {"batch_size": "auto", "epochs": 2, "seed": 4}
N = 100_000
"""Samples of most trainings: on one rank, an epoch of 20 steps has 5000 samples in each."""


class Timed:
    """The time of each rank, a thread, which passes only in steps.

    Attributes:
        step_s: A function of (rank, number of samples) that returns the seconds of a step, or raises.
        sizes: The numbers of samples of all steps of rank 0.
        n_models: Number of models that rank 0 has built.
    """

    def __init__(self):
        self.step_s = lambda rank, n: 1e-3 + 1e-5 * n
        self.sizes, self.n_models, self._of_thread = [], 0, threading.local()

    def perf_counter(self):
        return getattr(self._of_thread, "now_s", 0.0)

    def build(self, settings, example, composition):
        if settings.stream == 0:
            self.n_models += 1
        return TimedModel(self, settings.stream)

    def pass_step(self, rank, n):
        if rank == 0:
            self.sizes.append(n)
        self._of_thread.now_s = self.perf_counter() + self.step_s(rank, n)


class TimedModel(LinearModel):
    def __init__(self, timed, rank):
        super().__init__()
        self.timed, self.rank = timed, rank

    def gradient(self, x, y, weights=()):
        self.timed.pass_step(self.rank, len(x[0]))
        return super().gradient(x, y, weights)


@pytest.fixture
def timed(monkeypatch):
    timed = Timed()
    monkeypatch.setattr("mpi_learn.training.setup.make_model", timed.build)
    monkeypatch.setattr(timed_choices, "CHUNK_S", 0.004)  # fewer steps
    monkeypatch.setattr(timed_choices, "time", SimpleNamespace(perf_counter=timed.perf_counter))
    return timed


def chosen(n_ranks=1, n=N, **changes):
    """(batch size, sentence) of a training on several ranks, which must all be the same."""

    def run(comm):
        notes = []
        result = train(AUTO | {"epochs": 1} | changes, comm, data=line(n), on_note=notes.append)
        return result.batch_size, notes

    results = run_ranks(n_ranks, run, patient_s(60))
    assert len({size for size, _ in results}) == 1
    return results[0][0], results[0][1][0]


@pytest.mark.parametrize(("overhead_s", "n"), [(2e-5, 3000), (2e-4, 30_000), (1e-3, N)])
def test_larger_batches_than_the_chosen_one_are_at_most_five_percent_faster(timed, overhead_s, n):
    timed.step_s = lambda rank, n: overhead_s + 1e-5 * n
    size, why = chosen(n=n)
    speed = lambda n: n / timed.step_s(0, n)  # noqa: E731
    assert size == 32 or speed(size) > 1.05 * speed(size // 2)
    assert speed(2 * size) <= 1.05 * speed(size)
    assert why.startswith(f"batch_size: auto: {size} samples per worker and step, {speed(size):,.0f} samples/s: ")
    assert why.endswith("larger batches are at most 5 % faster")


def test_a_size_is_compared_with_all_smaller_ones():
    assert timed_choices.best_size({32: 100, 64: 104, 128: 108, 256: 114}) == 256
    assert timed_choices.best_size({32: 100, 64: 80, 128: 90}) == 32  # faster than its half alone
    assert timed_choices.best_size({32: 100, 64: 104}) == 32


def test_one_size_without_a_gain_does_not_end_the_timing(timed):
    slow = {64: 3.0}
    timed.step_s = lambda rank, n: (1e-3 + 1e-5 * n) * slow.get(n, 1.0)
    assert chosen()[0] == 1024


def test_all_ranks_choose_by_the_sum_of_their_speeds(timed):
    """The second rank alone would choose 32. Each rank has a clock of its own, which does not wait for the other."""
    timed.step_s = lambda rank, n: 1e-3 if rank == 0 else 1e-5 * n
    size, _ = chosen(2)
    sums = [n / 1e-3 + 1e5 for n in (size // 2, size, 2 * size)]
    assert size == 2048  # half of 100,000 samples, in at least 20 steps
    assert sums[1] > 1.05 * sums[0]


def test_an_epoch_has_at_least_twenty_steps(timed):
    timed.step_s = lambda rank, n: 1e-3
    size, why = chosen(n=20 * 256 + 19)
    assert size == 256
    assert "fewer than 20 steps" in why
    assert chosen(2, n=20 * 256)[0] == 128


@pytest.mark.parametrize(("n", "size"), [(1300, 64), (1279, 32), (639, 16), (50, 2), (7, 1)])
def test_few_samples_are_not_timed(timed, n, size):
    assert chosen(n=n)[0] == size
    assert timed.n_models == (2 if size > 32 else 1)


def test_timing_ends_before_a_limit(timed):
    timed.step_s = lambda rank, n: 0.02 * n**0.5
    size, why = chosen()
    assert "would take more than 15 s" in why
    of_timing = timed.sizes[: -math.ceil(N / size)]
    assert max(of_timing) == size
    spent_s = sum(timed.step_s(0, n) for n in of_timing)
    assert 15 / 2 < spent_s < 15


@pytest.mark.parametrize("error", [MemoryError, RuntimeError, OutOfMemory])
def test_a_size_that_needs_too_much_memory_on_one_rank_is_not_chosen(timed, error):
    text = "[enforce fail] DefaultCPUAllocator: can't allocate memory"

    def step_s(rank, n):
        if rank == 1 and n > 256:
            raise error(text)
        return 1e-3

    timed.step_s = step_s
    size, why = chosen(2)
    assert size == 256
    assert why.endswith("twice as many need too much memory")


def test_smaller_sizes_are_tried_if_memory_is_too_little_for_the_first_one(timed):
    def step_s(rank, n):
        if n > limit:
            raise MemoryError
        return 1e-3

    timed.step_s, limit = step_s, 9
    size, why = chosen(n=2000)
    assert (size, why.rpartition(": ")[2]) == (8, "twice as many need too much memory")
    limit = 0
    with pytest.raises(TrainingError, match="MemoryError"):
        chosen()


def test_another_error_of_a_step_is_raised(timed):
    def step_s(rank, n):
        if n == 64 and rank == 1:
            raise ValueError("boom")
        return 1e-3

    timed.step_s = step_s
    with pytest.raises(TrainingError, match="boom"):
        chosen(2)


def test_no_size_is_begun_for_which_the_host_has_probably_too_little_memory(timed, monkeypatch):
    timed.step_s = lambda rank, n: 1e-3
    peak_of = lambda n: 100_000 + 10 * n  # noqa: E731
    usage = lambda who: SimpleNamespace(ru_maxrss=peak_of(timed.sizes[-1]))  # noqa: E731
    monkeypatch.setattr(timed_choices.resource, "getrusage", usage)
    for limit, n_ranks in ((256, 1), (512, 1), (256, 2)):
        monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_SIZE", str(n_ranks))
        n_bytes = 1024 * (peak_of(2 * limit) - 1) * n_ranks
        monkeypatch.setattr(timed_choices, "host_memory_bytes", lambda n_bytes=n_bytes: n_bytes)
        timed.sizes.clear()
        size, why = chosen()
        assert (size, why.rpartition(": ")[2]) == (limit, "twice as many would need too much memory")


ALGORITHMS = {
    "allreduce": {},
    "accumulate": {"algorithm": {"name": "allreduce", "accumulate": 3}},
    "compression": {"algorithm": {"name": "allreduce", "compression": "top-k"}},
    "clusters": {"algorithm": {"name": "clusters", "size": 2}},
    "downpour": {"algorithm": {"name": "downpour"}},
    "easgd": {"algorithm": {"name": "easgd"}},
    "gem": {"algorithm": {"name": "gem"}},
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_trains_as_with_the_number_written_out(timed, name):
    """There is one worker with a parameter server, and one cluster: the order of the messages of several is free."""
    n_ranks = 4 if "allreduce" in ALGORITHMS[name].get("algorithm", {"name": "allreduce"})["name"] else 2

    def weights(batch_size):
        def run(comm):
            configuration = AUTO | ALGORITHMS[name] | {"batch_size": batch_size}
            result = train(configuration, comm, data=line(30_000))
            return result.batch_size, result.history["loss"], np.array(result.model)

        return run_ranks(n_ranks, run)

    automatic = weights("auto")
    n_workers = 1 if name in ("downpour", "easgd", "gem") else n_ranks
    explicit = weights({1: 1024, 2: 512, 4: 256}[n_workers])  # in at least 20 steps
    for (size, losses, values), (same_size, others, same) in zip(automatic, explicit, strict=True):
        assert size == same_size
        assert losses == others
        np.testing.assert_array_equal(values, same)


def test_callbacks_checkpoints_and_timelines_are_not_of_the_timing(timed, tmp_path):
    (tmp_path / "seen.py").write_text(
        f"def build():\n    open({str(tmp_path / 'built')!r}, 'a').write('x')\n"
        "    return lambda epoch, metrics, model: False\n"
    )
    seen = []
    on_epoch = lambda epoch, metrics: bool(seen.append(epoch))  # noqa: E731
    files = {"checkpoint": {"path": str(tmp_path / "checkpoint")}, "trace": str(tmp_path / "trace")}
    early = {"target": {"metric": "loss", "above": 0.0}, "callbacks": [f"{tmp_path}/seen.py:build"]}
    result = train(AUTO | files | early, MPI.COMM_SELF, data=line(N), on_epoch=on_epoch)
    assert seen == [0]
    assert (tmp_path / "built").read_text() == "x"
    assert (result.epochs, result.stopped_by) == (1, "target")
    spans = (tmp_path / "trace").glob("*")
    assert sum("gradient" in path.read_text() for path in spans) == 1
    assert load_checkpoint(tmp_path / "checkpoint").metadata["epoch"] == 1


def test_a_checkpoint_has_the_number_and_a_resume_does_not_time_again(timed, tmp_path):
    configuration = AUTO | {"checkpoint": {"path": str(tmp_path / "own")}}
    first = train(configuration, MPI.COMM_SELF, data=line(N))
    assert load_checkpoint(tmp_path / "own").metadata["training"]["batch_size"] == first.batch_size == 1024
    timed.step_s = lambda rank, n: 1e-3  # now the largest size would be the best
    timed.n_models, notes = 0, []
    longer = train(configuration | {"epochs": 3}, MPI.COMM_SELF, data=line(N), on_note=notes.append)
    assert (longer.batch_size, longer.epochs_before, timed.n_models) == (1024, 2, 1)
    assert notes == ["batch_size: auto: 1024 samples per worker and step, as in the checkpoint"]
    start = {"path": str(tmp_path / "other"), "start_from": str(tmp_path / "own")}
    other = train(configuration | {"epochs": 4, "checkpoint": start}, MPI.COMM_SELF, data=line(N))
    assert (other.batch_size, other.epochs_before) == (1024, 3)
    anew = train(
        configuration | {"checkpoint": {"path": str(tmp_path / "own"), "resume": False}}, MPI.COMM_SELF, data=line(N)
    )
    assert anew.batch_size == 4096


def test_a_checkpoint_with_a_total_batch_does_not_fit_auto(timed, tmp_path):
    checkpoint = {"checkpoint": {"path": str(tmp_path)}}
    train(AUTO | checkpoint | {"batch_size": {"total": 64}}, MPI.COMM_SELF, data=line(200))
    with pytest.raises(ConfigurationError, match="another batch_size"):
        train(AUTO | checkpoint, MPI.COMM_SELF, data=line(200))


def test_the_saved_training_has_the_number(timed, tmp_path):
    configuration = read_configuration(AUTO)
    result = train(configuration, MPI.COMM_SELF, data=line(N))
    result.save_model = lambda path: path
    save_result(tmp_path, configuration, result)
    assert read_yaml(tmp_path / "training.yaml")["batch_size"] == 1024


def test_check_says_which_number_a_training_on_one_rank_would_have(timed, monkeypatch):
    monkeypatch.setattr("mpi_learn.training.train.why_unsavable", lambda model: None)
    monkeypatch.setattr("mpi_learn.training.train.NAMES", {"numpy": "NumPy"})
    text = check(read_configuration(AUTO), MPI.COMM_SELF, data=line(N))
    assert "98 steps of 1024 per epoch" in text
    assert "batch_size: auto: 1024 samples per worker and step" in text


DEALT = {"train": "a.h5", "features": "X", "labels": "y", "share": "dynamic"}


@pytest.mark.mpi
@pytest.mark.parametrize("framework", [pytest.param(one, marks=needs(one)) for one in ("keras", "torch")])
def test_a_training_with_random_numbers_is_that_with_the_number_written_out(framework, tmp_path):
    """Weights, losses and batch statistics are equal to the last bit: the timing leaves nothing behind."""
    program = Path(__file__).parent / "programs" / "automatic_batch.py"
    done = in_world(2, str(program), framework, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["is_same"]
    assert found["sizes"] in ([32, 32], [64, 64])
    assert found["notes"][0].startswith(f"batch_size: auto: {found['sizes'][0]} samples per worker and step, ")
    assert "samples/s" in found["notes"][0]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"gan": {"latent": 3}, "model": f"{KERAS}:build_gan"}, "gan"),
        ({"pipeline": {"stages": 2}}, "pipeline"),
        ({"algorithm": {"name": "downpour"}, "data": DEALT}, "share: dynamic"),
    ],
)
def test_auto_is_refused_where_a_step_is_no_batch_of_one_model(changes, named):
    with pytest.raises(ConfigurationError, match="batch_size: auto does not support .*" + named):
        read_configuration(AUTO | changes)


@pytest.mark.parametrize("value", ["automatic", 0, "Auto"])
def test_another_word_than_auto_is_refused(value):
    with pytest.raises(ConfigurationError, match="batch_size"):
        read_configuration(AUTO | {"batch_size": value})
