"""What all parts of one training share: configuration, communicator, roles of the ranks, and samples."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from mpi_learn.algorithms.rank_layout import RankLayout, rank_layout_of
from mpi_learn.data.loading import load
from mpi_learn.data.samples.batches import Dataset
from mpi_learn.data.samples.stored_samples import make_class_weights
from mpi_learn.errors import ConfigurationError, MPILearnError
from mpi_learn.mpi.communicators import Communicator, result_of_rank, split
from mpi_learn.training.configuration import TrainingConfiguration


@dataclass(frozen=True)
class TrainingContext:
    """What all parts of one training share.

    Attributes:
        comm: All ranks of the training; no other program uses it.
        layout: The roles of these ranks.
        peers: Those of them that hold the same weights as this rank: all, or with `pipeline` those of the same stage.
        chain: With `pipeline`, the ranks that hold the stages of the same model, in order; else None.
        dataset: The samples, complete with class weights and added input.
        rank: That of this process in `comm`, which is freed before a master builds the model of the result.
    """

    configuration: TrainingConfiguration
    comm: Communicator
    layout: RankLayout
    peers: Communicator
    chain: Communicator | None
    dataset: Dataset
    rank: int

    @property
    def first_worker(self) -> int:
        """The rank whose model is used where one is enough: rank 0 may be a master, which computes nothing."""
        return self.layout.workers[0]

    @property
    def first_with_loss(self) -> int:
        """The rank that holds the loss of the first worker: that of its last stage."""
        return self.layout.workers[self.layout.stages - 1]

    @property
    def n_workers(self) -> int:
        """Number of shares of the samples of an epoch: one for each model, whose stages read the same batches."""
        return self.layout.n_replicas

    @property
    def worker(self) -> int | None:
        """The index of the share of this rank; None on a master."""
        return self.layout.replica(self.rank)


@contextmanager
def open_context(
    configuration: TrainingConfiguration, comm: Communicator, dataset: Dataset | None
) -> Iterator[TrainingContext]:
    """The context of a training. At its end, the files of ``configuration.data`` are closed. Collective over `comm`.

    Args:
        dataset: The samples; None loads those of ``configuration.data``.

    Raises:
        UserError: There are too few ranks, no samples, or they cannot be read.
    """
    layout = rank_layout_of(configuration.algorithm, comm.size, configuration.n_stages)
    with _communicators(comm, layout) as (peers, chain):
        if dataset is not None:
            complete = _completed(configuration, comm, dataset)
            yield TrainingContext(configuration, comm, layout, peers, chain, complete, comm.rank)
            return
        if configuration.data is None:
            raise ConfigurationError("this section is required", where="data", cure="say which files to train on")
        with closing(load(configuration.data, comm, configuration.seed)) as own:
            complete = _completed(configuration, comm, own)
            yield TrainingContext(configuration, comm, layout, peers, chain, complete, comm.rank)


@contextmanager
def _communicators(comm: Communicator, layout: RankLayout) -> Iterator[tuple[Communicator, Communicator | None]]:
    """(peers, chain) of this rank; see `TrainingContext`. They are freed as in `private`. Collective over `comm`."""
    if layout.stages == 1:
        yield comm, None
        return
    peers = split(comm, layout.stage(comm.rank))
    chain = split(comm, layout.replica(comm.rank) or 0)
    try:
        yield peers, chain
    except MPILearnError:
        peers.Free()
        chain.Free()
        raise
    peers.Free()
    chain.Free()


def _completed(configuration: TrainingConfiguration, comm: Communicator, dataset: Dataset) -> Dataset:
    """The samples with class weights, and with an input that the model adds. Collective over `comm`."""
    section, composition = configuration.data, configuration.composition
    if composition is not None:
        dataset = replace(dataset, added_input=composition.added_input(configuration.seed))
    if section is None or section.class_weight is None:
        return dataset
    wanted = section.class_weight
    weights = result_of_rank(comm, lambda: make_class_weights(wanted, dataset.training_labels()))
    return replace(dataset, class_weights=weights)
