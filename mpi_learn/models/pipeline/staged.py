"""A model in stages, as the section ``pipeline:`` describes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from mpi_learn.data.samples.stored_samples import AddedInput
from mpi_learn.errors import ModelError
from mpi_learn.models.building.frameworks import framework_of, prepared, runs_on_torch, without_tensorflow
from mpi_learn.models.building.users_model import built_by_user, shown
from mpi_learn.models.configuration import ModelConfiguration
from mpi_learn.models.model import Composition, Model, Part
from mpi_learn.models.network import Network
from mpi_learn.models.pipeline.section import PipelineSection
from mpi_learn.models.pipeline.split import segment_starts, stage_bounds, with_times
from mpi_learn.models.pipeline.stage import StagesOfFramework
from mpi_learn.models.settings import Example, ModelSettings
from mpi_learn.optimizers.configuration import AnyOptimizer
from mpi_learn.settings.user_code import errors_of_user_code


class StagedModel(Composition):
    """One model whose stages are on different ranks; a single rank holds all stages.

    The user's function returns one sequential model, or a list with one entry per stage: a model, or a function without
    arguments that builds it. Each rank calls only its own function.

    Args:
        notes: See `Model.notes`.
    """

    key = "pipeline"

    def __init__(self, section: PipelineSection, notes: Sequence[str] = ()) -> None:
        self.section, self._notes = section, notes

    def measured(
        self, settings: ModelSettings, example: Example, earlier: Sequence[int], n_samples: int
    ) -> StagedModel:
        if self.section.split != "time":
            return self
        with prepared(settings.configuration.seed, settings.configuration.precision):
            model = built_by_user(settings.configuration)
        if framework_of(model) is None:  # a list of stages, or an error of which `models_of` says more
            return self
        of_framework = _of_framework(model)
        layers = of_framework.layers(model, example.x)
        bounds, how = [0, *accumulate(earlier)], "as in the checkpoint"
        if len(earlier) != self.section.stages or bounds[-1] != len(layers):  # none, or of another model
            stage_bounds(layers, self.section)  # raises an error before anything is measured
            # times do not depend on the values: the samples are repeated
            x = [np.resize(array, (n_samples, *array.shape[1:])) for array in example.x]
            places = [*segment_starts(layers), len(layers)]
            seconds = of_framework.seconds(model, places, replace(example, x=x), settings)
            bounds, how = stage_bounds(with_times(layers, seconds), self.section), "by measured time"
        sizes = [stop - first for first, stop in pairwise(bounds)]
        notes = [f"{how}, the stages have {', '.join(map(str, sizes))} layers"]
        return StagedModel(self.section.model_copy(update={"split": sizes}), notes)

    def check(self, configuration: ModelConfiguration, *, compression: str, accumulate: int) -> None:
        pass

    def models_of(self, built: Any, settings: ModelSettings) -> Mapping[str, Any]:
        """One model with an empty name, or models by the number of their stage: only those that this rank holds."""
        if not isinstance(built, list | tuple):
            return {"": built}
        where, n = settings.configuration.model, self.section.stages
        if len(built) != n:
            raise ModelError(
                f"expected one model per stage, {n} in all, it returned {len(built)}",
                where=where,
                cure=f"return {n} models, or write `pipeline: {{stages: {len(built)}}}`",
            )
        mine = range(n) if settings.chain is None else [settings.chain.rank]
        models = {str(index): _called(built[index], settings, index) for index in mine}
        if others := [model for model in models.values() if framework_of(model) is None]:
            raise ModelError(
                f"expected models of Keras or PyTorch, or functions that build them, found {shown(others[0])}",
                where=where,
                cure="return one model per stage",
            )
        if built := [model for model in built if framework_of(model) is not None]:
            _of_framework(built[0]).check_separate(built)
        return models

    def compose(
        self, models: Mapping[str, Any], as_network: Callable[[Any], Network], settings: ModelSettings, example: Example
    ) -> Model:
        # a command that reads a configuration loads no MPI
        from mpi_learn.models.pipeline.connect import connected
        from mpi_learn.mpi.communicators import agreed_errors

        of_framework, chain = _of_framework(next(iter(models.values()))), settings.chain
        if chain is None:
            return of_framework.whole(of_framework.joined(list(models.values())), settings, example)

        def rebuild(values: Sequence[np.ndarray]) -> Network:
            with (
                prepared(settings.configuration.seed, settings.configuration.precision),
                errors_of_user_code("building all stages", settings.configuration.model, ModelError),
            ):
                model = joined(built_by_user(settings.configuration))
            return of_framework.restored(model, values, settings, example)

        sizes: tuple[int, ...] = ()
        with agreed_errors(chain, rank=settings.stream):
            mine = models.get(str(chain.rank))
            if mine is None:
                bounds = stage_bounds(of_framework.layers(models[""], example.x), self.section)
                sizes = tuple(stop - first for first, stop in pairwise(bounds))
                mine = of_framework.part(models[""], bounds, chain.rank)
        made = connected(of_framework, mine, settings, example, self.section, rebuild)
        made.notes, made.layers_of_stages = (*made.notes, *self._notes), sizes
        return made

    def parts(self, optimizer: AnyOptimizer) -> list[Part]:
        return [Part("optimizer", optimizer)]

    def added_input(self, seed: int) -> AddedInput | None:
        return None


def joined(built: Any) -> Any:
    """The whole model, from what the user's function returns: one model, or one per stage."""
    if not isinstance(built, list | tuple):
        return built
    models = [entry if framework_of(entry) is not None else entry() for entry in built]
    return _of_framework(models[0]).joined(models)


def _called(entry: Any, settings: ModelSettings, index: int) -> Any:
    """A model of the user's list, or the result of a function in it, which begins with a seed of its own."""
    if framework_of(entry) is not None or not callable(entry):
        return entry
    with (
        prepared(settings.configuration.seed + index, settings.configuration.precision),
        errors_of_user_code(f"building stage {index}", settings.configuration.model, ModelError),
    ):
        return entry()


def _of_framework(model: Any) -> StagesOfFramework:
    if runs_on_torch(model):
        raise without_tensorflow("`pipeline:`")
    if framework_of(model) == "keras":
        from mpi_learn.models.keras_.stages import KerasStages

        return KerasStages()
    from mpi_learn.models.torch_.stages import TorchStages

    return TorchStages()
