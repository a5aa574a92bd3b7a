"""GEM: gradient energy matching (Hermans & Louppe 2018, arXiv:1805.08469).

A worker's step d (what its optimizer makes of its gradient; with plain sgd the paper's −ηg) is pushed to the centre
damped by π: all workers together move it with the energy κ|m| of one worker's momentum m, whatever their number:

    ``m ← μm + d``, pull θ, ``π = clamp((κ|m| − |θ − s|) / (|d| + ε), 0, 5)``, push ``πd``, ``s ← θ``, ``x ← θ + πd``

element by element. θ − s is what the others changed since the last look; s starts as the common initial weights, so
that the first exchange sees no change that nobody made.
"""

from __future__ import annotations

import numpy as np

from mpi_learn.algorithms.parameter_server.centre import N_EXTRA, Centre, Link
from mpi_learn.algorithms.parameter_server.master_worker import Worker
from mpi_learn.flat_layout import aligned_empty
from mpi_learn.optimizers.optimizer import Float, Optimizer, fused

EPSILON = 1e-16
LARGEST = 5.0


class EnergyCentre(Centre):
    """The centre θ: adds up what is pushed.

    Args:
        weights: θ, (n,) float32.
        link: To the master above, for a master below another: it hands up the sum of what its workers pushed.
        every: Pushes between two exchanges with the master above.
    """

    def __init__(self, weights: np.ndarray, link: Link | None = None, every: int = 0) -> None:
        self.weights, self.link, self.every = weights, link, every
        self._pushed = np.zeros(weights.size + N_EXTRA if link is not None else 0, np.float32)
        self._n = 0

    def absorb(self, message: np.ndarray) -> None:
        """``θ ← θ + πd``; answers with θ where an answer is wanted."""
        n = self.weights.size
        self.weights += message[:n]
        if self.link is None:
            message[:n] = self.weights
            return
        self._pushed[:n] += message[:n]
        self._n += 1
        if self._n == self.every:
            self.flush()

    def flush(self) -> None:
        """Hands up what was pushed; takes the weights that come down."""
        if not self._n:
            return
        self._n = 0
        if self.link is not None:
            answer = self.link.swap(self._pushed)
            self.has_failure = answer is None
            if answer is not None:
                self.weights[:] = answer[: self.weights.size]
            self._pushed[:] = 0


class EnergyWorker(Worker):
    """Damps its steps by what the others did meanwhile.

    Args:
        link: To the master.
        weights: The common initial weights.
        sync_every: Steps between two exchanges.
        optimizer: Makes a step of a gradient.
        momentum, kappa: μ and κ.
    """

    def __init__(
        self, link: Link, weights: np.ndarray, sync_every: int, optimizer: Optimizer, momentum: float, kappa: float
    ) -> None:
        self.link, self.n, self.sync_every, self.optimizer = link, weights.size, sync_every, optimizer
        self._numbers = Float(momentum), Float(kappa)
        self._start, self._seen = weights.copy(), weights.copy()
        self._energy = np.zeros(self.n, np.float32)
        self._pulled = aligned_empty(self.n + N_EXTRA)
        self._n_steps = 0

    def step(self, weights: np.ndarray, message: np.ndarray, n_samples: float) -> bool:
        """See `Worker.step`."""
        if n_samples:
            self.optimizer.update(weights, message[: self.n], 1.0 / n_samples)
        self._n_steps += 1
        return self._exchange(weights) if self._n_steps % self.sync_every == 0 else True

    def finish(self, weights: np.ndarray) -> bool:
        """See `Worker.finish`."""
        is_through = self._n_steps % self.sync_every == 0
        self._n_steps = 0
        return is_through or self._exchange(weights)

    def arrays(self) -> dict[str, np.ndarray]:
        """See `Worker.arrays`."""
        return super().arrays() | {"seen": self._seen, "energy": self._energy}

    def _exchange(self, weights: np.ndarray) -> bool:
        pulled = self.link.pull(self._pulled)
        if pulled is None:
            return False
        _match(weights, self._start, self._seen, self._energy, pulled, *self._numbers)
        self.link.push(pulled)
        return True

    def begin(self, weights: np.ndarray) -> None:
        """Epochs begin with the centre's weights, from which the first step is measured."""
        self._start[:] = weights


@fused
def _match(weights, start, seen, energy, message, momentum, kappa):
    for i in range(weights.size):
        d = weights[i] - start[i]
        m = momentum * energy[i] + d
        theta = message[i]
        pi = (kappa * abs(m) - abs(theta - seen[i])) / (abs(d) + np.float32(EPSILON))
        step = min(max(pi, np.float32(0.0)), np.float32(LARGEST)) * d
        energy[i] = m
        seen[i] = theta
        message[i] = step
        weights[i] = theta + step
        start[i] = weights[i]
