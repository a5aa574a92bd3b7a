"""The models that a search keeps: which ones, where, and how they are loaded; and the exact repetition of a trial."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from mpi_learn import train
from mpi_learn.errors import SavingError
from mpi_learn.settings.yaml_file import parsed
from mpi_learn.training.result import Result
from mpi_opt.configuration.combinations import check_combinations
from mpi_opt.configuration.model_folder import ModelFolder
from mpi_opt.configuration.read_study import read_study
from mpi_opt.coordinator.trials.kept_models import KeptModels
from mpi_opt.core.figures_of_merit import FiguresOfMerit
from mpi_opt.core.trial import Outcome, Proposal, Trial
from mpi_opt.errors import ConfigurationError, StoreError
from mpi_opt.objectives.training_objective import TrainingObjective
from mpi_opt.study.study import Study
from tests.in_process import in_process
from tests.mpi_opt.outcomes import an_outcome
from tests.optional_packages import by_framework, needs

MINIMIZE, MAXIMIZE = FiguresOfMerit(), FiguresOfMerit(directions=("maximize",))
TWO = FiguresOfMerit(("loss", "cost"), ("minimize", "maximize"))


def complete(number: int, *values: float) -> Outcome:
    return an_outcome(number, "complete", TWO.read(values) if len(values) > 1 else values[0])


def ended(*outcomes: Outcome, budget: float | None = None) -> list[tuple[Proposal, Outcome]]:
    return [(Proposal(outcome.number, {}, budget), outcome) for outcome in outcomes]


@pytest.mark.parametrize(
    ("keep", "figures", "left"),
    [
        ("best", MINIMIZE, {2}),
        ("best", MAXIMIZE, {1}),
        (2, MINIMIZE, {2, 3}),  # of equal ones, the first
        (9, MINIMIZE, {0, 1, 2, 3, 4}),
        ("all", MINIMIZE, {0, 1, 2, 3, 4}),
    ],
)
def test_models_of_the_best_complete_trials_are_kept(keep, figures, left, tmp_path):
    folder, outcomes = ModelFolder(tmp_path), [complete(n, v) for n, v in enumerate((3.0, 5.0, 1.0, 2.0, 2.0))]
    outcomes += [an_outcome(5, "failed", error="x"), an_outcome(6, "pruned", 0.0)]
    kept = KeptModels(keep, figures, folder, "key", "random")
    for outcome in outcomes:
        folder.of_fold("key", outcome.number, 0).mkdir(parents=True)
        kept.take(ended(outcome))
    assert folder.numbers("key") == left
    folder.of_fold("key", 7, 0).mkdir(parents=True)
    again = KeptModels(keep, figures, folder, "key", "random")  # a later search, after trials without a model
    again.resume(ended(complete(20, -9.0), complete(21, 99.0), *outcomes))
    again.take(ended(complete(7, 4.0)))
    assert folder.numbers("key") == left | ({7} if len(left) == 5 else set())


@pytest.mark.parametrize(("strategy", "left"), [("halving", {2}), ("population", {0})])
def test_the_model_of_a_full_training_is_kept_although_a_short_one_is_better(strategy, left, tmp_path):
    folder, kept = ModelFolder(tmp_path), KeptModels("best", MINIMIZE, ModelFolder(tmp_path), "key", strategy)
    known = []
    for number, (budget, value) in enumerate([(3, 0.1), (27, 0.4), (27, 0.3), (9, 0.2)]):
        folder.of_fold("key", number, 0).mkdir(parents=True)
        known += ended(complete(number, value), budget=budget)
        kept.take(known[-1:])
    assert folder.numbers("key") == left
    again = KeptModels("best", MINIMIZE, folder, "key", strategy)
    again.resume(known)
    folder.of_fold("key", 4, 0).mkdir(parents=True)
    again.take(ended(complete(4, 0.11), budget=9))
    assert folder.numbers("key") == left


def test_models_of_the_pareto_front_are_kept(tmp_path):
    folder, kept = ModelFolder(tmp_path), KeptModels("best", TWO, ModelFolder(tmp_path), "key", "random")
    for number, values in enumerate([(3.0, 3.0), (1.0, 1.0), (2.0, 0.5), (2.0, 2.0)]):
        folder.of_fold("key", number, 0).mkdir(parents=True)
        kept.take(ended(complete(number, *values)))
    assert folder.numbers("key") == {0, 1, 3}


def test_models_are_beside_a_store_in_a_file_and_otherwise_beside_the_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for store in ("sqlite:///a/x.db", "a/x.db", f"sqlite:///{tmp_path}/a/x.db", "sqlite:///a/x.db?timeout=9"):
        assert ModelFolder.of(store, "s", Path("/c")).path == tmp_path / "a" / "x.models"
    for store in ("sqlite://", "postgresql://ada@host/db"):
        assert ModelFolder.of(store, "s", Path("/c")).path == Path("/c/s.models")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"objective": "o.py:f"}, "models of trainings only"),
        ({"direction": ["minimize", "minimize"], "figure_of_merit": ["a", "b"], "search": {"keep": 3}}, "no N best"),
    ],
)
def test_models_that_cannot_be_kept_are_refused(changes, said):
    content = {"space": {"x": {"type": "real", "low": 0, "high": 1}}, "training": {}, "search": {"keep": "best"}}
    with pytest.raises(ConfigurationError, match=said) as caught:
        check_combinations(read_study(content | changes))
    assert caught.value.where == "search.keep"


@pytest.fixture
def objective(tmp_path, monkeypatch):
    """An objective whose trainings write a file as a model; `saving` may replace how."""
    np.savez(tmp_path / "d.npz", X=np.zeros((9, 2), np.float32), y=np.zeros(9, np.float32))
    (tmp_path / "m.py").write_text("def build(): pass\n")

    class Saving:
        def whole(self, path):
            return self._write(path.with_suffix(".keras"))

        def weights(self, path):
            return self._write(path.with_suffix(".pt")), "load"

        def _write(self, path):
            path.write_text("weights")
            return path

    saving = Saving()

    def trained(configuration, comm, *, data, on_epoch, **_):
        for epoch in range(2):
            on_epoch(epoch, {"val_loss": 1.0})
        history = {"val_loss": [1.0]}
        return Result(history, {}, 1.0, 1.0, 1, "epochs", None, None, saving.whole, saving.weights, None)

    monkeypatch.setattr("mpi_learn.train", trained, raising=False)
    training = {"model": "m.py:build", "data": {"train": "d.npz", "features": "X", "labels": "y"}, "loss": "mse"}
    made = TrainingObjective(training, "val_loss", tmp_path, n_folds=2, models=ModelFolder(tmp_path / "models"))
    made.saving = saving
    return made


def trial(fold: int = 0) -> Trial:
    from mpi4py import MPI

    return Trial(Proposal(4, {}), comm=MPI.COMM_SELF, study_seed=3, fold=fold, folds=2, study="key")


def files(objective) -> list[str]:
    root = objective.models.path
    return sorted(str(file.relative_to(root)) for file in root.rglob("*") if file.is_file())


def test_each_fold_has_a_model_with_its_configuration_and_a_later_attempt_replaces_it(objective):
    for fold in (0, 1, 1):
        objective(trial(fold))
    names = ("history.json", "model.keras", "training.yaml")
    assert files(objective) == [f"key/trial-00004/fold-{fold}/{name}" for fold in (0, 1) for name in names]
    assert [path.name for path in objective.models.folds("key", 4)] == ["fold-0", "fold-1"]


def test_a_trial_that_is_stopped_leaves_no_model(objective):
    one = trial()
    one.was_stopped = True
    objective(one)
    assert files(objective) == []


def test_weights_are_kept_of_a_model_that_cannot_be_saved_as_a_whole_and_nothing_of_one_without(objective):
    def failing(path):
        raise TypeError("no get_config")

    objective.saving.whole = failing
    objective(trial())
    assert "key/trial-00004/fold-0/model.pt" in files(objective)
    objective.saving.weights = failing
    with pytest.raises(SavingError):
        objective(trial(1))
    assert not [name for name in files(objective) if "fold-1" in name]


KERAS = """
def build(units):
    import keras
    return keras.Sequential([keras.Input((3,)), keras.layers.Dense(units, "tanh"), keras.layers.Dropout(0.2),
                             keras.layers.Dense(1)])
"""
TORCH = """
def build(units):
    from torch import nn
    return nn.Sequential(nn.Linear(3, units), nn.Tanh(), nn.Dropout(0.2), nn.Linear(units, 1))
"""


@needs("keras")
@pytest.mark.parametrize("framework", by_framework(["keras", "torch"]))
def test_the_best_model_is_that_of_the_best_trial_and_its_training_repeats_it_exactly(framework, tmp_path, monkeypatch):
    from mpi4py import MPI

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3)).astype(np.float32)
    np.savez("d.npz", X=x, y=np.tanh(x.sum(1, keepdims=True)))
    Path("m.py").write_text(KERAS if framework == "keras" else TORCH)
    training = {
        "model": "m.py:build",
        "data": {"train": ["d.npz"], "validation_fraction": 0.25, "features": "X", "labels": "y"},
        "loss": "mse", "optimizer": {"name": "adam", "learning_rate": "$rate"}, "batch_size": 16, "epochs": 3,
    }  # fmt: skip
    space = {"rate": {"type": "real", "low": 0.01, "high": 0.1}, "units": {"type": "integer", "low": 2, "high": 8}}
    search = {"strategy": "random", "trials": 3, "keep": "best"}
    content = {"study": "s", "store": "sqlite:///s.db", "space": space, "search": search, "training": training}
    Path("s.yaml").write_text(yaml.safe_dump(content))
    assert (done := in_process("search", "s.yaml", cwd=tmp_path)).returncode == 0, done.stderr
    assert f"models of trials are in {tmp_path}/s.models" in done.stdout
    study = Study.open("s.db", "s")
    (file,) = in_process("best", "--model", cwd=tmp_path).stdout.split()
    assert f"trial-{study.best.number:05d}/fold-0/model." in file
    assert len(list(Path("s.models").rglob("model.*"))) == 1
    model = study.best_model()
    again = train(parsed(in_process("best", cwd=tmp_path).stdout), MPI.COMM_SELF)
    assert again.history["val_loss"][-1] == study.best.figure_of_merit
    for mine, theirs in zip(weights(model), weights(again.model), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    other = next(one.number for one in study.trials if one.number != study.best.number)
    with pytest.raises(StoreError, match=f"the model of trial {study.best.number}\n.* --trial {other} >"):
        study.best_model(other)
    Path("m.py").write_text(Path("m.py").read_text() + "\n# edited\n")
    with pytest.warns(UserWarning, match=f"since trial {study.best.number} ran: m.py has changed$"):
        study.best_model()


def weights(model) -> list[np.ndarray]:
    if hasattr(model, "get_weights"):
        return model.get_weights()
    return [array.numpy() for array in model.state_dict().values()]
