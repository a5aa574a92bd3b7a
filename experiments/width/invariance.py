"""How much does the number of ranks change a training? Prints the table of the README.

Run it in the project's folder: python experiments/width/invariance.py
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from settings import TOTAL, training

from mpi_learn.known_data import prepare

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent / "common"))
PLAIN = {"parameters": {"is_random": False}}
CASES: dict[str, dict[str, Any]] = {
    "`{total: 96, shards: 12}`, dropout, batch normalization": {},
    "`{total: 96}`, neither of them": {"batch_size": {"total": TOTAL}, **PLAIN},
    "`{total: 96}`, dropout, batch normalization": {"batch_size": {"total": TOTAL}},
    "`24` per rank, neither of them": {"batch_size": 24, **PLAIN},
}


def train_case(framework: str, data: Path, case: str, out: Path) -> None:
    """Trains on all ranks of the world; rank 0 writes losses and weights."""
    from mpi4py import MPI

    from mpi_learn import train

    result = train(training(framework, data, **CASES[case]), MPI.COMM_WORLD)
    if MPI.COMM_WORLD.rank == 0:
        model = result.model
        arrays = model.get_weights() if framework == "keras" else [one.numpy() for one in model.state_dict().values()]
        losses = [value for name in ("loss", "val_loss") for value in result.history[name]]
        np.savez(out, losses=losses, weights=np.concatenate([np.ravel(one) for one in arrays]).astype(float))


def main() -> None:
    """Trains each case on each number of ranks and prints the largest differences from one rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument("--frameworks", nargs="+", default=["keras", "torch"])
    parser.add_argument("--smoke", action="store_true", help="PyTorch on one and two ranks")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # arguments of `train_case` as JSON
    options = parser.parse_args()
    if options.one:
        framework, data, case, out = json.loads(options.one)
        train_case(framework, Path(data), case, Path(out))
        return
    if options.smoke:
        options.ranks, options.frameworks = [1, 2], ["torch"]
    from markdown_tables import markdown_table
    from run_ranks import run_ranks

    rows = []
    with tempfile.TemporaryDirectory() as name:
        data = Path(name, "digits.h5")
        prepare("digits", data)
        for framework in options.frameworks:
            for case in CASES:
                found = []
                for n in options.ranks:
                    out = Path(name, f"{n}.npz")
                    run_ranks(n, __file__, "--one", json.dumps([framework, str(data), case, str(out)]), folder=HERE)
                    found.append(dict(np.load(out)))
                cells = [
                    f"{np.abs(other['losses'] - found[0]['losses']).max():.1e}, "
                    f"{np.abs(other['weights'] - found[0]['weights']).max():.1e}"
                    for other in found[1:]
                ]
                rows.append([framework, case, *cells])
                print(*rows[-1], flush=True)
    print(markdown_table(["framework", "training", *(f"{n} ranks" for n in options.ranks[1:])], rows))


if __name__ == "__main__":
    main()
