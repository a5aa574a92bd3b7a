"""What ``algorithm:`` may say."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from mpi_learn.optimizers.configuration import OptimizerConfiguration


class _Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AllReduce(_Options):
    """Synchronous: every step all workers take the mean gradient over all their samples."""

    name: Literal["allreduce"] = "allreduce"
    accumulate: int = Field(1, ge=1, description="Steps whose gradients a rank adds up before they are exchanged.")
    compression: Literal["none", "float16", "top-k"] = Field(
        "none", description="What of a gradient travels: all, all in 16 bits, or its largest elements."
    )
    fraction: float = Field(0.01, gt=0, le=1, description="top-k: the fraction of the elements that travels.")
    bucket_bytes: int | None = Field(
        None,
        ge=1,
        description="Sum the gradient in pieces of at least so many bytes, each begun while back-propagation goes on: "
        "for slow networks. Only PyTorch says meanwhile what is complete; a Keras model's step is compiled as a whole "
        "and sums all pieces at its end. None: all in one piece. Not together with compression.",
    )

    @model_validator(mode="after")
    def _whole_or_compressed(self) -> Self:
        if self.bucket_bytes is not None and self.compression != "none":
            raise ValueError("bucket_bytes and compression exclude each other: leave one out")
        return self


class _Served(_Options):
    """What every algorithm with a master knows."""

    masters: int = Field(1, ge=1, description="Ranks that only serve; with several, the first is the others' master.")
    processes: int = Field(1, ge=1, description="Ranks per worker: a group that computes each gradient together.")
    sync_every: int = Field(1, ge=1, description="Steps of a worker between two exchanges with its master.")


class Downpour(_Served):
    """Asynchronous: workers send gradients, the master's optimizer applies each as it comes (Dean et al. 2012)."""

    name: Literal["downpour"] = "downpour"
    synchronous: bool = Field(False, description="Wait for a quorum of the workers and apply their mean gradient.")
    quorum: float = Field(1.0, gt=0, le=1, description="synchronous: the fraction of the workers to wait for.")
    worker_optimizer: OptimizerConfiguration | None = Field(
        None, description="sync_every > 1: what moves a worker between two exchanges; None: sgd at the learning rate."
    )


class Easgd(_Served):
    """Elastic averaging: workers train by themselves, tied to a centre (Zhang, Choromanska & LeCun 2015)."""

    name: Literal["easgd"] = "easgd"
    elastic_force: float = Field(
        0.9, gt=0, description="Moving rate times number of workers: α = elastic_force / workers; below 1 it is stable."
    )


class Gem(_Served):
    """Gradient energy matching: pushes are damped by what the others changed (Hermans & Louppe 2018)."""

    name: Literal["gem"] = "gem"
    momentum: float = Field(0.9, ge=0, lt=1, description="μ: of the energy that a worker's own steps gather.")
    kappa: float = Field(
        2.0, gt=0, description="κ: how much energy the workers together may have, in units of their own."
    )


class Clusters(_Options):
    """Decentralised: clusters average gradients every step and parameters with other clusters in the background."""

    name: Literal["clusters"] = "clusters"
    size: int = Field(2, ge=1, description="Ranks per cluster: best those of one host.")
    exchange_every: int = Field(10, ge=1, description="Steps between two beginnings of an exchange between clusters.")
    neighbours: Literal["ring", "random", "all"] = Field(
        "random", description="With whom: both neighbours in a ring, a partner drawn anew each time, or all."
    )


def _named(value: Any) -> Any:
    """``algorithm: gem`` is short for ``algorithm: {name: gem}``."""
    return {"name": value} if isinstance(value, str) else value


AlgorithmConfiguration = Annotated[
    AllReduce | Downpour | Easgd | Gem | Clusters, Field(discriminator="name"), BeforeValidator(_named)
]


class AlgorithmKey(_Options):
    """The one key of a training that says how ranks work together, for who wants to know only that."""

    algorithm: AlgorithmConfiguration = AllReduce()
