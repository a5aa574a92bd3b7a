"""Default against tuned jet taggers; writes `results.json`, the table of the README and `jets.png`.

    python experiments/jets/compare.py [--only gru conv1d] [--from FOLDER] [--work FOLDER] [--print]
    python experiments/jets/compare.py --smoke

For each network: a search on 6,000 jets in 3 folds, then trainings on all of them with default and with tuned values, 3
seeds each, evaluated on 10,000 other jets. A network that is in `results.json` is not repeated. The dijet events need
their original file (`--from`).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

import h5py
import numpy as np

from mpi_learn.known_data import prepare
from mpi_learn.settings.yaml_file import read_yaml
from mpi_opt import Study

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from markdown_tables import markdown_table, with_deviation, write_end
from run_ranks import run_ranks

HERE = Path(__file__).parent
NETWORKS = ("deep_sets", "conv1d", "gru", "conv2d", "particle_net", "dijets")
SEEDS = (1, 2, 3)
N_TRAINING, N_TEST, N_PARTICLES = 6000, 10_000, 32
OF_TRAINING = ("learning_rate", "batch_size")
"""The hyperparameters that are not arguments of a model."""

FIGURES = {"auc": "area under the ROC curve", "rejection": "background rejection at 50 % efficiency"}


def prepare_data(work: Path, n_training: int, n_test: int) -> None:
    """Copies the experiment to `work` and simulates jets there."""
    shutil.copytree(HERE, work, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.h5", "*.db", "__pycache__"))
    for file, n, seed in (("jets.h5", n_training, 1), ("jets_test.h5", n_test, 2)):
        if not (work / file).exists():
            prepare("jets", work / file, simulate=n, seed=seed, particles=N_PARTICLES)


def split_dijets(work: Path, source: Path) -> None:
    """Writes `dijets.h5` and `dijets_test.h5`: every fifth event is a test event, with both of its jets."""
    prepare("jets", work / "all_dijets.h5", source)
    with h5py.File(work / "all_dijets.h5") as file:
        is_test = file["event"][:] % 5 == 4
        for name, chosen in (("dijets.h5", ~is_test), ("dijets_test.h5", is_test)):
            with h5py.File(work / name, "w") as part:
                for key in ("X", "y"):
                    part[key] = file[key][:][chosen]


def search(name: str, work: Path, *options: str) -> dict:
    """Runs the search of a network, or continues it; returns its trials and the best one."""
    started = time.monotonic()
    run_ranks(3, "-m", "mpi_opt", "search", f"search_{name}.yaml", *options, folder=work)
    study = Study.open(f"sqlite:///{work}/jets.db", f"jets_{name}")
    return {
        "parameters": study.best.parameters,
        "auc": study.best.figure_of_merit,
        "trials": [one.figure_of_merit for one in study.trials],
        "seconds": round(time.monotonic() - started),
    }


def training(name: str, parameters: dict, work: Path) -> dict:
    """The training of a network on all data, with `parameters` in place of the default values."""
    content = read_yaml(work / f"train_{name}.yaml")
    del content["data"]["validation_fraction"]
    rate = parameters.get("learning_rate", content["optimizer"]["learning_rate"])
    content["optimizer"] = content["optimizer"] | {"learning_rate": rate}
    content["batch_size"] = parameters.get("batch_size", content["batch_size"])
    of_model = {key: value for key, value in parameters.items() if key not in OF_TRAINING}
    return content | {"parameters": of_model}


def final(name: str, tuned: dict, work: Path, seeds: tuple[int, ...] = SEEDS, **changes) -> dict[str, list[dict]]:
    """Trains with default and tuned values on two ranks; the figures of merit of each on the test jets."""
    settings = {"default": training(name, {}, work), "tuned": training(name, tuned, work)}
    runs = [[kind, content | changes | {"seed": seed}] for seed in seeds for kind, content in settings.items()]
    test = "dijets_test.h5" if name == "dijets" else "jets_test.h5"
    (work / "runs.json").write_text(json.dumps({"test": test, "runs": runs}))
    run_ranks(2, "final_training.py", "runs.json", "found.json", folder=work)
    found = json.loads((work / "found.json").read_text())
    return {kind: [one for one in found if one["kind"] == kind] for kind in settings}


def measure(name: str, work: Path) -> dict:
    """All of one network."""
    searched = search(name, work)
    return {"search": searched} | final(name, searched["parameters"], work)


def table(results: dict) -> str:
    """The results as Markdown: mean and sample standard deviation over seeds, and the best values of the searches."""
    head = ["network", "weights, default · tuned", "AUC, default", "AUC, tuned"]
    head += ["rejection, default", "rejection, tuned"]
    rows, best = [], []
    for name in (name for name in NETWORKS if name in results):
        kinds = [results[name][kind] for kind in ("default", "tuned")]
        weights = " · ".join(f"{runs[0]['weights']:,}" for runs in kinds)
        aucs = [with_deviation([run["auc"] for run in runs], 4) for runs in kinds]
        rejections = [with_deviation([run["rejection"] for run in runs], 1) for runs in kinds]
        rows.append([f"`{name}`", weights, *aucs, *rejections])
        values = ", ".join(f"{key}: {_short(value)}" for key, value in results[name]["search"]["parameters"].items())
        best.append(f"{name}: {{{values}}}")
    return "\n".join([markdown_table(head, rows), "", "Best values found:", "", "```yaml", *best, "```"])


def _short(value: float) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def draw(results: dict, file: Path) -> None:
    """A point for each training: both figures of merit on the test jets."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [name for name in NETWORKS if name in results]
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3), sharey=True, layout="constrained")
    for axis, (key, label) in zip(axes, FIGURES.items(), strict=True):
        for kind, colour, shift in (("default", "0.6", 0.12), ("tuned", "tab:blue", -0.12)):
            for row, name in enumerate(names):
                values = [run[key] for run in results[name][kind]]
                axis.plot(values, np.full(len(values), row + shift), "o", color=colour, label=kind if row == 0 else "")
        axis.set_xlabel(label)
        axis.set_yticks(range(len(names)), names)
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.savefig(file, dpi=90)


def smoke(work: Path) -> dict:
    """One network with few jets: a search of two trials, and trainings of one epoch. PyTorch starts quickly."""
    name = "particle_net"
    prepare_data(work, 120, 100)
    space = (work / f"search_{name}.yaml").read_text().replace("epochs: 6", "epochs: 1")
    (work / f"search_{name}.yaml").write_text(space)
    searched = search(name, work, "--trials", "2", "--folds", "2")
    return {name: {"search": searched} | final(name, searched["parameters"], work, SEEDS[:2], epochs=1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=NETWORKS, default=NETWORKS, help="some lines of the table")
    parser.add_argument("--from", dest="source", type=Path, help="folder with dijet_jets.h5, for `dijets`")
    parser.add_argument("--work", type=Path, help="folder for data and studies; default: a temporary one")
    parser.add_argument("--print", action="store_true", help="only table and picture, from results.json")
    parser.add_argument("--smoke", action="store_true", help="a short run that prints its table and writes no files")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        work = (arguments.work or Path(temporary)).resolve()
        if arguments.smoke:
            results = smoke(work)
            print(table(results))
            draw(results, work / "jets.png")
            return
        file = HERE / "results.json"
        results = json.loads(file.read_text()) if file.exists() else {}
        missing = [name for name in arguments.only if name not in results and (name != "dijets" or arguments.source)]
        if missing and not arguments.print:
            prepare_data(work, N_TRAINING, N_TEST)
            if "dijets" in missing:
                split_dijets(work, arguments.source)
            for name in missing:
                results[name] = measure(name, work)
                file.write_text(json.dumps(results, indent=1))
    write_end(HERE / "README.md", table(results))
    draw(results, HERE / "jets.png")


if __name__ == "__main__":
    main()
