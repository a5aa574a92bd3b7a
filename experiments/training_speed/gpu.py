"""Speed of `mpi_learn.train` with PyTorch on a GPU, relative to a plain loop of PyTorch; about two minutes.

    python experiments/training_speed/gpu.py --data mnist.h5      # on a host with a GPU

Writes ``gpu.json`` and prints the table of the README; ``--print`` only prints. The two programs of a network run at
the same time and share the GPU.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "common"))

from markdown_tables import markdown_table  # noqa: E402 - found by the path above

RESULTS = HERE / "gpu.json"
SAMPLES = {"mlp": 25_600, "cnn": 25_600, "resnet": 7_680}
KINDS = ("plain-torch", "ours-torch")
TURNS = 5


def speeds(model: str, data: Path) -> dict[str, list[float]]:
    """Samples per second of each epoch, the first one left out, of both programs."""
    command = [sys.executable, str(HERE / "one.py")]
    programs = {
        kind: subprocess.Popen(
            [*command, kind, model, str(data), str(SAMPLES[model])], stdin=-1, stdout=-1, text=True, cwd=HERE
        )
        for kind in KINDS
    }
    for program in programs.values():
        program.stdin.write("go\n" * TURNS + "end\n")
        program.stdin.close()
    lines = {kind: program.stdout.read().splitlines() for kind, program in programs.items()}
    for program in programs.values():
        program.wait()
    return {kind: json.loads(found[-1])["samples_per_second"] for kind, found in lines.items()}


def table(results: dict[str, Any]) -> str:
    """Median speeds with their range, and the ratio of the medians."""
    rows = []
    for model, found in results["speeds"].items():
        cells = [f"{median(found[kind]):,.0f} ({min(found[kind]):,.0f} to {max(found[kind]):,.0f})" for kind in KINDS]
        ours, plain = (median(found[kind]) for kind in reversed(KINDS))
        rows.append([model, *cells, f"{ours / plain:.2f}"])
    return markdown_table([f"images/s on {results['gpu']}", "plain loop", "MPI Learn", "ratio"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="file that `mpi-learn prepare mnist --to FILE` wrote")
    parser.add_argument("--print", action="store_true", help="measure nothing; print the table")
    options = parser.parse_args()
    if not options.print:
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        gpu = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
        found = {model: speeds(model, options.data.resolve()) for model in SAMPLES}
        RESULTS.write_text(json.dumps({"gpu": gpu, "speeds": found}, indent=1) + "\n")
    print(table(json.loads(RESULTS.read_text())))


if __name__ == "__main__":
    main()
