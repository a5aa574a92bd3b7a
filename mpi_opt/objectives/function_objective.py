"""The objective that calls a function of the user. Workers import it: without pydantic, which rank 0 alone needs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mpi_learn.mpi.communicators import Communicator
from mpi_learn.settings.user_code import load_function
from mpi_opt.core.objective import MetricCurves, Objective
from mpi_opt.core.search_space.space import Parameters
from mpi_opt.core.trial import Trial, TrialLeft

Left = tuple[float, Any, dict[int, float]]
"""The attributes of a `TrialLeft`: done, state, reported."""


class FunctionObjective(Objective):
    """A function of the user, or ``file.py:function`` relative to `directory`. It is called with the `Trial`.

    Args:
        is_elastic: Whether trials may continue on another number of ranks; see `Trial.resize`.
    """

    def __init__(
        self, function: Callable[[Trial], Any] | str, directory: Path | None = None, *, is_elastic: bool = False
    ) -> None:
        self.function, self.directory, self.is_elastic = function, directory, is_elastic
        # study and number of the trial that has left last, and how; no exception, which refers to all its variables
        self._left: tuple[str, int, Left] | None = None

    def prepare(self, comm: Communicator, parameters: Parameters) -> None:
        if isinstance(self.function, str):
            self.function = load_function(self.function, self.directory)

    def __call__(self, trial: Trial) -> tuple[object, MetricCurves | None]:
        assert not isinstance(self.function, str), "`prepare` was called before"
        if not self.is_elastic:
            return self.function(trial), None
        trial.is_elastic = True
        if (before := self._last_left(trial)) is not None:
            _, trial.state, reported = before
            for step, value in reported.items():
                trial.report(step, value)
        try:
            return self.function(trial), None
        except TrialLeft as left:
            self._left, trial.has_left = (trial.study, trial.number, (left.done, left.state, left.reported)), True
            return None, None

    def _last_left(self, trial: Trial) -> Left | None:
        """How this trial has last left its ranks, on all ranks; None if it begins. Collective over ``trial.comm``."""
        left = None
        if self._left is not None and self._left[:2] == (trial.study, trial.number):
            left = self._left[2]
        done = trial.comm.allgather(-math.inf if left is None else left[0])
        if max(done) == -math.inf:
            return None
        found: Left = trial.comm.bcast(left, root=done.index(max(done)))
        return found

    def discard(self, study: str, numbers: Iterable[int]) -> None:
        pass
