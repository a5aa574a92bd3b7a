"""The keys of a ``training.yaml``, with their types, defaults and meanings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from mpi_learn.algorithms.configuration import AlgorithmConfiguration, AllReduce, Downpour, ParameterServer
from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.errors import ConfigurationError
from mpi_learn.models.configuration import ModelConfiguration
from mpi_learn.models.gan.section import GanSection
from mpi_learn.models.outputs import possible_names
from mpi_learn.models.pipeline.section import PipelineSection
from mpi_learn.optimizers.configuration import Adam, CustomOptimizer, NotFused, OptimizerConfiguration, Schedule
from mpi_learn.settings import suggestions
from mpi_learn.settings.component import Named, with_absolute_paths
from mpi_learn.settings.paths import expanded
from mpi_learn.settings.suggestions import MISSPELT_LIKENESS, nearest, suggestion
from mpi_learn.settings.user_code import absolute_specification
from mpi_learn.settings.validation import InvalidValue, key_in_file, listed, validated
from mpi_learn.settings.yaml_file import read_yaml
from mpi_learn.training.sections import AUTO, BatchSize, Checkpoint, EarlyStopping, Target, TotalBatch, Validation

if TYPE_CHECKING:  # NumPy is slow to import, and commands that only read a configuration do not need it
    from mpi_learn.models.model import Composition, Part

NAMED = ("loss", "metrics", "weighted_metrics", "callbacks", "optimizer")
"""Keys that name functions."""


class TrainingConfiguration(ModelConfiguration):
    """A whole ``training.yaml``."""

    equivalents: ClassVar[Mapping[str, str]] = suggestions.TRAINING

    data: DataConfiguration | None = Field(None, description="The samples (required).")
    optimizer: OptimizerConfiguration = Field(Adam(), description="The optimizer.")
    algorithm: AlgorithmConfiguration = Field(
        AllReduce(), description="How the ranks combine their gradients or weights."
    )
    sync_batchnorm: bool = Field(
        False,
        description="allreduce: average moving means and variances over the ranks after every step, not every epoch.",
    )
    gan: GanSection | None = Field(
        None, description="`model` returns a generator and a discriminator that train each other."
    )
    pipeline: PipelineSection | None = Field(
        None, description="Each model is on several ranks, which hold some of its layers each."
    )
    batch_size: BatchSize = Field(
        32,
        description="Samples per worker and step; or, with allreduce, {total: 512}: the samples of a step of all "
        "workers, with which results do not depend on the number of ranks. auto: the power of two from which on larger "
        "batches are at most 5 % faster, found by timing steps at the start.",
    )
    epochs: int = Field(1, ge=1, description="Number of passes over the training samples.")
    early_stopping: EarlyStopping | None = Field(None, description="Stop when a metric no longer improves.")
    target: Target | None = Field(None, description="Stop as soon as a metric reaches a value.")
    callbacks: Annotated[list[Named], BeforeValidator(listed)] = Field(
        [],
        description="Called after every epoch on the first worker: file.py:function of (epoch, metrics, model), which "
        "returns whether to stop, or a function that returns such a function; or a callback of Keras, {name: "
        "CSVLogger, filename: log.csv}, whose file is relative to the current directory. With `checkpoint`, the same "
        "command continues a training that a callback has stopped, as a second call of `fit` does; one that "
        "`early_stopping` or `target` has ended stays as it is.",
    )
    checkpoint: Checkpoint | None = Field(None, description="Where and how often checkpoints are written.")
    validation: Validation = Field(Validation(), description="When, and by which ranks, the model is validated.")
    xla: bool | Literal["auto"] = Field(
        "auto",
        description="Keras: whether XLA compiles the step. auto: if it is faster in a few timed steps, the same on all "
        "ranks; only trainings of more than a minute and 600 steps are timed. XLA changes the last digits of results.",
    )
    monitor: bool = Field(False, description="Add the CPU and memory use of all ranks to the history.")
    trace: Path | None = Field(
        None,
        description="Folder for every rank's timeline; see `mpi-learn trace`. Each run removes the timelines of the "
        "last one, also if it continues from a checkpoint. In a search, each trial has a folder in it.",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        algorithm = self.algorithm
        if self.is_dealt and (not isinstance(algorithm, ParameterServer) or algorithm.processes > 1):
            raise InvalidValue(
                "data.share: dynamic needs a master, which deals out samples",
                "write `algorithm: downpour`, easgd or gem with `processes: 1`, or leave data.share out",
            )
        if self.sync_batchnorm and algorithm.name != "allreduce":
            raise InvalidValue(
                "sync_batchnorm needs an algorithm in which all ranks make the same steps",
                "write `algorithm: {name: allreduce}`, or leave sync_batchnorm out",
            )
        if (total := self.total_batch) is not None:
            _check_total(total, algorithm)
        if self.batch_size == AUTO:
            self._check_auto()
        if self.pipeline is not None:
            self._check_pipeline(self.pipeline)
        if self.composition is not None:
            exchange = algorithm if isinstance(algorithm, AllReduce) else AllReduce()
            self.composition.check(self, compression=exchange.compression, accumulate=exchange.accumulate)
        if self.precision == "mixed_float16":
            self._check_float16()
        if self.compile and self.validation.mode == "thread":
            raise InvalidValue(
                "torch.compile is not supported with `validation: {mode: thread}`: one thread alone may compile",
                "leave one of them out",
            )
        # a master has weights alone; an optimizer of a framework needs the variables of a model
        not_fused = next((part.optimizer for part in self.parts if isinstance(part.optimizer, NotFused)), None)
        if isinstance(algorithm, Downpour) and not_fused is not None:
            raise InvalidValue(
                f"downpour updates the weights on a master, which has no model for {not_fused.name}",
                "write algorithm: allreduce, clusters, easgd or gem, or another optimizer, such as adam",
            )
        return self

    def _check_float16(self) -> None:
        """Raises InvalidValue where a rank could not learn that the gradient of another one is not finite."""
        compression = getattr(self.algorithm, "compression", "none")
        rules = (
            (self.algorithm.name == "allreduce", f"algorithm: {self.algorithm.name}"),
            (compression == "none", f"compression: {compression}"),
            (self.gan is None, "gan"),
            (self.n_stages == 1, "pipeline"),
        )
        for is_met, what in rules:
            if not is_met:
                raise InvalidValue(
                    f"mixed_float16 does not support {what}: its ranks would scale their losses differently",
                    "write `precision: mixed_bfloat16`, which needs no scale",
                )

    def _check_pipeline(self, pipeline: PipelineSection) -> None:
        """Raises InvalidValue for settings that need the whole model on each rank."""
        optimizer = self.optimizer
        rules = (
            (self.gan is None, "gan", "train the two models without `pipeline:`"),
            (self.algorithm.name == "allreduce", f"algorithm: {self.algorithm.name}", "write `algorithm: allreduce`"),
            (self.shards is None, "batch_size.shards", "write `pipeline: {micro_batches: …}`"),
            (self.total_batch is None or not self.total_batch.balance, "batch_size.balance", "leave it out"),
            (not self.callbacks, "callbacks, which receive the whole model", "leave them out"),
            (self.validation.mode != "thread", "validation: {mode: thread}", "write `mode: distributed`"),
            (self.xla is not True, "xla: true", "leave it out"),
            (optimizer.clip_norm is None, "optimizer.clip_norm, the norm over all stages", "write `clip_value`"),
            (
                not isinstance(optimizer, CustomOptimizer) or optimizer.name.startswith(("torch.", "keras.")),
                f"optimizer: {optimizer.name}, which may use all weights",
                "name an optimizer of MPI Learn or of the framework",
            ),
            (
                not (isinstance(optimizer, NotFused) and "global_clipnorm" in optimizer.component.arguments),
                "optimizer.global_clipnorm, the norm over all stages",
                "write `clip_value`",
            ),
        )
        for is_met, what, cure in rules:
            if not is_met and pipeline.stages > 1:
                raise InvalidValue(f"pipeline does not support {what}", cure)

    def _check_auto(self) -> None:
        """Raises InvalidValue where a step is more than a batch of samples of one model."""
        for key, is_set in (
            ("gan", self.gan is not None),
            ("pipeline", self.n_stages > 1),
            ("data: {share: dynamic}", self.is_dealt),
        ):
            if is_set:
                raise InvalidValue(f"batch_size: auto does not support {key}", "write the number of samples per worker")

    @property
    def n_stages(self) -> int:
        """Number of ranks that hold one model."""
        return 1 if self.pipeline is None else self.pipeline.stages

    @property
    def n_micro_batches(self) -> int:
        """Number of parts of a batch whose gradients are added."""
        return 1 if self.pipeline is None or self.n_stages == 1 else self.pipeline.micro_batches

    @property
    def is_compressed(self) -> bool:
        """Whether messages of a step have errors, which depend on how its samples are divided over ranks."""
        of_stages = self.pipeline is not None and self.n_stages > 1 and self.pipeline.compression != "none"
        return of_stages or self.algorithm.compression != "none"

    @property
    def total_batch(self) -> TotalBatch | None:
        """The section ``batch_size:``; None if it is the number of samples per worker, or `AUTO`."""
        return self.batch_size if isinstance(self.batch_size, TotalBatch) else None

    @property
    def shards(self) -> int | None:
        """The number of shards of a step; None if each worker computes its samples as one batch."""
        return None if self.total_batch is None else self.total_batch.shards

    def samples_at_once(self, n_workers: int) -> int:
        """The largest number of samples from which a worker computes one gradient."""
        assert not isinstance(self.batch_size, str), "`with_batch_size` has replaced it by a number"
        if isinstance(self.batch_size, int):
            return self.batch_size
        return -(-self.batch_size.total // (self.batch_size.shards or n_workers))

    @property
    def is_dealt(self) -> bool:
        """Whether a master deals out the samples during an epoch, instead of a fixed share for every worker."""
        return self.data is not None and self.data.share == "dynamic"

    @property
    def validates_in_thread(self) -> bool:
        """Whether a thread validates during the next epoch: not if each epoch has a checkpoint, which waits for it."""
        return self.validation.mode == "thread" and (self.checkpoint is None or self.checkpoint.every > 1)

    @property
    def composition(self) -> Composition | None:
        """How several models are trained as one; None if `model` returns a single one."""
        if self.gan is not None:
            from mpi_learn.models.gan.adversarial_pair import AdversarialPair

            return AdversarialPair(self.gan)
        if self.pipeline is not None:
            from mpi_learn.models.pipeline.staged import StagedModel

            return StagedModel(self.pipeline)
        return None

    @property
    def parts(self) -> list[Part]:
        """The parts of the model with an optimizer each; a single model is one part."""
        from mpi_learn.models.model import Part

        single = Part("optimizer", self.optimizer)
        return [single] if self.composition is None else self.composition.parts(self.optimizer)

    def with_absolute_paths(self, directory: Path) -> TrainingConfiguration:
        """The same with absolute paths; relative ones are relative to `directory`, and ``~`` is the home directory."""
        changes: dict[str, Any] = {
            "model": absolute_specification(self.model, directory),
            **{
                key: with_absolute_paths(getattr(self, key), directory) for key in NAMED if key in self.model_fields_set
            },
        }
        for key in ("gan", "data", "checkpoint"):
            if (section := getattr(self, key)) is not None:
                changes[key] = section.with_absolute_paths(directory)
        if self.trace is not None:
            changes["trace"] = directory / expanded(self.trace)
        return self.model_copy(update=changes)

    def metric_names(self) -> list[str]:
        """The keys of ``history`` that the configuration determines: loss, metrics, and the same with ``val_``."""
        names = ["loss"]
        if self.composition is not None:
            names += self.composition.loss_names
        if isinstance(self.loss, dict) and len(self.loss) > 1:  # with Keras
            names += [f"{output}_loss" for output in self.loss]
        names += possible_names(self.metrics, self.weighted_metrics)
        return [*names, *(f"val_{name}" for name in names)] if self.has_validation_data else names

    @property
    def has_validation_data(self) -> bool:
        """Whether ``data:`` has validation samples, or `train` is called with data, which may have them."""
        return self.data is None or bool(self.data.validation or self.data.validation_fraction)

    def watched_metrics(self) -> dict[str, str]:
        """Key of the configuration -> the metric that it names."""
        watched = {f"{key}.metric": section.metric for key, section in self.sections_with_direction().items()}
        return watched | ({} if self.target is None else {"target.metric": self.target.metric})

    def sections_with_direction(self) -> dict[str, EarlyStopping | Schedule]:
        """Key of the configuration -> a section that watches whether a metric improves."""
        optimizers = {part.key: part.optimizer for part in self.parts}
        if isinstance(self.algorithm, Downpour) and self.algorithm.worker_optimizer is not None:
            optimizers["algorithm.worker_optimizer"] = self.algorithm.worker_optimizer
        schedules = {f"{key}.schedule": optimizer.schedule for key, optimizer in optimizers.items()}
        found: dict[str, EarlyStopping | Schedule] = {
            key: schedule for key, schedule in schedules.items() if schedule.name == "plateau"
        }
        return found | ({} if self.early_stopping is None else {"early_stopping": self.early_stopping})

    def check_metric(self, name: str, where: str) -> None:
        """Raises ConfigurationError unless `name` is one of `metric_names`, or may be one.

        Without ``loss:``, a model may have metrics that are known only when it is built. So are the names of the losses
        of several outputs, such as ``energy_loss``, unless ``loss:`` is a mapping.
        """
        known, plain = self.metric_names(), name.removeprefix("val_")
        may_exist = self.loss is None or (plain.endswith("_loss") and not isinstance(self.loss, dict))
        lacks_validation = name != plain and not self.has_validation_data
        if name in known or (may_exist and not lacks_validation):
            return
        cures = []  # a name may be misspelt and lack its validation data: each has its own cure
        if plain not in known:
            cures.append(suggestion(name, known, "it produces"))
            is_misspelt = nearest(name, known, MISSPELT_LIKENESS) is not None
            if isinstance(self.metrics, list) and not is_misspelt and not plain.endswith("_loss"):
                cures.append(f"or add {plain} to `metrics:`")
        if lacks_validation:
            cures.append("give data.validation or data.validation_fraction for val_ metrics")
        problem = f"the training does not produce the metric {name}"
        raise ConfigurationError(problem, where=where, cure="; ".join(cures))


def _check_total(batch: TotalBatch, algorithm: AlgorithmConfiguration) -> None:
    """Raises InvalidValue unless the algorithm makes the same steps on any number of ranks."""
    if not isinstance(algorithm, AllReduce):
        raise InvalidValue(
            f"batch_size.total needs allreduce, in which all ranks make the same steps, and the algorithm is "
            f"{algorithm.name}",
            "write `algorithm: allreduce`, or batch_size as the number of samples per worker",
        )
    if batch.shards is not None and algorithm.compression != "none":
        raise InvalidValue(
            f"compression: {algorithm.compression} depends on how the shards of a step are divided among the ranks",
            "leave compression out, or write batch_size without shards",
        )
    if batch.shards is not None and algorithm.accumulate > 1:
        raise InvalidValue(
            "batch_size.shards and algorithm.accumulate both divide a step into parts",
            f"leave accumulate out, and write `total: {batch.total * algorithm.accumulate}`",
        )


def read_configuration(
    source: Path | str | dict[str, Any],
    *,
    directory: Path | None = None,
    where: str = "",
    is_fold: bool = False,
) -> TrainingConfiguration:
    """A validated training configuration with absolute paths.

    Args:
        source: A YAML file, or its content.
        directory: The folder of relative paths; default: the folder of the file, or the current folder.
        where: The source in error messages, for example ``"space.yaml: training"``; default: the name of the file.
        is_fold: Whether `train` will be called with a fold of the data, which has validation samples.

    Raises:
        ConfigurationError: Names file and key, what was expected, what was found, and the nearest known name.
    """
    if isinstance(source, dict):
        content, directory, where = source, directory or Path.cwd(), where or "training"
    else:
        content = read_yaml(Path(source))
        directory, where = directory or Path(source).resolve().parent, where or str(source)
    if isinstance(content, dict) and {"space", "search"} <= content.keys():
        raise ConfigurationError(
            "this is the configuration of a search, not of a training", where=where, cure="use it with mpi-opt"
        )
    configuration = validated(TrainingConfiguration, content, where)
    # a fold has validation samples whatever `data:` says
    checked = configuration.model_copy(update={"data": None}) if is_fold else configuration
    for key, metric in configuration.watched_metrics().items():
        checked.check_metric(metric, key_in_file(where, key))
    for key, section in configuration.sections_with_direction().items():
        if section.direction is None:
            raise ConfigurationError(
                f"it is not known whether a small or a large {section.metric} is better",
                where=key_in_file(where, f"{key}.mode"),
                cure="write `mode: min` or `mode: max`",
            )
    return configuration.with_absolute_paths(directory.resolve())
