"""The metrics of a compiled Keras model: their state variables are sums over batches and ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import keras
import numpy as np

from mpi_learn.errors import ConfigurationError
from mpi_learn.flat_layout import FlatLayout
from mpi_learn.models.settings import Example


class Run(NamedTuple):
    """The result of an eager pass: returned values by name, changes of the metric states, variables after it."""

    logs: dict[str, np.ndarray]
    change: list[np.ndarray]
    trainable: list[np.ndarray]
    others: list[np.ndarray]


RunPass = Callable[[Example, Sequence[np.ndarray]], Run]
"""(samples, values of the metric states before them) -> the result of a pass."""


class MetricStates:
    """The state variables of all metrics of a model, whose metrics are built.

    Args:
        model: A compiled model.

    Attributes:
        variables: The state variables.
        initial: Their values before the first batch.
    """

    def __init__(self, model: keras.Model) -> None:
        self._model = model
        model.reset_metrics()
        self.variables = list(model.metrics_variables)
        self.initial = [np.array(variable) for variable in self.variables]
        self._layout = FlatLayout.of(self.initial)
        places = {id(variable): place for place, variable in enumerate(self.variables)}
        compiled_loss = getattr(model, "_compile_loss", None)  # private, but needed: it has the losses of the outputs
        means = () if compiled_loss is None else compiled_loss.metrics
        of_means = [[places.get(id(variable)) for variable in mean.variables] for mean in means]
        self._losses = [(total, count) for total, count in of_means if total is not None and count is not None]

    @property
    def size(self) -> int:
        """The number of elements of all states."""
        return self._layout.size

    def change(self, values: Sequence[Any], before: Sequence[Any], n: Any) -> list[Any]:
        """The change of each state by a batch of `n` samples.

        The losses of single outputs are counted `n` times. Keras counts them once per batch in a function that is
        traced for any size of the batch, so that their means would depend on the sizes.
        """
        change = [value - start for value, start in zip(values, before, strict=True)]
        for total, count in self._losses:
            factor = keras.ops.divide_no_nan(n, change[count])
            change[total], change[count] = factor * change[total], factor * change[count]
        return change

    def results(self, sums: np.ndarray) -> dict[str, float]:
        """The values of all metrics by name, from the sums of the changes of their states, (size,).

        The metric ``loss`` of Keras is left out if it is 0: only a `train_step` or `test_step` of the user updates it.
        """
        results = self._results(self._layout.views(sums))
        return {name: float(value) for name, value in results.items() if value or name != "loss"}

    def check(self, run: RunPass, example: Example) -> list[str]:
        """Checks that the metrics are sums over samples, as far as some samples show.

        Args:
            run: Runs a training or inference pass.
            example: The samples.

        Returns:
            The names of values that the pass returns and no metric holds.

        Raises:
            ConfigurationError: A metric's state depends on the order of the batches, or its result is not one number.
        """
        logs, change, *_ = run(example, self.initial)
        results = self._results(change)
        for name, value in results.items():
            if np.ndim(value):
                raise ConfigurationError(
                    f"the metric {name} gives {np.size(value)} values, expected one number",
                    where="metrics",
                    cure=f"give it an average: {{name: {name}, average: macro}}",
                )
        middle = len(example) // 2
        if middle:
            self._check_sums(run, example.part(0, middle), example.part(middle, len(example)))
        return [
            name
            for name, value in logs.items()
            if name != "loss" and not (name in results and np.allclose(results[name], value, rtol=1e-3))
        ]

    def _check_sums(self, run: RunPass, first: Example, second: Example) -> None:
        """Raises ConfigurationError if the change by the second batch depends on the first one."""
        later = [start + change for start, change in zip(self.initial, run(first, self.initial).change, strict=True)]
        pairs = zip(run(second, self.initial).change, run(second, later).change, strict=True)
        for variable, (alone, after) in zip(self.variables, pairs, strict=True):
            if not np.allclose(alone, after, rtol=1e-3, atol=1e-4 * max(1.0, float(np.abs(alone).max(initial=0)))):
                raise ConfigurationError(
                    f"the metric {self._metric_of(variable)} does not add up over batches and ranks",
                    where="metrics",
                    cure="use a mean over samples, or a figure_of_merit function on the trained model",
                )

    def _metric_of(self, variable: Any) -> str:
        leaves = [leaf for metric in self._model.metrics for leaf in getattr(metric, "metrics", None) or [metric]]
        return str(next(metric.name for metric in leaves if any(variable is other for other in metric.variables)))

    def _results(self, changes: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        values = [
            keras.ops.cast(start + change, variable.dtype)
            for start, change, variable in zip(self.initial, changes, self.variables, strict=True)
        ]
        with keras.StatelessScope(list(zip(self.variables, values, strict=True))):
            return {name: keras.ops.convert_to_numpy(value) for name, value in self._model.get_metrics_result().items()}
