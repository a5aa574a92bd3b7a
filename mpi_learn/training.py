"""Trains one model on all ranks of one communicator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpi_learn.comm import Communicator
from mpi_learn.configuration import TrainingConfiguration
from mpi_learn.data import Dataset
from mpi_learn.result import Result


def train(
    configuration: dict[str, Any] | TrainingConfiguration,
    comm: Communicator,
    *,
    data: Dataset | None = None,
    on_epoch: Callable[[int, dict[str, float]], bool] | None = None,
) -> Result:
    """Trains the model of `configuration`. Collective over `comm`."""
    raise NotImplementedError
