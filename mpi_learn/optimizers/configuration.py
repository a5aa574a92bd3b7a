"""The ``optimizer:`` section. Names and defaults are those of Keras. Imports no numerical library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Discriminator, Field, Tag, model_validator

from mpi_learn.settings import suggestions
from mpi_learn.settings.component import Component
from mpi_learn.settings.suggestions import direction_of
from mpi_learn.settings.user_code import is_function
from mpi_learn.settings.validation import Section, as_section

Fraction = Annotated[float, Field(ge=0, lt=1)]
Epsilon = Annotated[float, Field(gt=0, description="Added to a denominator, against division by zero.")]
DECAY = "Decoupled: every step multiplies the weights by 1 − learning_rate × this."


class Schedule(Section):
    """``schedule:`` how the learning rate changes from step to step."""

    name: Literal["constant", "step", "exponential", "cosine", "plateau"] = Field(
        "constant", description="The shape after the warm-up; plateau: lower when a metric no longer improves."
    )
    warmup_epochs: float = Field(0.0, ge=0, description="The rate rises linearly from 0 over this many epochs.")
    every: float = Field(
        10.0,
        gt=0,
        description="step: epochs between two drops. exponential: epochs in which the rate falls by `factor`.",
    )
    factor: float = Field(
        0.1, gt=0, le=1, description="step, exponential, plateau: the factor of the learning rate at each drop."
    )
    floor: float = Field(
        0.0,
        ge=0,
        le=1,
        description="cosine: the final rate; plateau: the lowest rate; both as a fraction of the rate after the "
        "warm-up.",
    )
    metric: str = Field("val_loss", description="plateau: the metric of the training that should improve.")
    mode: Literal["auto", "min", "max"] = Field(
        "auto",
        description="plateau: the better direction; auto: by the name of the metric, if it is a known one.",
    )
    patience: int = Field(10, ge=1, description="plateau: epochs without improvement before a drop.")
    min_delta: float = Field(1e-4, ge=0, description="plateau: a smaller change does not count as an improvement.")
    scale: Literal["none", "linear", "sqrt"] = Field(
        "none",
        description="Multiply the rate by the number of workers, or by its square root. The ranks of a cluster, or of "
        "a worker with several `processes`, count as one. Use `warmup_epochs` with it.",
    )

    @model_validator(mode="before")
    @classmethod
    def _without_needless_mode(cls, content: Any) -> Any:
        """Leaves out a `mode` that has no effect or is that of ``auto``: checkpoints contain an earlier default."""
        if not isinstance(content, dict):
            return content
        metric = str(content.get("metric", cls.model_fields["metric"].default))
        needless = (direction_of(metric),) if content.get("name") == "plateau" else ("min", "max")
        return {key: value for key, value in content.items() if key != "mode" or value not in needless}

    @property
    def direction(self) -> Literal["min", "max"] | None:
        """The better direction of the metric; None if the mode is ``auto`` and the metric is not a known one."""
        return direction_of(self.metric) if self.mode == "auto" else self.mode


class OptimizerOptions(Section):
    """The options of every optimizer."""

    equivalents: ClassVar[Mapping[str, str]] = suggestions.OPTIMIZER

    clip_norm: float | None = Field(None, gt=0, description="Largest norm of the gradient; a longer one is scaled.")
    clip_value: float | None = Field(
        None, gt=0, description="Largest absolute value of an element; larger ones are cut."
    )
    schedule: Schedule = Field(Schedule(), description="How the learning rate changes during the training.")


class FusedOptions(OptimizerOptions):
    """The options of the optimizers of MPI Learn."""

    learning_rate: float = Field(0.001, gt=0, description="The step size.")
    weight_decay: float = Field(0.0, ge=0, description=DECAY)


class Sgd(FusedOptions):
    """Stochastic gradient descent."""

    name: Literal["sgd"] = "sgd"
    learning_rate: float = Field(0.01, gt=0, description="The step size.")
    momentum: float = Field(0.0, ge=0, lt=1, description="Fraction of the last step that is added to this one.")
    nesterov: bool = Field(False, description="Use Nesterov momentum.")


class Moments(FusedOptions):
    """The options of the optimizers with moments of the gradient."""

    beta_1: Fraction = Field(0.9, description="Decay of the mean gradient.")
    beta_2: Fraction = Field(0.999, description="Decay of the mean squared gradient.")
    epsilon: Epsilon = 1e-7


class Adam(Moments):
    """Adam (Kingma & Ba 2015)."""

    name: Literal["adam"] = "adam"


class AdamW(Moments):
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019)."""

    name: Literal["adamw"] = "adamw"
    weight_decay: float = Field(0.004, ge=0, description=DECAY)


class RmsProp(FusedOptions):
    """RMSProp (Tieleman & Hinton 2012)."""

    name: Literal["rmsprop"] = "rmsprop"
    rho: Fraction = Field(0.9, description="Decay of the mean squared gradient.")
    momentum: Fraction = Field(0.0, description="Fraction of the last step that is added to this one.")
    centered: bool = Field(False, description="Divide by the standard deviation instead of the root mean square.")
    epsilon: Epsilon = 1e-7


class AdaDelta(FusedOptions):
    """Adadelta (Zeiler 2012)."""

    name: Literal["adadelta"] = "adadelta"
    rho: Fraction = Field(0.95, description="Decay of both means.")
    epsilon: Epsilon = 1e-7


class AdaGrad(FusedOptions):
    """Adagrad (Duchi et al. 2011)."""

    name: Literal["adagrad"] = "adagrad"
    initial_accumulator_value: float = Field(0.1, ge=0, description="Initial value of the sum of squares.")
    epsilon: Epsilon = 1e-7


class Lars(FusedOptions):
    """Layer-wise adaptive rates on momentum (You et al. 2017)."""

    name: Literal["lars"] = "lars"
    learning_rate: float = Field(0.1, gt=0, description="The step size.")
    momentum: Fraction = Field(0.9, description="Fraction of the last step that is added to this one.")
    weight_decay: float = Field(
        0.0,
        ge=0,
        description="The weights times this are added to the gradient, and count in the trust ratio. Arrays of one "
        "dimension do not decay.",
    )
    trust: float = Field(0.001, gt=0, description="The step's length relative to the layer's weights.")
    epsilon: Epsilon = 1e-8


class Lamb(Moments):
    """Layer-wise adaptive rates on Adam (You et al. 2020)."""

    name: Literal["lamb"] = "lamb"
    weight_decay: float = Field(
        0.0,
        ge=0,
        description="The weights times this are added to the direction of a step, before the trust ratio is computed.",
    )


class FrameworkOptimizer(OptimizerOptions):
    """An optimizer of Keras or PyTorch, that of the model. Further keys are its arguments.

    Each step copies the weights into the variables of a Keras model and back.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    name: Literal["adafactor", "adamax", "asgd", "ftrl", "lion", "muon", "nadam", "radam", "rprop"] = Field(
        description="Keras has adafactor, adamax, ftrl, lion, muon and nadam; PyTorch has adafactor, adamax, asgd, "
        "muon, nadam, radam and rprop."
    )
    learning_rate: float | None = Field(
        None, gt=0, allow_inf_nan=False, description="The step size; null: the default of the framework."
    )
    weight_decay: float = Field(
        0.0, ge=0, description=f"{DECAY} PyTorch's asgd has another decay, its argument `lambd`."
    )

    @property
    def component(self) -> Component:
        """Name and arguments."""
        rate: dict[str, Any] = {} if self.learning_rate is None else {"learning_rate": self.learning_rate}
        return Component.model_construct(name=self.name, **rate, **(self.model_extra or {}))


class CustomOptimizer(OptimizerOptions):
    """An optimizer that a function or class creates, for a PyTorch model from its parameters.

    Further keys, among them the learning rate, are its arguments.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str = Field(
        pattern=r".:\w+$",
        description="file.py:function or package.module:Class. It returns an optimizer of the model's framework.",
    )

    @property
    def component(self) -> Component:
        """Name and arguments."""
        return Component.model_construct(name=self.name, **(self.model_extra or {}))


def _tag(value: Any) -> str:
    """The tag of an optimizer section. Tags are in brackets, so that they differ from the keys of a file."""
    name = value.get("name") if isinstance(value, dict) else getattr(value, "name", None)
    return "(function)" if isinstance(name, str) and is_function(name) else "(name)"


Fused = Sgd | Adam | AdamW | RmsProp | AdaDelta | AdaGrad | Lars | Lamb
NotFused = FrameworkOptimizer | CustomOptimizer
AnyOptimizer = Fused | NotFused
FusedConfiguration = Annotated[Fused, Field(discriminator="name"), BeforeValidator(as_section)]
_ByName = Annotated[Fused | FrameworkOptimizer, Field(discriminator="name")]
OptimizerConfiguration = Annotated[
    Annotated[_ByName, Tag("(name)")] | Annotated[CustomOptimizer, Tag("(function)")],
    Discriminator(_tag),
    BeforeValidator(as_section),
]
