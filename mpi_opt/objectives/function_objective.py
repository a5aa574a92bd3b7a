"""The objective that calls a function of the user."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mpi_learn.mpi.communicators import Communicator
from mpi_learn.settings.user_code import load_function
from mpi_opt.core.objective import MetricCurves, Objective
from mpi_opt.core.space import Parameters
from mpi_opt.core.trial import Trial


class FunctionObjective(Objective):
    """A function of the user, or ``file.py:function`` relative to `directory`. It is called with the `Trial`."""

    def __init__(self, function: Callable[[Trial], Any] | str, directory: Path | None = None) -> None:
        self.function, self.directory = function, directory

    def prepare(self, comm: Communicator, parameters: Parameters) -> None:
        if isinstance(self.function, str):
            self.function = load_function(self.function, self.directory)

    def __call__(self, trial: Trial) -> tuple[object, MetricCurves | None]:
        assert not isinstance(self.function, str), "`prepare` was called before"
        return self.function(trial), None

    def discard(self, study: str, numbers: Iterable[int]) -> None:
        pass
