"""The trials of a study that others run while a search runs: a workload system asked for them (see `outside`)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mpi_opt.core.trial import Outcome, Proposal, TrialRecord
from mpi_opt.store.errors import StoreNotReadyError
from mpi_opt.study.open_study import Past, proposal_of

if TYPE_CHECKING:
    from mpi_opt.study.retrying_store import PatientStore

POLL_S = 1.0
"""How often the store is asked what came of the trials of others, in seconds."""


class Others:
    """Knows which trials others run, and learns from the store what came of them.

    Args:
        store: Where they tell it.

    Attributes:
        running: The numbers of their trials.
    """

    def __init__(self, store: PatientStore) -> None:
        self._store = store
        self.running: set[int] = set()
        self._next = 0.0

    def take_up(self, past: Past) -> None:
        """What stands in the store is what they run."""
        self.running = set(past.outside)

    def news(self) -> list[TrialRecord]:
        """Their trials that ended or were given back since the last call."""
        if not self.running or time.monotonic() < self._next:
            return []
        self._next = time.monotonic() + POLL_S
        try:
            records = self._store.store.trials(self._store.study_id, numbers=sorted(self.running))
        except StoreNotReadyError:
            return []  # the next look will tell
        changed = [record for record in records if record.state != "running"]
        self.running.difference_update(record.number for record in changed)
        return changed


def told(record: TrialRecord) -> tuple[Proposal, Outcome]:
    """A trial that others ran, as if a block had."""
    outcome = Outcome(
        record.number,
        record.state,
        record.figure_of_merit,
        record.uncertainty,
        record.duration_s or 0.0,
        error=record.error,
        figures_of_merit=record.figures_of_merit,
        uncertainties=record.uncertainties,
    )
    return proposal_of(record), outcome
