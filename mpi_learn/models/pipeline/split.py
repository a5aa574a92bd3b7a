"""Where a sequence of layers is divided into stages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from math import prod
from time import perf_counter
from typing import NamedTuple

from mpi_learn.errors import ModelError
from mpi_learn.models.pipeline.section import PipelineSection


class Layer(NamedTuple):
    """What the division needs of a layer.

    Attributes:
        operations: Multiplications of a forward pass, relative to other layers.
        n_parameters: Number of trained parameters.
        starts_stage: Whether a stage may begin with it: only one array passes from the layers before to it and to those
            after it, and no layer is on both sides.
    """

    operations: float
    n_parameters: int
    starts_stage: bool = True


def operations(n_parameters: int, shapes: Sequence[Sequence[int]], *, channels_first: bool) -> float:
    """An estimate of the multiplications of a layer: its parameters times the places at which they are used.

    Args:
        n_parameters: Without those of embeddings, of which a sample reads few.
        shapes: The shapes of input and output of one sample.
        channels_first: Whether the first axis counts features and the others count places, else the last axis does.
    """
    places = [prod(shape[1:] if channels_first else shape[:-1]) for shape in shapes]
    return float(n_parameters * max([1, *places]))


def shared_weights(name: str, one: int, other: int) -> ModelError:
    """The error of two stages that share weights."""
    return ModelError(
        f"stages {one} and {other} share the weights {name}, and each would train its own",
        where="model",
        cure="give each stage its own weights, or divide the model elsewhere with `pipeline: {split: […]}`",
    )


def stage_bounds(layers: Sequence[Layer], section: PipelineSection) -> list[int]:
    """The index of the first layer of each stage, and the number of layers, (stages + 1,).

    A stage begins with a layer that is trained. Layers without parameters, such as activations, belong to the layer
    before: otherwise a stage might have nothing to train.

    Raises:
        ModelError: The model cannot be divided like this.
    """
    n, wanted = section.stages, section.split
    if isinstance(wanted, list):
        bounds = [0, *accumulate(wanted)]
        if len(wanted) != n or bounds[-1] != len(layers):
            raise ModelError(
                f"expected the numbers of layers of {n} stages, {len(layers)} in all, found {wanted}",
                where="pipeline.split",
                cure="write one number per stage, or `split: balanced`",
            )
        if closed := [bound for bound in bounds[1:-1] if not layers[bound].starts_stage]:
            raise ModelError(
                f"a stage cannot begin with layer {closed[0]}: a skip connection or a shared layer would be divided",
                where="pipeline.split",
                cure="move the cut, or write `split: balanced`",
            )
        return bounds
    starts = segment_starts(layers)
    if len(starts) < n:
        raise ModelError(
            f"the model can be divided into {len(starts)} stages at most, found pipeline.stages {n}: a stage needs a "
            "trained layer, and no skip connection or shared layer may cross a cut",
            where="model",
            cure="write fewer stages, or return a list of models, one per stage",
        )
    # cuts are allowed at the beginnings of segments alone, so that whole segments are distributed, and not layers
    costs = [float(layer.n_parameters) if wanted == "parameters" else layer.operations for layer in layers]
    sums = [0.0, *accumulate(costs)]
    of_segments = [sums[stop] - sums[first] for first, stop in zip(starts, [*starts[1:], len(layers)], strict=True)]
    return [*(starts[index] for index in even_bounds(of_segments, n)), len(layers)]


def segment_starts(layers: Sequence[Layer]) -> list[int]:
    """The layers with which a stage may begin. The first one includes the layers before the first trained one."""
    starts = [index for index, layer in enumerate(layers) if layer.starts_stage and layer.n_parameters]
    return [0, *starts[1:]]


def with_times(layers: Sequence[Layer], seconds: Sequence[float]) -> list[Layer]:
    """The layers with measured times in place of their operations.

    Args:
        seconds: The time of the layers from each of `segment_starts` to the next.
    """
    of_layers = dict(zip(segment_starts(layers), seconds, strict=True))
    return [layer._replace(operations=of_layers.get(index, 0.0)) for index, layer in enumerate(layers)]


def shortest_s(run: Callable[[], object], n: int = 3) -> float:
    """The shortest time of `n` calls, after one that prepares it. Other load of the host makes single calls longer."""
    run()
    times = []
    for _ in range(n):
        started = perf_counter()
        run()
        times.append(perf_counter() - started)
    return min(times)


def even_bounds(costs: Sequence[float], n_parts: int) -> list[int]:
    """The first index of each of `n_parts` parts of `costs` whose largest sum is as small as possible."""
    sums = [0.0, *accumulate(costs)]

    @cache
    def best(first: int, n: int) -> tuple[float, int]:
        """The largest sum of the best `n` parts of the costs from `first` on, and where the second part begins."""
        if n == 1:
            return sums[-1] - sums[first], len(costs)
        stops = range(first + 1, len(costs) - n + 2)
        return min((max(sums[stop] - sums[first], best(stop, n - 1)[0]), stop) for stop in stops)

    bounds = [0]
    for n in range(n_parts, 1, -1):
        bounds.append(best(bounds[-1], n)[1])
    return bounds
