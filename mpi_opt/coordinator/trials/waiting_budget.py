"""How long blocks may wait for proposals: a part of the time for which they have worked.

A model of all outcomes takes hundredths of a second and saves trials; in this time other blocks become idle, too. The
budget weighs both without a choice by the user: with trials of minutes every proposal comes from a model, and with
thousands of blocks and trials of seconds only some do.

Rank 0 answers no message while it proposes. With thousands of blocks, models that together cost the blocks little time
would occupy rank 0 always, and every block would wait. A second account limits them to a part of the time of rank 0,
and a third one the time in which a new message waits for longer than a tenth of a second.
"""

from __future__ import annotations

import math
from typing import final

MAX_FREE_BLOCKS = 16
"""With at most this many blocks every proposal may take the time of a model: it is short compared with most trials, and
a search on one rank has the same proposals again, however long its trials take."""
SHARE = 0.015
"""The part of the blocks' time that may be lost by waiting."""
FIRST_GUESS_S, FIRST_GUESS_OTHER_S = 0.03, 0.001
"""The times of a proposal with and without a model, until they have been measured, in seconds."""
OWN_SHARE = 0.15
"""The part of the time of rank 0 that models may take in a long search with many blocks."""
OWN_CREDIT_S = 30.0
"""The time of rank 0 that they may take before, in seconds. It suffices for the models of a thousand trials."""
WORK_OF_TRIAL = 1.6
"""The time of rank 0 for a trial, in units of that of its proposal without a model; measured with `experiments/scale`.
"""
MAX_LOAD = 0.95
"""The largest load of rank 0 with which the time that is lost is computed. At 1, it would have no limit."""
CROWD = 500
"""With more blocks than this, rank 0 answers nearly all messages promptly, if some come during each model."""
FEW_MESSAGES = 0.1
"""As long as fewer messages than this come during a model, on average, no block waits."""
PROMPT_S = 0.1
"""The longest time after which a message is answered promptly, in seconds; with long trials, see `PROMPT_PART`."""
PROMPT_PART = 1e-4
"""A block that waits for this part of a trial loses nothing that can be measured: 0.36 s with trials of an hour."""
LATE_SHARE, LATE_CREDIT_S = 0.004, 3.0
"""The part of the time of rank 0 in which models may let a new message wait for longer; and that time in advance."""
MAX_WAITING = 4
"""With more idle blocks than this, rank 0 is behind: what a model costs then grows with its load."""
MAX_DEBT_TRIALS = 50
"""The largest debt is what the blocks earn in this number of trials each."""
MEMORY = 0.2
"""The weight of the latest measurement in the averages."""


@final
class WaitingBudget:
    """Earns a part of the time of every trial, and pays for the time that blocks wait. Times are in seconds."""

    def __init__(self) -> None:
        self._balance_s = 0.0  # of one block
        self._model_s, self._other_s = FIRST_GUESS_S, FIRST_GUESS_OTHER_S  # of one proposal
        self._trial_s = math.inf
        self._own_s, self._late_s, self._n_blocks = OWN_CREDIT_S, LATE_CREDIT_S, math.inf
        self._has_modelled = False  # in the latest call of `ask`

    def earn(self, duration_s: float) -> None:
        """Adds a trial that has ended."""
        duration_s = max(duration_s, 0.0)  # a clock may have been set back
        self._balance_s += SHARE * duration_s
        # trials that last a second each, one on each block, end in one second
        most_s = max(OWN_CREDIT_S, self._model_s)  # of a slow model, or after a pause of the host, enough for one
        passed_s = duration_s / self._n_blocks
        self._own_s = min(self._own_s + OWN_SHARE * passed_s, most_s)
        self._late_s = min(self._late_s + LATE_SHARE * passed_s, LATE_CREDIT_S)
        is_first = math.isinf(self._trial_s)
        self._trial_s = duration_s if is_first else self._trial_s + MEMORY * (duration_s - self._trial_s)

    def n_models(self, n_idle: int, n_running: int) -> int:
        """How many proposals for `n_idle` blocks may take the time of a model, while `n_running` trials run."""
        n, self._n_blocks = n_idle, max(n_idle + n_running, 1)
        if self._n_blocks <= MAX_FREE_BLOCKS:
            return n
        while n and not self._is_affordable(n * self._model_s, n_idle, n_running):
            n //= 2
        is_crowd = self._n_blocks > CROWD and n_running * self._model_s > FEW_MESSAGES * self._trial_s
        return min(n, self._n_prompt(n_idle)) if is_crowd else n

    def pay(self, taken_s: float, n_models: int, n_idle: int, n_running: int) -> None:
        """Subtracts the time that blocks have waited for the models in a call of `ask`, which has taken `taken_s`.

        The other proposals of the call take what they took in calls without a model.
        """
        self._has_modelled = n_models > 0
        if not n_models:
            self._other_s += MEMORY * (taken_s / max(n_idle, 1) - self._other_s)
            return
        taken_s = max(taken_s - (n_idle - n_models) * self._other_s, 0.0)
        self._model_s += MEMORY * (taken_s / n_models - self._model_s)
        # a host that was suspended must not end the use of models for the rest of the search
        debt_s = MAX_DEBT_TRIALS * SHARE * (n_idle + n_running) * self._trial_s if math.isfinite(self._trial_s) else 0.0
        self._balance_s = max(self._balance_s - self._waiting_s(taken_s, n_idle, n_running), -debt_s)
        self._own_s = max(self._own_s - taken_s, -OWN_CREDIT_S)
        self._late_s = max(self._late_s - max(taken_s - self._prompt_s, 0.0), -LATE_CREDIT_S)

    def _n_prompt(self, n_idle: int) -> int:
        """How many models leave time for the messages of many blocks."""
        # the blocks that became idle during a model do not wait for the next one
        if self._has_modelled or n_idle > MAX_WAITING or self._late_s <= 0.0:
            return 0
        return max(int(0.5 * self._prompt_s / self._model_s), 1)

    @property
    def _prompt_s(self) -> float:
        return max(PROMPT_S, PROMPT_PART * self._trial_s) if math.isfinite(self._trial_s) else PROMPT_S

    def _is_affordable(self, taken_s: float, n_idle: int, n_running: int) -> bool:
        return taken_s <= self._own_s and self._waiting_s(taken_s, n_idle, n_running) <= self._balance_s

    def _waiting_s(self, taken_s: float, n_idle: int, n_running: int) -> float:
        """The time that idle blocks wait, and those that become idle meanwhile, for half of the time on average.

        The busier rank 0 is with the other work for trials, the later it has no block left that waits.
        """
        n_ending = min(n_running * taken_s / max(self._trial_s, 1e-9), n_running)
        load = WORK_OF_TRIAL * self._other_s * n_running / max(self._trial_s, 1e-9)
        return taken_s * (n_idle + 0.5 * n_ending) / (1.0 - min(load, MAX_LOAD))
