"""The accuracy of each algorithm on MNIST after five epochs; writes ``results.json`` and the table of the README.

    python experiments/accuracy/accuracy.py --data mnist.h5 [--only gem clusters] [--seeds 5] [--print]

Runs that are in ``results.json`` with the same settings are not repeated.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from mpi_learn.settings.yaml_file import dumped

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from markdown_tables import markdown_table, with_deviation, write_end
from run_ranks import run_ranks

HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
GOAL, WITHIN = 0.990, 0.005
EPOCHS, SEEDS = 5, range(10)

ADAM = {"name": "adam", "learning_rate": 0.001, "schedule": {"name": "cosine"}}
SCALED = ADAM | {"schedule": {"name": "cosine", "scale": "sqrt", "warmup_epochs": 0.5}}
LINEAR = ADAM | {"schedule": {"name": "cosine", "scale": "linear", "warmup_epochs": 0.5}}
SYNCHRONOUS = {"algorithm": {"name": "allreduce"}, "optimizer": SCALED}

SETTINGS = {
    "allreduce 1": (1, SYNCHRONOUS),
    "allreduce 2": (2, SYNCHRONOUS),
    "allreduce 4": (4, SYNCHRONOUS),
    "allreduce 4, linear": (4, SYNCHRONOUS | {"optimizer": LINEAR}),
    "downpour": (3, {"algorithm": {"name": "downpour"}, "optimizer": ADAM}),
    "easgd": (3, {"algorithm": {"name": "easgd", "sync_every": 4}, "optimizer": ADAM}),
    "gem": (3, {"algorithm": {"name": "gem"}, "optimizer": ADAM | {"learning_rate": 0.0005}}),
    "clusters": (4, {"algorithm": {"name": "clusters", "size": 2}, "optimizer": ADAM}),
}
"""Name -> (ranks, sections of the training.yaml in addition to the common part)."""


def training(name: str, seed: int) -> dict:
    """The training.yaml of a run without its data."""
    common = {
        "model": f"{HERE.resolve()}/model.py:cnn",
        "loss": "sparse_categorical_crossentropy",
        "metrics": ["accuracy"],
        "batch_size": 64,
        "epochs": EPOCHS,
        "seed": seed,
    }
    return common | SETTINGS[name][1]


def key_of(name: str, seed: int) -> str:
    """The key of a run in the results: all its settings except the paths of files."""
    settings = {key: value for key, value in training(name, seed).items() if key != "model"}
    return json.dumps([name, SETTINGS[name][0], settings], sort_keys=True)


def run(name: str, seed: int, data: Path) -> dict[str, list[float]]:
    """The history of one training."""
    test = data.with_name(f"{data.stem}_test{data.suffix}")
    files = {"train": [str(data)], "validation": [str(test)], "features": "X", "labels": "y"}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "training.yaml"
        file.write_text(dumped(training(name, seed) | {"data": files}))
        command = ["-m", "mpi_learn", "train", file, "-o", folder]
        run_ranks(SETTINGS[name][0], *command, folder=Path(folder), variables={})
        return json.loads((Path(folder) / "history.json").read_text())


def table(results: dict) -> str:
    """The results as Markdown: mean and sample standard deviation over seeds. Targets are compared with the mean."""
    found = {name: [results[key_of(name, n)] for n in SEEDS if key_of(name, n) in results] for name in SETTINGS}
    last = {name: [run["val_accuracy"][-1] for run in runs] for name, runs in found.items() if runs}
    head = ["algorithm", "ranks", "seeds", "accuracy after 5 epochs", "each seed"]
    head += ["difference from `allreduce 1`", "target"]
    rows = []
    base = statistics.mean(last["allreduce 1"]) if "allreduce 1" in last else None
    for name, values in last.items():
        mean, is_allreduce = statistics.mean(values), name.startswith("allreduce")
        difference = "" if base is None else f"{100 * (mean - base):+.2f}"
        goal = f"≥ {100 * GOAL:.1f} %" if is_allreduce else f"within {100 * WITHIN:.1f} points"
        reached = mean >= GOAL if is_allreduce else base is not None and mean >= base - WITHIN
        each = ", ".join(f"{100 * value:.2f}" for value in values)
        accuracy = f"{with_deviation([100 * value for value in values], 2)} %"
        target = f"{goal}: {'reached' if reached else 'missed'}"
        rows.append([name, SETTINGS[name][0], len(values), accuracy, each, difference, target])
    return markdown_table(head, rows)


def settings() -> str:
    """The settings of each training.yaml as Markdown."""
    lines, seen = ["```yaml"], None
    for name, (ranks, content) in SETTINGS.items():
        if content is not seen:
            label = name if "," in name else name.split()[0]
            lines.append(f"# {label}" + (f", {ranks} ranks" if not name.startswith("allreduce") else ""))
            text = dumped(content)
            lines += [text.strip()]
        seen = content
    return "\n".join([*lines, "```"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="file that `mpi-learn prepare mnist --to FILE` wrote")
    parser.add_argument("--only", nargs="+", choices=SETTINGS, default=list(SETTINGS), help="some lines of the table")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each line")
    parser.add_argument("--print", action="store_true", help="only the README, from results.json")
    arguments = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in [] if arguments.print else arguments.only:
        for seed in range(arguments.seeds):
            key = key_of(name, seed)
            if key not in results:
                results[key] = run(name, seed, arguments.data.resolve())
                RESULTS.write_text(json.dumps(results, indent=1))
            print(name, seed, results[key]["val_accuracy"], flush=True)
    write_end(HERE / "README.md", f"{table(results)}\n\nSettings of each algorithm:\n\n{settings()}")


if __name__ == "__main__":
    main()
