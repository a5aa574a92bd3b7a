"""Measures the training speed on this machine in one go; writes ``results.json`` and the table of the README.

    python experiments/training_speed/benchmark.py --data mnist.h5 [--quick]

Each figure is the best epoch but the first of one run: what the machine can, noise left out.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from pathlib import Path

from mpi_learn.launch import find_mpirun, launch_environment, launch_flags

HERE = Path(__file__).parent
SAMPLES = {"mlp": 60000, "cnn": 10000, "lstm": 15000}
KINDS = ("ours-keras", "bare-keras", "ours-torch", "bare-torch", "ddp")
ALGORITHMS = ("downpour", "gem", "easgd", "clusters")
MARK = "<!-- table -->"


def measured(kind: str, model: str, ranks: int, data: str, n_samples: int, algorithm: str = "allreduce") -> float:
    """Samples per second."""
    mpirun = find_mpirun()
    environment = launch_environment() | {"ALGORITHM": json.dumps({"name": algorithm})}
    command = [mpirun, *launch_flags(mpirun), "-np", str(ranks), sys.executable, str(HERE / "one.py")]
    command += [kind, model, data, str(n_samples), "4"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return max(json.loads(done.stdout.splitlines()[-1])["samples_per_second"][1:])


def table(results: dict) -> str:
    """The results as Markdown."""
    models = list(SAMPLES)
    lines = ["| samples/s | ranks | " + " | ".join(models) + " |", "|---|---|" + "---|" * len(models)]
    for row in results["rows"]:
        cells = " | ".join(f"{row[model]:,.0f}" if model in row else "–" for model in models)
        lines.append(f"| {row['what']} | {row['ranks']} | {cells} |")
    ours, bare, ddp = (
        next(row for row in results["rows"] if (row["what"], row["ranks"]) == (what, 2))
        for what in ("ours-keras", "bare-keras", "ddp")
    )
    lines.append("| ours-keras over ddp | 2 | " + " | ".join(f"{ours[m] / ddp[m]:.2f}×" for m in models) + " |")
    lines.append("| ours-keras over bare-keras | 2 | " + " | ".join(f"{ours[m] / bare[m]:.2f}×" for m in models) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="what `mpi-learn prepare mnist --to FILE` wrote")
    parser.add_argument("--quick", action="store_true", help="an eighth of the samples")
    arguments = parser.parse_args()
    runs = [(kind, 1, "allreduce") for kind in KINDS if kind != "ddp"] + [(kind, 2, "allreduce") for kind in KINDS]
    runs += [("ours-keras", 3, algorithm) for algorithm in ALGORITHMS[:3]] + [("ours-keras", 2, "clusters")]
    rows = []
    for kind, ranks, algorithm in runs:
        row = {"what": kind if algorithm == "allreduce" else f"{kind} {algorithm}", "ranks": ranks}
        for model, n_samples in SAMPLES.items():
            n = n_samples // 8 if arguments.quick else n_samples
            row[model] = measured(kind, model, ranks, arguments.data, n, algorithm)
            print(row["what"], ranks, model, f"{row[model]:,.0f}", flush=True)
        rows.append(row)
    results = {"machine": platform.processor() or platform.machine(), "rows": rows}
    (HERE / "results.json").write_text(json.dumps(results, indent=1))
    readme = HERE / "README.md"
    before, _, _ = readme.read_text().partition(MARK)
    readme.write_text(f"{before}{MARK}\n\n{table(results)}\n")


if __name__ == "__main__":
    main()
