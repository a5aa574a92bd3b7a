"""One step of a Keras model without activation checkpointing, with MPI Learn's, and with Keras' `RematScope`."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

DEPTH, WIDTH, BATCH = 24, 512, 4096
N_STEPS = 2


def plain() -> Any:
    import keras

    layers = [keras.layers.Dense(WIDTH, "gelu") for _ in range(DEPTH)]
    return keras.Sequential([keras.Input([WIDTH]), *layers, keras.layers.Dense(1)])


def in_remat_scope() -> Any:
    import keras

    with keras.RematScope(mode="full"):
        return plain()


VARIANTS = {
    "none": ("plain", False),
    "`gradient_checkpointing: true`": ("plain", True),
    "`keras.RematScope`": ("in_remat_scope", False),
}


def measure(name: str) -> None:
    """Prints CPU milliseconds of a step, MB that the steps added to the peak memory, and the gradient's norm."""
    from mpi_learn.models.building.make_model import make_model
    from mpi_learn.models.configuration import ModelConfiguration
    from mpi_learn.models.settings import Example, ModelSettings

    function, is_checkpointed = VARIANTS[name]
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(BATCH, WIDTH)).astype("f"),), (rng.normal(size=(BATCH, 1)).astype("f"),)
    settings = ModelSettings(
        ModelConfiguration(model=f"{__file__}:{function}", loss="mse", gradient_checkpointing=is_checkpointed)
    )
    model = make_model(settings, Example((x[0][:8],), (y[0][:8],)))
    model.gradient((x[0][:8],), (y[0][:8],))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    for _ in range(N_STEPS):
        began = time.process_time()
        step = model.gradient(x, y)
        times.append(time.process_time() - began)
    added_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(json.dumps([1e3 * min(times), added_mb, float(np.linalg.norm(step[: model.layout.size] / BATCH))]))


def main() -> None:
    print(f"{DEPTH} layers of {WIDTH} units, batch {BATCH}\n")
    print("| checkpointing | CPU ms per step | memory of the step, MB | norm of the gradient |\n|---|---|---|---|")
    for name in VARIANTS:
        done = subprocess.run([sys.executable, __file__, name], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"| {name} | {done.stderr.splitlines()[-1]} | | |")
        else:
            milliseconds, added_mb, norm = json.loads(done.stdout.splitlines()[-1])
            print(f"| {name} | {milliseconds:,.0f} | {added_mb:,.0f} | {norm:.4g} |")


if __name__ == "__main__":
    measure(sys.argv[1]) if sys.argv[1:] else main()
