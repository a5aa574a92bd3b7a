"""The keys of a ``training.yaml``, with their types, defaults and meanings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from mpi_learn.algorithms.configuration import AlgorithmConfiguration, AllReduce, Downpour, ParameterServer
from mpi_learn.data.configuration import DataConfiguration
from mpi_learn.errors import ConfigurationError
from mpi_learn.models.configuration import Framework, Losses, LossWeights, Metrics
from mpi_learn.models.outputs import possible_names
from mpi_learn.optimizers.configuration import Adam, AnyOptimizer, NotFused, OptimizerConfiguration, Schedule
from mpi_learn.settings import keys_of_other_libraries
from mpi_learn.settings.component import Named, component, with_absolute_paths
from mpi_learn.settings.paths import expanded
from mpi_learn.settings.section import Section, without_numpy
from mpi_learn.settings.suggestions import MISSPELT_LIKENESS, nearest, suggestion
from mpi_learn.settings.user_code import absolute_specification, is_function
from mpi_learn.settings.validation import InvalidValue, key_in_file, validated
from mpi_learn.settings.yaml_file import read_yaml
from mpi_learn.training.sections import Checkpoint, EarlyStopping, GanSection, Target, Validation

NAMED = ("loss", "metrics", "weighted_metrics", "callbacks", "optimizer")
"""Keys that name functions."""
OF_GAN = ("discriminator_optimizer", "generator_optimizer")
"""The keys of ``gan:`` for the optimizers of the two models."""


def _listed(value: Any) -> Any:
    """``callbacks: CSVLogger`` is short for ``callbacks: [CSVLogger]``."""
    return value if isinstance(value, list) else [value]


def _listed_by_output(value: Any) -> Any:
    """``metrics: accuracy`` is short for ``metrics: [accuracy]``, and the same for each output in a mapping."""
    if isinstance(value, dict) and "name" not in value:
        return {name: _listed(entry) for name, entry in value.items()}
    return _listed(value)


class TrainingConfiguration(Section):
    """A whole ``training.yaml``."""

    equivalents: ClassVar[Mapping[str, str]] = keys_of_other_libraries.TRAINING

    model: str = Field(
        description="file.py:function or package.module:function that returns a model; or .keras, .json."
    )
    parameters: Annotated[dict[str, Any], BeforeValidator(without_numpy)] = Field(
        {}, description="Arguments of the function."
    )
    data: DataConfiguration | None = Field(None, description="The samples (required).")
    framework: Framework = Field(
        "auto", description="auto: the framework of the model. keras, torch: a model of the other framework is refused."
    )
    loss: Losses = Field(
        None,
        description="A loss of the framework, {name: huber, delta: 2.0} with arguments, or file.py:function; for "
        "several outputs a list, or a mapping from the names of the outputs (PyTorch: from any names, in the order of "
        "the outputs). null for an output without a loss, or for a Keras model that computes its own or is compiled.",
    )
    metrics: Annotated[Metrics, BeforeValidator(_listed_by_output)] = Field(
        [],
        description="Metrics of Keras, or for PyTorch models accuracy, mae, mse and those of torchmetrics; with "
        "arguments as for loss; or file.py:function. For several outputs a mapping. They are not weighted.",
    )
    weighted_metrics: Annotated[Metrics, BeforeValidator(_listed_by_output)] = Field(
        [], description="Keras: metrics that are weighted with data.weights and data.class_weight."
    )
    loss_weights: LossWeights = Field(
        None, description="Factors of the losses of several outputs, a list or a mapping; null is 1 for all."
    )
    optimizer: OptimizerConfiguration = Field(Adam(), description="The optimizer.")
    algorithm: AlgorithmConfiguration = Field(
        AllReduce(), description="How the ranks combine their gradients or weights."
    )
    sync_batchnorm: bool = Field(
        False,
        description="allreduce: average moving means and variances over the ranks after every step, not every epoch.",
    )
    precision: Literal["float32", "mixed_bfloat16"] = Field(
        "float32",
        description="mixed_bfloat16: the framework computes in 16 bits where this is safe; weights are float32.",
    )
    gradient_checkpointing: bool = Field(
        False,
        description="Activation checkpointing: the backward pass computes activations again, which needs less memory.",
    )
    gan: GanSection | None = Field(
        None, description="`model` returns a generator and a discriminator that train each other."
    )
    batch_size: int = Field(32, ge=1, description="Samples per worker and step.")
    epochs: int = Field(1, ge=1, description="Number of passes over the training samples.")
    early_stopping: EarlyStopping | None = Field(None, description="Stop when a metric no longer improves.")
    target: Target | None = Field(None, description="Stop as soon as a metric reaches a value.")
    callbacks: Annotated[list[Named], BeforeValidator(_listed)] = Field(
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
    seed: int = Field(0, ge=0, lt=2**31, description="Seed of initial weights, shuffling and dropout.")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        algorithm = self.algorithm
        if self.is_dealt and (not isinstance(algorithm, ParameterServer) or algorithm.processes > 1):
            raise ValueError(
                "data.share: dynamic needs downpour, easgd or gem with processes: 1, because a master deals out samples"
            )
        if self.sync_batchnorm and algorithm.name != "allreduce":
            raise ValueError(
                "sync_batchnorm needs `algorithm: {name: allreduce}`, in which all ranks make the same steps"
            )
        if self.gan is not None and (problem := self._problem_with(self.gan)):
            raise ValueError(problem)
        not_fused = next((one for one in self._optimizers() if isinstance(one, NotFused)), None)
        if isinstance(algorithm, Downpour) and not_fused is not None:
            raise InvalidValue(
                f"downpour updates the weights on a master, which has no model for {not_fused.name}",
                "write algorithm: allreduce, clusters, easgd or gem, or another optimizer, such as adam",
            )
        return self

    @property
    def is_dealt(self) -> bool:
        """Whether a master deals out the samples during an epoch, instead of a fixed share for every worker."""
        return self.data is not None and self.data.share == "dynamic"

    @property
    def validates_in_thread(self) -> bool:
        """Whether a thread validates during the next epoch: not if each epoch has a checkpoint, which waits for it."""
        return self.validation.mode == "thread" and (self.checkpoint is None or self.checkpoint.every > 1)

    def _optimizers(self) -> list[OptimizerConfiguration]:
        """The optimizers of all models."""
        if self.gan is None:
            return [self.optimizer]
        return [getattr(self.gan, key) or self.optimizer for key in OF_GAN]

    def _problem_with(self, gan: GanSection) -> str:
        """Why this is not a training of two models; empty if it is."""
        algorithm = self.algorithm
        is_of_functions = isinstance(self.metrics, list) and all(component(metric).is_custom for metric in self.metrics)
        rules = {
            "gan needs `model: file.py:function`, which returns {generator: …, discriminator: …}": is_function(
                self.model
            ),
            "gan needs a loss for the discriminator's outputs": self.loss is not None,
            "with gan, each of metrics is a file.py:function of (real, generated) samples": is_of_functions,
            "gan supports only compression: float16; the others would send gradients of a model that rests": not (
                isinstance(algorithm, AllReduce) and algorithm.compression in ("top-k", "power-sgd")
            ),
            "gan with accumulate needs `exchange: batch`: with `model` the two models take turns": not (
                isinstance(algorithm, AllReduce) and algorithm.accumulate > 1 and gan.exchange == "model"
            ),
        }
        return next((problem for problem, is_met in rules.items() if not is_met), "")

    def with_absolute_paths(self, directory: Path) -> TrainingConfiguration:
        """The same with absolute paths; relative ones are relative to `directory`, and ``~`` is the home directory."""
        changes: dict[str, Any] = {
            "model": absolute_specification(self.model, directory),
            **{
                key: with_absolute_paths(getattr(self, key), directory) for key in NAMED if key in self.model_fields_set
            },
        }
        if self.gan is not None:
            own = {key: getattr(self.gan, key) for key in OF_GAN}
            changes["gan"] = self.gan.model_copy(update=with_absolute_paths(own, directory))
        if self.data is not None:
            changes["data"] = self.data.with_absolute_paths(directory)
        if self.trace is not None:
            changes["trace"] = directory / expanded(self.trace)
        if self.checkpoint is not None:
            start = self.checkpoint.start_from
            paths = {
                "path": directory / expanded(self.checkpoint.path),
                "start_from": start and directory / expanded(start),
            }
            changes["checkpoint"] = self.checkpoint.model_copy(update=paths)
        return self.model_copy(update=changes)

    def metric_names(self) -> list[str]:
        """The keys of ``history`` that the configuration determines: loss, metrics, and the same with ``val_``."""
        names = ["loss"]
        if self.gan is not None:
            names += ["discriminator_loss", "generator_loss"]
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
        optimizers: dict[str, AnyOptimizer] = {"optimizer": self.optimizer}
        if isinstance(self.algorithm, Downpour) and self.algorithm.worker_optimizer is not None:
            optimizers["algorithm.worker_optimizer"] = self.algorithm.worker_optimizer
        if self.gan is not None:
            pair = {key: getattr(self.gan, key) for key in OF_GAN}
            own = {f"gan.{key}": optimizer for key, optimizer in pair.items() if optimizer is not None}
            optimizers = own if len(own) == len(pair) else optimizers | own
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
        cures = []
        if plain not in known:
            cures.append(suggestion(name, known, "it produces"))
            is_misspelt = nearest(name, known, MISSPELT_LIKENESS) is not None
            if isinstance(self.metrics, list) and not is_misspelt and not plain.endswith("_loss"):
                cures.append(f"or add {plain} to `metrics:`")
        if lacks_validation:
            cures.append("give data.validation or data.validation_fraction for val_ metrics")
        problem = f"the training does not produce the metric {name}"
        raise ConfigurationError(problem, where=where, cure="; ".join(cures))


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
    configuration = validated(TrainingConfiguration, content, where)
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
