"""Builds the stages of a model, each on its rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mpi_learn.models.network import Network
from mpi_learn.models.pipeline.model import Facts, PipelineModel
from mpi_learn.models.pipeline.section import PipelineSection
from mpi_learn.models.pipeline.stage import Stage, StagesOfFramework
from mpi_learn.models.settings import Example, ModelSettings
from mpi_learn.mpi.communicators import result_of_rank


def connected(
    of_framework: StagesOfFramework,
    model: Any,
    settings: ModelSettings,
    example: Example,
    section: PipelineSection,
    rebuild: Callable[[Sequence[np.ndarray]], Network],
) -> PipelineModel:
    """The model of a rank that holds `model` as its stage. Collective over ``settings.chain``.

    The stages are built one after the other, each with the activations of the one before.

    Args:
        rebuild: Makes the whole model from the `Stage.values` of all stages.
    """
    chain, made, shapes = settings.chain, list[Stage](), list[tuple[int, ...]]()
    assert chain is not None
    last = chain.size - 1
    x = example.x

    def build(rank: int) -> np.ndarray | None:
        inputs = example if rank == 0 else replace(example, x=x, x_names=())
        made.append(of_framework.stage(model, settings, inputs, is_first=rank == 0, is_last=rank == last))
        return None if rank == last else made[0].infer(inputs.x)

    for rank in range(chain.size):
        activations = result_of_rank(chain, partial(build, rank), rank)
        if activations is not None:
            x = [activations]
            shapes.append(activations.shape[1:])
    stage = made[0]
    of_stages = chain.allgather(
        (stage.least_samples, stage.network.synchronizes_statistics, stage.network.has_unsaved_random)
    )

    def facts() -> Facts:
        assert stage.last is not None
        one, least, synchronizes, unsaved = stage.last, *zip(*of_stages, strict=True)
        return Facts(
            tuple(shapes),
            one.n_sums,
            one.has_custom_loss,
            one.divides_by_weights,
            one.can_evaluate,
            tuple(one.notes),
            max(least),
            any(synchronizes),
            one.has_unsaved_random or any(unsaved),
        )

    return PipelineModel(stage, chain, settings, section, result_of_rank(chain, facts, last), rebuild)
