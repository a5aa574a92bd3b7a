"""A text file with the metrics of a search, for the collector ``textfile`` of the node exporter of Prometheus."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from mpi_opt.errors import ConfigurationError
from mpi_opt.study.status import SearchStatus


class MetricsFile:
    """Writes the file; readers never see an incomplete one.

    Raises:
        ConfigurationError: The client library of Prometheus is not installed, or the folder does not exist.
    """

    def __init__(self, path: Path) -> None:
        where = "search.metrics_file"
        try:
            import prometheus_client
        except ImportError:
            cure = "pip install mpi-opt[metrics]"
            raise ConfigurationError("this needs prometheus_client", where=where, cure=cure) from None
        if not path.parent.is_dir():
            raise ConfigurationError(f"there is no folder {path.parent}", where=where, cure="create it")
        self.path, self._client = path, prometheus_client

    def take(self, status: SearchStatus) -> None:
        """Writes the metrics of `status`.

        Raises:
            OSError: The file cannot be written.
        """
        registry = self._client.CollectorRegistry()

        def add(name: str, meaning: str, value: float | None) -> None:
            if value is not None:
                gauge = self._client.Gauge(f"mpi_opt_{name}", meaning, ["study"], registry=registry)
                gauge.labels(status.study).set(value)

        trials = self._client.Gauge("mpi_opt_trials", "Trials by state.", ["study", "state"], registry=registry)
        for state, n in status.trials.items():
            trials.labels(status.study, state).set(n)
        n_busy = sum(block.number is not None for block in status.blocks)
        blocks = self._client.Gauge("mpi_opt_blocks", "Blocks of ranks.", ["study", "state"], registry=registry)
        blocks.labels(status.study, "busy").set(n_busy)
        blocks.labels(status.study, "idle").set(len(status.blocks) - n_busy)
        add("trials_wanted", "Number of trials of the study.", status.wanted)
        add("trials_per_hour", "Trials that end per hour.", status.trials_per_hour)
        add("best_figure_of_merit", "The best figure of merit.", status.best)
        add("restarts", "How often the job of the search was started again.", status.n_restarts)
        add("running", "1 while a search runs the study, else 0.", status.activity == "running")
        add("last_trial_ended_timestamp_seconds", "When a trial has ended last.", _timestamp(status.last_ended_at))
        add("sign_of_life_timestamp_seconds", "The last sign of life of rank 0.", _timestamp(status.sign_of_life))
        add(
            "expected_end_timestamp_seconds",
            "When the study will probably be finished.",
            _timestamp(status.expected_end),
        )
        self._client.write_to_textfile(str(self.path), registry)


def _timestamp(at: str | None) -> float | None:
    return None if at is None else datetime.fromisoformat(at).timestamp()
