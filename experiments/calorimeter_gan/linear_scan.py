"""A linear scan of the generator's learning rate with `mpi-opt ask` and `mpi-opt tell`.

    python experiments/calorimeter_gan/linear_scan.py [--work FOLDER] [--smoke]

This is the loop of a workload system: it asks for a trial, runs it as a job of its own (two MPI ranks), and reports the
figure of merit. MPI Opt does not run during the trainings, and an interrupted scan continues. At the end `mpi-opt
results` prints the study.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from compare import N_TEST, N_TRAINING, prepare_data

from mpi_learn.settings.yaml_file import read_yaml

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from run_ranks import run_ranks


def mpi_opt(*arguments: str, work: Path) -> str:
    """The output of a command of MPI Opt."""
    command = [sys.executable, "-m", "mpi_opt", *arguments]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    return done.stdout


def job(trial: dict, work: Path, n_ranks: int, **changes) -> float:
    """Trains with the proposed learning rate; the distance of the profiles on the test showers.

    A scan whose result is used to choose a rate needs other showers, for example those that the training leaves out.
    """
    content = read_yaml(work / "train.yaml") | changes
    content["gan"]["generator_optimizer"]["learning_rate"] = trial["parameters"]["generator_rate"]
    (work / "runs.json").write_text(json.dumps({"test": "showers_test.h5", "runs": [["scan", content]]}))
    run_ranks(n_ranks, "final_training.py", "runs.json", "found.json", folder=work)
    return json.loads((work / "found.json").read_text())["runs"][0]["profile_distance"]


def scan(work: Path, n_trials: int = 5, n_ranks: int = 2, **changes) -> None:
    """Asks, runs and reports until all trials are done. `changes` replace keys of train.yaml."""
    for _ in range(n_trials):
        asked = json.loads(mpi_opt("ask", "scan.yaml", "-k", "1", work=work))
        if not asked:
            return
        value = job(asked[0], work, n_ranks, **changes)
        mpi_opt("tell", "scan.yaml", "--number", str(asked[0]["number"]), "--value", str(value), work=work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, help="folder for data and study; default: a temporary one")
    parser.add_argument("--smoke", action="store_true", help="one trial with few showers, on one rank")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = (arguments.work or Path(temporary)).resolve()
        prepare_data(work, *((40, 8) if arguments.smoke else (N_TRAINING, N_TEST)))
        scan(work, **({"n_trials": 1, "n_ranks": 1, "epochs": 1} if arguments.smoke else {}))
        print(mpi_opt("results", "--store", "generator_rate.db", "--study", "generator_rate", work=work))


if __name__ == "__main__":
    main()
