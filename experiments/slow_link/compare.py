"""The best settings of the search against others: time of training until the validation loss is 0.2.

    python experiments/slow_link/compare.py --data mnist.h5 [--print]    # as root on Linux

All runs are made one after the other on four hosts. The validation data are the test set of MNIST. Writes
`compare.json` and prints the table of the README.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from runs import ALLREDUCE, N_TRAINING, Run, clusters, low_rank, seeds
from slow_link import HERE, measure
from time_to_target import TARGET, seconds_to_target

FILE = HERE / "compare.json"
RUNS = {
    "allreduce": seeds(Run(ALLREDUCE, 0.003)),
    "allreduce, low rank 28, 3 exact steps": seeds(Run(low_rank(28, exact_steps=3), 0.003)),
    "clusters": seeds(Run(clusters(), 0.002, batch_size=16, epochs=4)),
    "clusters, best of the search": seeds(
        Run(clusters(1, exchange_every=48, neighbours="ring"), 0.0032, batch_size=32, epochs=4)
    ),
}


def seconds(run: Run, found: dict) -> float:
    """The time of a training until its validation loss is `TARGET`; infinite if it is larger after all epochs."""
    losses = found["history"]["val_loss"]
    total_s = run.epochs * N_TRAINING / found["samples_per_second"]
    result = SimpleNamespace(history={"val_loss": losses}, epochs=run.epochs, seconds=total_s)
    return seconds_to_target(result) if min(losses) <= TARGET else float("inf")


def table(results: dict[str, list[dict]]) -> str:
    """As Markdown: means and sample standard deviations over the runs."""
    lines = [
        f"| algorithm | runs | samples/s | loss after 2 epochs | seconds until the loss is {TARGET} |",
        "|---|---|---|---|---|",
    ]
    for name, runs in RUNS.items():
        found = results[name]
        speeds = [one["samples_per_second"] for one in found]
        losses = [one["history"]["val_loss"][1] for one in found]
        times = [seconds(run, one) for run, one in zip(runs, found, strict=True)]
        cells = [name, len(runs), with_spread(speeds, 0), with_spread(losses, 3), with_spread(times, 1)]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def with_spread(values: list[float], digits: int) -> str:
    """Mean and sample standard deviation of the finite values; their number, if others are infinite."""
    finite = [value for value in values if np.isfinite(value)]
    number = "" if len(finite) == len(values) else f" ({len(finite)} of {len(values)} runs)"
    return f"{np.mean(finite):,.{digits}f} ± {np.std(finite, ddof=1):,.{digits}f}{number}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="the file that `mpi-learn prepare mnist --to` wrote")
    parser.add_argument("--print", action="store_true", help="only the table, from compare.json")
    arguments = parser.parse_args()
    if not arguments.print:
        found = iter(list(measure(4, [run for runs in RUNS.values() for run in runs], arguments.data)))
        FILE.write_text(json.dumps({name: [next(found) for _ in runs] for name, runs in RUNS.items()}, indent=1))
    print(table(json.loads(FILE.read_text())))


if __name__ == "__main__":
    main()
