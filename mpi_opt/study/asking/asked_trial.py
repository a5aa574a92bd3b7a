"""A trial that a user runs: the return value of `Study.ask`."""

from __future__ import annotations

from typing import Any

from mpi_opt.core.search_space.space import Value


class AskedTrial(dict[str, Any]):
    """A trial that `Study.ask` has given out: the JSON object of ``mpi-opt ask``, whose main entries are attributes."""

    @property
    def number(self) -> int:
        """The number of the trial, for `Study.tell`."""
        return int(self["number"])

    @property
    def parameters(self) -> dict[str, Value]:
        """The active hyperparameters."""
        return dict(self["parameters"])

    @property
    def seed(self) -> int:
        """The seed of the trial."""
        return int(self["seed"])
