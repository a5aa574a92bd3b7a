"""Schedules, micro-batches and the division of layers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpi_learn.errors import ConfigurationError, ModelError
from mpi_learn.models.pipeline.schedules import SCHEDULES, micro_batches
from mpi_learn.models.pipeline.section import PipelineSection
from mpi_learn.models.pipeline.split import Layer, even_bounds, stage_bounds
from mpi_learn.training.configuration import read_configuration
from tests.optional_packages import needs

SIZES = st.tuples(st.integers(1, 6), st.integers(1, 9))


class RecordingStage:
    """A stage of `torch.distributed.pipelining` that sends nothing and records the passes."""

    has_backward = True

    def __init__(self, index, n_stages):
        self.stage_index, self.num_stages, self.group_size = index, n_stages, n_stages
        self.is_first, self.is_last = index == 0, index == n_stages - 1
        self.passes = []

    def forward_one_chunk(self, index, *arguments, **options):
        self.passes.append((True, index))

    def backward_one_chunk(self, index, **options):
        self.passes.append((False, index))

    def __getattr__(self, name):
        return lambda *arguments, **options: []


@needs("torch")
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_are_those_of_pytorch(name):
    from torch.distributed.pipelining import schedules

    kind = {"gpipe": schedules.ScheduleGPipe, "1f1b": schedules.Schedule1F1B}[name]
    for n_stages, n in itertools.product(range(1, 6), range(1, 9)):
        if n < n_stages and name == "1f1b":  # PyTorch refuses it
            continue
        for index in range(n_stages):
            stage = RecordingStage(index, n_stages)
            schedule = kind(stage, n, loss_fn=None)
            schedule._initialize_stage = lambda *arguments: None
            schedule._step_microbatches()
            assert SCHEDULES[name](index, n_stages, n) == stage.passes, (n_stages, n, index)


@pytest.mark.parametrize("name", SCHEDULES)
@given(sizes=SIZES)
def test_stages_can_make_their_passes_in_the_order_of_the_schedule(name, sizes):
    """Each array is sent before it is received, and a stage has activations before it needs them."""
    n_stages, n = sizes
    waiting = [list(SCHEDULES[name](stage, n_stages, n)) for stage in range(n_stages)]
    done = set()

    def is_ready(stage, operation):
        source = stage - 1 if operation.is_forward else stage + 1
        needed = {(stage, True, operation.micro_batch)} if not operation.is_forward else set()
        if 0 <= source < n_stages:
            needed.add((source, *operation))
        return needed <= done

    while any(waiting):
        ready = [stage for stage, operations in enumerate(waiting) if operations and is_ready(stage, operations[0])]
        assert ready, "all stages wait"
        for stage in ready:
            done.add((stage, *waiting[stage].pop(0)))
    assert len(done) == 2 * n_stages * n


@given(sizes=SIZES)
def test_one_forward_one_backward_keeps_few_activations(sizes):
    n_stages, n = sizes
    for stage in range(n_stages):
        kept = itertools.accumulate(1 if one.is_forward else -1 for one in SCHEDULES["1f1b"](stage, n_stages, n))
        assert max(kept) == min(n, n_stages - stage)


@given(n=st.integers(0, 50), wanted=st.integers(1, 9), least=st.integers(1, 3))
def test_micro_batches_hold_all_samples_and_are_of_equal_size(n, wanted, least):
    parts = micro_batches(n, wanted, least)
    assert [index for part in parts for index in range(n)[part]] == list(range(n))
    sizes = [part.stop - part.start for part in parts]
    assert len(parts) <= wanted
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    assert len(parts) == wanted or n < least * (len(parts) + 1)
    assert min(sizes, default=least) >= min(least, max(n, 1))


@given(costs=st.lists(st.integers(0, 9), min_size=1, max_size=8), data=st.data())
def test_stages_are_as_equal_as_possible(costs, data):
    n = data.draw(st.integers(1, len(costs)))

    def largest(bounds):
        return max(sum(costs[first:stop]) for first, stop in itertools.pairwise([*bounds, len(costs)]))

    every = ([0, *cuts] for cuts in itertools.combinations(range(1, len(costs)), n - 1))
    assert largest(even_bounds(costs, n)) == min(map(largest, every))


def layers(costs):
    return [Layer(float(cost), cost) for cost in costs]


def test_a_stage_begins_with_a_trained_layer():
    section = PipelineSection(stages=2)
    assert stage_bounds(layers([0, 5, 0, 0, 5, 0]), section) == [0, 4, 6]
    closed = [*layers([5, 0]), Layer(5.0, 5, starts_stage=False), *layers([5])]
    assert stage_bounds(closed, section) == [0, 3, 4]


def test_layers_are_divided_by_operations_or_parameters_or_as_written():
    of_layers = [Layer(9.0, 1), Layer(1.0, 1), Layer(1.0, 9)]
    assert stage_bounds(of_layers, PipelineSection(stages=2)) == [0, 1, 3]
    assert stage_bounds(of_layers, PipelineSection(stages=2, split="parameters")) == [0, 2, 3]
    assert stage_bounds(of_layers, PipelineSection(stages=2, split=[2, 1])) == [0, 2, 3]


@pytest.mark.parametrize(
    ("split", "stages", "said"),
    [([1, 1], 2, "found \\[1, 1\\]"), ([1, 2], 3, "of 3 stages"), ("balanced", 4, "into 3 stages at most")],
)
def test_a_division_that_is_not_possible_is_refused(split, stages, said):
    with pytest.raises(ModelError, match=said):
        stage_bounds(layers([1, 2, 3]), PipelineSection(stages=stages, split=split))


def test_no_stage_begins_where_a_skip_connection_or_a_shared_layer_would_be_divided():
    closed = [*layers([5]), Layer(5.0, 5, starts_stage=False), *layers([5])]
    with pytest.raises(ModelError, match="cannot begin with layer 1"):
        stage_bounds(closed, PipelineSection(stages=2, split=[1, 2]))


def with_stages(**section):
    return read_configuration({"model": "a.py:build", "loss": "mse", "pipeline": {"stages": 2} | section})


def test_activations_in_two_bits_are_refused_with_the_forms_that_train():
    with pytest.raises(ConfigurationError, match=r"no '2-bit'(.|\n)*known: none, bfloat16, float16, int8"):
        with_stages(compression="2-bit")


def test_small_messages_between_stages_have_errors_but_those_of_one_stage_do_not():
    assert with_stages(compression="int8").is_compressed
    assert not with_stages().is_compressed
    assert not with_stages(stages=1, compression="int8").is_compressed
