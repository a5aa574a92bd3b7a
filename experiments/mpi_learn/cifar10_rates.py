"""Learning rates for CIFAR-10: compares four for each algorithm and number of workers; writes `cifar10_rates.json`.

    python experiments/mpi_learn/cifar10_rates.py [--from FOLDER]

A fifth of the training images is held out, and the accuracy on them after the last epoch is compared. The test images
are not used. Rows that the file has already are not repeated.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from cifar10 import ALGORITHMS, N_EPOCHS, RATES_FILE, WORKERS, content, n_ranks
from training_runs import run

from mpi_learn.known_data import prepare

RATES = (0.00025, 0.0005, 0.001, 0.002)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="source", type=Path, help="folder with CIFAR-10; default: it is downloaded")
    source = parser.parse_args().source
    compared = json.loads(RATES_FILE.read_text()) if RATES_FILE.exists() else {}
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        prepare("cifar10", work / "cifar10.h5", source)
        data = {"train": [str(work / "cifar10.h5")], "validation_fraction": 0.2}
        for algorithm in ALGORITHMS:
            for n_workers in WORKERS:
                row = f"{algorithm} {n_workers}"
                if row in compared:
                    continue
                asked = [content(algorithm, data, 0, N_EPOCHS, rate) for rate in RATES]
                runs = run(asked, n_ranks(algorithm, n_workers), work, warm_up=False)
                accuracies = [one["history"]["val_accuracy"][-1] for one in runs]
                compared[row] = {str(rate): round(value, 4) for rate, value in zip(RATES, accuracies, strict=True)}
                print(row, compared[row], flush=True)
                RATES_FILE.write_text(json.dumps(compared, indent=1))


if __name__ == "__main__":
    main()
