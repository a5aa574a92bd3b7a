"""Default GAN against the search's Pareto front; writes `results.json`, the README's table and `profiles.png`.

    python experiments/calorimeter_gan/compare.py [--work FOLDER] [--print]
    python experiments/calorimeter_gan/compare.py --smoke

The search and all trainings use 1,000 simulated showers on two ranks. The models are compared on 400 others.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from mpi_learn.known_data import prepare
from mpi_learn.settings.yaml_file import read_yaml
from mpi_opt import Study

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from markdown_tables import markdown_table, with_deviation, write_end
from run_ranks import run_ranks

HERE = Path(__file__).parent
SEEDS = (1, 2, 3, 4, 5)
N_TRAINING, N_TEST = 1000, 400
FIGURES = {"profile_distance": "distance of the profiles", "response_distance": "distance of the energy response"}
SIDE = 25


def prepare_data(work: Path, n_training: int, n_test: int) -> None:
    """Copies the experiment to `work` and simulates showers there."""
    shutil.copytree(HERE, work, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.h5", "*.db", "__pycache__"))
    for file, n, seed in (("showers.h5", n_training, 1), ("showers_test.h5", n_test, 2)):
        if not (work / file).exists():
            prepare("showers", work / file, simulate=n, seed=seed)


def search(work: Path, *options: str, n_ranks: int = 3) -> dict:
    """Runs the search, or continues it; returns its trials and its Pareto front, ordered by the first figure."""
    started = time.monotonic()
    run_ranks(n_ranks, "-m", "mpi_opt", "search", "search.yaml", *options, folder=work)
    study = Study.open(f"sqlite:///{work}/calorimeter_gan.db", "calorimeter_gan")
    return {
        "trials": [trial.figures_of_merit for trial in study.trials],
        "front": [{"number": trial.number, "parameters": trial.parameters} for trial in study.pareto()],
        "seconds": round(time.monotonic() - started),
    }


def training(parameters: dict, work: Path) -> dict:
    """The training of train.yaml with hyperparameters of the search in place of the default values."""
    content, values = read_yaml(work / "train.yaml"), dict(parameters)
    if not values:
        return content
    gan = content["gan"]
    gan["generator_optimizer"]["learning_rate"] = values.pop("generator_rate")
    gan["loss_weights"] = [1.0, values.pop("energy_weight")]
    gan["smoothing"], gan["latent"] = values.pop("smoothing"), values["latent"]
    content["optimizer"]["learning_rate"] = values.pop("learning_rate")
    return content | {"parameters": values}


def final(front: list[dict], work: Path, seeds: tuple[int, ...] = SEEDS, n_ranks: int = 2, **changes) -> dict:
    """Trains the default model and both ends of the front, or its one point; distances and profiles on test showers."""
    chosen = {"default": {}}
    if len(front) == 1:
        chosen["best of the search"] = front[0]["parameters"]
    elif front:
        chosen |= {"best profiles": front[0]["parameters"], "best response": front[-1]["parameters"]}
    runs = [
        [kind, training(parameters, work) | changes | {"seed": seed}]
        for kind, parameters in chosen.items()
        for seed in seeds
    ]
    (work / "runs.json").write_text(json.dumps({"test": "showers_test.h5", "runs": runs}))
    run_ranks(n_ranks, "final_training.py", "runs.json", "found.json", folder=work)
    return json.loads((work / "found.json").read_text())


def table(results: dict) -> str:
    """The results as Markdown: mean and sample standard deviation over seeds."""
    by_kind: dict[str, list[dict]] = {}
    for run in results["runs"]:
        by_kind.setdefault(run["kind"], []).append(run)
    by_kind["other simulated showers"] = [results["floor"]]
    rows = [
        [kind, len(runs), *(with_deviation([run[figure] for run in runs], 3) for figure in FIGURES)]
        for kind, runs in by_kind.items()
    ]
    return markdown_table(["model", "trainings", *FIGURES.values()], rows)


def draw(results: dict, file: Path) -> None:
    """Mean profiles of the first training of each model, and all trials of the search."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot, ticker

    figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
    shown: dict[str, dict] = {"simulated": results["real"]}
    for run in results["runs"]:
        shown.setdefault(run["kind"], run)
    for axis, key, label in ((axes[0], "depth", "depth / radiation length"), (axes[1], "across", "across / voxel")):
        for kind, profiles in shown.items():
            axis.step(np.arange(SIDE) + 0.5, profiles[key], where="mid", label=kind)
        axis.set(xlabel=label, ylabel="mean share of the energy")
    axes[0].legend()
    trials = np.array([[trial[key] for key in FIGURES] for trial in results["search"]["trials"] if trial])
    axes[2].plot(*trials.T, "o")
    axes[2].set(xlabel=FIGURES["profile_distance"], ylabel=FIGURES["response_distance"], xscale="log", yscale="log")
    axes[2].xaxis.set_minor_formatter(ticker.NullFormatter())  # the labels would overlap
    axes[2].set_title("trials of the search", fontsize="medium")
    figure.savefig(file, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--work", type=Path, help="folder for data and study; default: a temporary one")
    parser.add_argument("--print", action="store_true", help="only table and picture, from results.json")
    parser.add_argument("--smoke", action="store_true", help="a short run that prints its table and writes no files")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = (arguments.work or Path(temporary)).resolve()
        if arguments.smoke:
            smoke(work)
            return
        file = HERE / "results.json"
        if not arguments.print:
            prepare_data(work, N_TRAINING, N_TEST)
            searched = search(work)
            file.write_text(json.dumps({"search": searched} | final(searched["front"], work), indent=1))
    results = json.loads(file.read_text())
    write_end(HERE / "README.md", table(results))
    draw(results, HERE / "profiles.png")


def smoke(work: Path) -> None:
    """With few showers, a search of one trial, and one training of the default model for one epoch, on a rank each."""
    prepare_data(work, 40, 8)
    space = (work / "search.yaml").read_text().replace("epochs: 12", "epochs: 1").replace("high: 8,", "high: 4,")
    (work / "search.yaml").write_text(space)
    searched = search(work, "--trials", "1", "--block-size", "1", n_ranks=2)
    results = {"search": searched} | final([], work, seeds=(1,), n_ranks=1, epochs=1)
    print(table(results))
    draw(results, work / "profiles.png")


if __name__ == "__main__":
    main()
