"""Every training algorithm: name -> how it is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mpi_learn.algorithms.algorithm import Algorithm, AlgorithmSetup
from mpi_learn.algorithms.allreduce import SynchronousAllReduce
from mpi_learn.algorithms.clusters import DecentralizedClusters
from mpi_learn.algorithms.configuration import AnyAlgorithm
from mpi_learn.algorithms.parameter_server import downpour, easgd, gem

ALGORITHMS: Mapping[str, Callable[[Any, AlgorithmSetup], Algorithm]] = {
    "allreduce": SynchronousAllReduce.build,
    "clusters": DecentralizedClusters.build,
    "downpour": downpour.build,
    "easgd": easgd.build,
    "gem": gem.build,
}
"""Each function takes the algorithm's section of the configuration and the setup. Collective over ``setup.comm``."""


def make_algorithm(options: AnyAlgorithm, setup: AlgorithmSetup) -> Algorithm:
    """This rank's part in the algorithm that a section of the configuration names. Collective over ``setup.comm``."""
    return ALGORITHMS[options.name](options, setup)
