"""Does ``blocks: {size: measured}`` choose the size with which the trials end first? Prints a table.

    python experiments/width/measured_size.py [--repeats 1]

In each setting, a search chooses its size by measurement, and searches with each size are run. Four settings train on
two ranks, so that two cores must be free of other load. In the last one, the time of a sample is a pause.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from settings import LOSSES
from timed_search import rows, timed_search

from mpi_learn.known_data import prepare

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "common"))
LIMIT = 1.1


@dataclass(frozen=True)
class Setting:
    """A search whose best size is not known before.

    Attributes:
        n_training: Number of ranks in blocks; all powers of two up to it are sizes.
    """

    name: str
    framework: str
    build: str
    parameters: dict[str, Any]
    total: int
    epochs: int
    trials: int
    folds: int = 1
    n_training: int = 2

    @property
    def sizes(self) -> list[int]:
        """The sizes that can be chosen."""
        return [2**i for i in range(self.n_training.bit_length())]

    def content(self, data: Path, size: int | str) -> dict[str, Any]:
        """That of ``space.yaml`` with blocks of this size."""
        files: dict[str, Any] = {"train": [str(data)], "features": "X", "labels": "y"}
        return {
            "figure_of_merit": "val_loss",
            "space": {"lr": {"type": "real", "low": 0.0009, "high": 0.0011}},
            "search": {"strategy": "random", "trials": self.trials, "seed": 3},
            "blocks": {"size": size},
            "folds": self.folds,
            "training": {
                "model": f"{HERE / 'networks.py'}:{self.build}",
                "parameters": self.parameters,
                "data": files if self.folds > 1 else files | {"validation_fraction": 0.2},
                "loss": LOSSES[self.framework],
                "optimizer": {"name": "adam", "learning_rate": "$lr"},
                "batch_size": {"total": self.total},
                "epochs": self.epochs,
            },
        }


PLAIN, PAUSED = {"is_random": False}, {"is_random": False, "pause_s": 0.0005}
SETTINGS = [
    Setting("Keras, small network, batch of 96", "keras", "build_keras", PLAIN, 96, 20, 3),
    Setting("PyTorch, small network, batch of 32", "torch", "build_torch", PLAIN, 32, 20, 3),
    Setting("PyTorch, wide network, batch of 480", "torch", "build_wide", {"units": 1536}, 480, 16, 3),
    Setting(
        "PyTorch, wide network, batch of 240, two folds", "torch", "build_wide", {"units": 1536}, 240, 8, 3, folds=2
    ),
    Setting("PyTorch, pauses, batch of 96", "torch", "build_torch", PAUSED, 96, 10, 5, n_training=4),
]


def compared(setting: Setting, data: Path, folder: Path, n_repeats: int) -> list[str]:
    """A row of the table."""
    chosen, times = [], dict[int, list[float]]()
    for repeat in range(n_repeats):
        measured = folder / f"measured-{repeat}"
        timed_search(measured, setting.content(data, "measured"), setting.n_training + 1)
        ((event,),) = rows(measured, "SELECT detail FROM events WHERE kind = 'size_measured'")
        chosen.append(int(event.split()[0]))
        for size in setting.sizes:
            seconds, _ = timed_search(folder / f"{size}-{repeat}", setting.content(data, size), setting.n_training + 1)
            times.setdefault(size, []).append(seconds)
    medians = {size: statistics.median(found) for size, found in times.items()}
    best = min(medians, key=medians.__getitem__)
    worst = max(medians[size] for size in chosen) / medians[best]
    shown = ", ".join(f"{size}: {seconds:.1f} s" for size, seconds in medians.items())
    row = [setting.name, shown, ", ".join(map(str, chosen)), str(best), f"{worst:.2f}"]
    print(*row, sep=" | ", flush=True)
    return row


def main() -> None:
    """Compares the sizes in each setting and prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--smoke", action="store_true", help="the setting with pauses alone, on two ranks")
    options = parser.parse_args()
    from markdown_tables import markdown_table

    chosen = [Setting("smoke", "torch", "build_torch", PAUSED, 96, 1, 1)] if options.smoke else SETTINGS
    table = []
    with tempfile.TemporaryDirectory() as name:
        prepare("digits", data := Path(name, "digits.h5"))
        for index, setting in enumerate(chosen):
            (folder := Path(name, str(index))).mkdir()
            table.append(compared(setting, data, folder, options.repeats))
    print(markdown_table(["setting", "time of the trials by size", "chosen", "best", "chosen / best"], table))
    n_best = sum(set(row[2].split(", ")) == {row[3]} for row in table)
    print(f"best size chosen in {n_best} of {len(table)} settings; at most {LIMIT:.2f} times as long in ", end="")
    print(f"{sum(float(row[4]) <= LIMIT for row in table)} of {len(table)}")


if __name__ == "__main__":
    main()
