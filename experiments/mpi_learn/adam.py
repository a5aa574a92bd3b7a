"""The time of one Adam update of 1,250,858 weights, the size of the CIFAR-10 network, on one thread."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from training_runs import spread

N_WEIGHTS, N_UPDATES, N_RUNS = 1_250_858, 50, 5
RATE, BETA_1, BETA_2, EPSILON = 0.001, 0.9, 0.999, 1e-7


class NumPy:
    """Written as in the paper, with temporary arrays."""

    def __init__(self, n: int) -> None:
        self.w, self.m, self.v = np.zeros((3, n), np.float32)
        self.t = 0

    def update(self, g: np.ndarray) -> None:
        self.t += 1
        self.m = BETA_1 * self.m + (1 - BETA_1) * g
        self.v = BETA_2 * self.v + (1 - BETA_2) * g * g
        alpha = RATE * np.sqrt(1 - BETA_2**self.t) / (1 - BETA_1**self.t)
        self.w = self.w - np.float32(alpha) * self.m / (np.sqrt(self.v) + EPSILON)


class NumExpr(NumPy):
    """The same three expressions, compiled by NumExpr."""

    def update(self, g: np.ndarray) -> None:
        import numexpr

        self.t += 1
        b1, b2, c1, c2 = (np.float32(x) for x in (BETA_1, BETA_2, 1 - BETA_1, 1 - BETA_2))
        alpha = np.float32(RATE * np.sqrt(1 - BETA_2**self.t) / (1 - BETA_1**self.t))
        names = {"m": self.m, "v": self.v, "w": self.w, "g": g, "b1": b1, "b2": b2, "c1": c1, "c2": c2}
        self.m = numexpr.evaluate("b1 * m + c1 * g", names)
        self.v = numexpr.evaluate("b2 * v + c2 * g * g", names)
        names |= {"m": self.m, "v": self.v, "a": alpha, "e": np.float32(EPSILON)}
        self.w = numexpr.evaluate("w - a * m / (sqrt(v) + e)", names)


class TensorFlow:
    """Keras' Adam on one variable, in a compiled function, which copies the gradient from NumPy to a tensor."""

    def __init__(self, n: int) -> None:
        import keras
        import tensorflow as tf

        self._variable = keras.Variable(np.zeros(n, np.float32))
        optimizer = keras.optimizers.Adam(RATE, epsilon=EPSILON)
        optimizer.build([self._variable])
        self._apply = tf.function(lambda g: optimizer.apply([g], [self._variable]))

    @property
    def w(self) -> np.ndarray:
        return np.asarray(self._variable)

    def update(self, g: np.ndarray) -> None:
        self._apply(g)


class MpiLearn:
    """The optimizer of MPI Learn on one flat vector, as a master applies it."""

    def __init__(self, n: int) -> None:
        from mpi_learn.flat_layout import FlatLayout
        from mpi_learn.optimizers.configuration import Adam
        from mpi_learn.optimizers.optimizer import make_optimizer

        options = Adam(learning_rate=RATE, beta_1=BETA_1, beta_2=BETA_2, epsilon=EPSILON)
        self._optimizer = make_optimizer(options, FlatLayout(((n,),)))
        self.w = np.zeros(n, np.float32)

    def update(self, g: np.ndarray) -> None:
        self._optimizer.update(self.w, g)


KINDS = {"NumPy": NumPy, "NumExpr": NumExpr, "TensorFlow": TensorFlow, "MPI Learn": MpiLearn}
LABELS = {"TensorFlow": "Keras' Adam on TensorFlow, with a copy of the gradient"}
"""Names in the table, where they differ from the kind."""
PUBLISHED = {"NumPy": "20", "NumExpr": "6", "TensorFlow": "3"}


def known() -> list[str]:
    """The kinds whose package is installed: NumExpr is not a dependency of MPI Learn."""
    return [name for name in KINDS if name != "NumExpr" or importlib.util.find_spec("numexpr")]


def milliseconds(kind: str, n_weights: int, n_updates: int) -> float:
    """The median time of an update, after two that are not counted."""
    gradient = np.random.default_rng(0).normal(size=n_weights).astype(np.float32)
    optimizer, seconds = KINDS[kind](n_weights), []
    for _ in range(n_updates + 2):
        start = time.perf_counter()
        optimizer.update(gradient)
        seconds.append(time.perf_counter() - start)
    return 1000 * float(np.median(seconds[2:]))


def measure(work: Path, *, smoke: bool) -> dict[str, list[float]]:
    """Milliseconds per update; each run is a process of its own with one thread, and the kinds take turns.

    The short form leaves out TensorFlow, which takes seconds to load.
    """
    from mpi_learn.job.launch import launch_environment

    threads = ("OMP", "OPENBLAS", "NUMEXPR", "NUMBA")
    one = {f"{name}_NUM_THREADS": "1" for name in threads}
    one |= {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    n_runs, n_weights, n_updates = (1, 1000, 3) if smoke else (N_RUNS, N_WEIGHTS, N_UPDATES)
    found: dict[str, list[float]] = {kind: [] for kind in known() if not (smoke and kind == "TensorFlow")}
    for _ in range(n_runs):
        for kind, values in found.items():
            line = [sys.executable, __file__, kind, str(n_weights), str(n_updates)]
            done = subprocess.run(
                line, env=launch_environment() | one, cwd=work, capture_output=True, text=True, check=True
            )
            values.append(json.loads(done.stdout.splitlines()[-1]))
    return found


def table(found: dict[str, list[float]]) -> str:
    """As Markdown."""
    lines = ["| Adam of | runs | ms per update | published (another machine) |", "|---|---|---|---|"]
    for name in KINDS:
        values = found.get(name, [])
        cell = spread(values, 2) if values else "not measured"
        lines.append(f"| {LABELS.get(name, name)} | {len(values)} | {cell} | {PUBLISHED.get(name, '')} |")
    return "\n".join(lines)


if __name__ == "__main__":
    kind, n_weights, n_updates = sys.argv[1:]
    print(json.dumps(milliseconds(kind, int(n_weights), int(n_updates))))
