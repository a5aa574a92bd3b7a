"""The ``algorithm:`` section."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from mpi_learn.models.pipeline.section import PipelineSection
from mpi_learn.optimizers.configuration import FusedConfiguration
from mpi_learn.settings.validation import InvalidValue, Section, as_section


class AllReduce(Section):
    """Synchronous: in every step all workers apply the mean gradient over all their samples."""

    name: Literal["allreduce"] = "allreduce"
    accumulate: int = Field(1, ge=1, description="Steps whose gradients a rank sums before they are exchanged.")
    compression: Literal["none", "bfloat16", "float16", "int8", "2-bit", "top-k", "power-sgd"] = Field(
        "none",
        description="How a gradient is sent: unchanged, in 16, 8 or 2 bits per element, only its largest elements, or "
        "as matrices of low rank.",
    )
    fraction: float = Field(0.01, gt=0, le=1, description="top-k: the fraction of the elements that is sent.")
    matrix_rank: int = Field(
        32, ge=1, description="power-sgd: the rank of the matrices that are sent instead of larger ones."
    )
    reduction: Literal["auto", "mpi", "nccl", "gloo"] = Field(
        "auto",
        description="Which library adds the gradients of the ranks. auto: NCCL if each rank computes on a GPU of its "
        "own and the gradients stay there, else MPI. gloo and nccl need PyTorch.",
    )
    exact_steps: int = Field(
        0,
        ge=0,
        description="With compression: number of exchanges, each of `accumulate` steps, at the start of a "
        "training in which gradients are sent unchanged, because the first steps change the weights most.",
    )

    @model_validator(mode="after")
    def _compressed_by_mpi(self) -> Self:
        if self.compression != "none" and self.reduction in ("nccl", "gloo"):
            raise InvalidValue(
                f"gradients are compressed on the host, and {self.reduction} sums them uncompressed",
                "write `reduction: mpi`, or leave compression out",
            )
        return self


Encoded = Literal["none", "bfloat16", "float16", "int8", "2-bit"]
"""Forms of the messages between two ranks."""


class ParameterServer(Section):
    """The options of every algorithm with masters."""

    masters: int = Field(
        1,
        ge=1,
        description="Ranks that hold weights and do not train. Each serves a share of the workers; the first is also "
        "the master of the others.",
    )
    processes: int = Field(
        1,
        ge=1,
        description="Ranks per worker: a group that computes each gradient together. If the number of ranks is not a "
        "multiple, some groups are larger.",
    )
    sync_every: int = Field(1, ge=1, description="Steps of a worker between two exchanges with its master.")
    compression: Encoded = Field(
        "none",
        description="How vectors are sent between masters and workers: unchanged, or in 16, 8 or 2 bits per element. "
        "With compression, ranks of one host send messages too, instead of sharing memory.",
    )


class Downpour(ParameterServer):
    """Asynchronous: workers send gradients; the master applies each one when it arrives (Dean et al. 2012).

    With several masters, a lower master sums as many gradients as it has workers and sends the sum to the first master.
    """

    name: Literal["downpour"] = "downpour"
    synchronous: bool = Field(False, description="Wait for a quorum of the workers and apply their mean gradient.")
    quorum: float = Field(1.0, gt=0, le=1, description="synchronous: the fraction of the workers to wait for.")
    worker_optimizer: FusedConfiguration | None = Field(
        None,
        description="sync_every > 1: updates a worker between two exchanges; null: sgd with the constant initial "
        "learning rate.",
    )


class Easgd(ParameterServer):
    """Elastic averaging: workers train their own weights, attracted by a centre (Zhang, Choromanska & LeCun 2015)."""

    name: Literal["easgd"] = "easgd"
    elastic_force: float = Field(
        0.9,
        gt=0,
        description="β; the moving rate is α = β / workers of the master. The centre is stable for β < 1.",
    )


class Gem(ParameterServer):
    """Gradient energy matching (Hermans & Louppe 2018): a worker's updates are damped by the changes of the centre.

    These are the changes since the worker's last pull. They include its own last push.
    """

    name: Literal["gem"] = "gem"
    momentum: float = Field(0.9, ge=0, lt=1, description="μ: momentum of a worker's own steps.")
    kappa: float = Field(
        2.0,
        gt=0,
        description="κ: target of the summed size of all workers' updates, relative to the momentum of one worker.",
    )


class Nesterov(Section):
    """``outer:`` Nesterov momentum on the mean change of all clusters, as in DiLoCo (Douillard et al. 2023)."""

    name: Literal["nesterov"] = "nesterov"
    learning_rate: float = Field(0.7, gt=0, description="η; 1 without momentum is plain averaging.")
    momentum: float = Field(0.9, ge=0, lt=1, description="μ.")


class Clusters(Section):
    """Decentralized: gradients are averaged in a cluster in every step, weights between clusters in the background."""

    name: Literal["clusters"] = "clusters"
    size: int = Field(
        2,
        ge=1,
        description="Ranks per cluster, best those of one host. If the number of ranks is not a multiple, some "
        "clusters are larger.",
    )
    exchange_every: int = Field(
        10, ge=1, description="Steps between two exchanges; with outer, 50 to 500 are usual (H in the paper)."
    )
    neighbours: Literal["ring", "random", "all"] | None = Field(
        None,
        description="Partners of an exchange: both neighbours in a ring, another cluster drawn at random each time, or "
        "all clusters. null: random; with outer: all.",
    )
    compression: Encoded = Field(
        "none",
        description="How weights are sent between clusters: unchanged, or as differences in 16, 8 or 2 bits per "
        "element.",
    )
    outer: Nesterov | None = Field(
        None,
        description="Optimizer for the mean change of all clusters; null: take the mean of the weights. Without effect "
        "if there is only one cluster.",
    )

    @model_validator(mode="after")
    def _outer_of_all(self) -> Self:
        if self.outer is not None and self.neighbours not in (None, "all"):
            raise InvalidValue("outer needs the mean over all clusters", "write `neighbours: all`, or take the key out")
        return self

    @property
    def chosen_neighbours(self) -> Literal["ring", "random", "all"]:
        """`neighbours`, or its default."""
        return self.neighbours or ("random" if self.outer is None else "all")


AnyAlgorithm = AllReduce | Downpour | Easgd | Gem | Clusters
AlgorithmConfiguration = Annotated[AnyAlgorithm, Field(discriminator="name"), BeforeValidator(as_section)]


class LayoutKeys(Section):
    """The keys on which the layout of the ranks depends, for programs that need nothing else."""

    algorithm: AlgorithmConfiguration = AllReduce()
    pipeline: PipelineSection | None = None

    @property
    def n_stages(self) -> int:
        """Number of ranks that hold one model."""
        return 1 if self.pipeline is None else self.pipeline.stages
