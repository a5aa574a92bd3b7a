"""The models that a search keeps: which ones, where, and how they are loaded; and the exact repetition of a trial."""

from __future__ import annotations

import errno
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
from mpi_opt.core.attempt import Attempt
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


def ended(*outcomes: Outcome, budget: float | None = None, attempt: int = 1) -> list[Attempt]:
    return [Attempt(Proposal(one.number, {}, budget), attempt, outcome=one) for one in outcomes]


def write(folder: ModelFolder, number: int, attempt: int = 1, text: str = "") -> None:
    """What the worker of an attempt writes."""
    written = folder.of_fold("key", number, 0, attempt)
    written.mkdir(parents=True, exist_ok=True)
    (written / "model").write_text(text)


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
        write(folder, outcome.number)
        kept.take(ended(outcome))
    assert folder.numbers("key") == left
    write(folder, 7)
    again = KeptModels(keep, figures, folder, "key", "random")  # a later search, after trials without a model
    again.resume(ended(complete(20, -9.0), complete(21, 99.0), *outcomes))
    again.take(ended(complete(7, 4.0)))
    assert folder.numbers("key") == left | ({7} if len(left) == 5 else set())


@pytest.mark.parametrize(("strategy", "left"), [("halving", {2}), ("population", {0})])
def test_the_model_of_a_full_training_is_kept_although_a_short_one_is_better(strategy, left, tmp_path):
    folder, kept = ModelFolder(tmp_path), KeptModels("best", MINIMIZE, ModelFolder(tmp_path), "key", strategy)
    known = []
    for number, (budget, value) in enumerate([(3, 0.1), (27, 0.4), (27, 0.3), (9, 0.2)]):
        write(folder, number)
        known += ended(complete(number, value), budget=budget)
        kept.take(known[-1:])
    assert folder.numbers("key") == left
    again = KeptModels("best", MINIMIZE, folder, "key", strategy)
    again.resume(known)
    write(folder, 4)
    again.take(ended(complete(4, 0.11), budget=9))
    assert folder.numbers("key") == left


def test_models_of_the_pareto_front_are_kept(tmp_path):
    folder, kept = ModelFolder(tmp_path), KeptModels("best", TWO, ModelFolder(tmp_path), "key", "random")
    for number, values in enumerate([(3.0, 3.0), (1.0, 1.0), (2.0, 0.5), (2.0, 2.0)]):
        write(folder, number)
        kept.take(ended(complete(number, *values)))
    assert folder.numbers("key") == {0, 1, 3}


def test_a_worker_that_was_given_up_never_changes_the_model_of_the_trial(tmp_path):
    """Its rank 0 or its host was frozen: it ends its attempt after another one has ended."""
    folder = ModelFolder(tmp_path)
    kept = KeptModels("best", MINIMIZE, folder, "key", "random")
    write(folder, 3, attempt=2, text="mine")
    kept.take(ended(complete(3, 0.5), attempt=2))
    write(folder, 3, attempt=1, text="theirs")
    write(folder, 4, attempt=1, text="theirs")
    kept.take(ended(an_outcome(4, "failed", error="x"), attempt=2))
    write(folder, 4, attempt=1, text="theirs")
    again = KeptModels("best", MINIMIZE, folder, "key", "random")
    again.resume([*ended(complete(3, 0.5), attempt=2), *ended(an_outcome(4, "failed", error="x"), attempt=2)])
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("model")] == ["key/trial-00003/fold-0/model"]
    assert next(tmp_path.rglob("model")).read_text() == "mine"
    assert folder.written("key") == set()


def test_the_next_search_names_the_model_of_one_that_was_killed_after_the_commit(tmp_path):
    folder, before = ModelFolder(tmp_path), ended(complete(0, 2.0), attempt=3)
    write(folder, 0, attempt=3)
    KeptModels("best", MINIMIZE, folder, "key", "random").take(before)
    write(folder, 1, attempt=2)
    write(folder, 2, attempt=1)  # its trial has not ended
    for _ in range(2):  # and once more, by the first one if it was frozen
        KeptModels("best", MINIMIZE, folder, "key", "random").resume([*before, *ended(complete(1, 1.0), attempt=2)])
        assert (folder.numbers("key"), folder.written("key")) == ({1}, {(2, 1)})


def test_a_model_that_the_file_system_refuses_to_rename_is_kept_by_the_next_search(tmp_path, monkeypatch):
    folder, done = ModelFolder(tmp_path), ended(complete(0, 1.0), attempt=2)
    write(folder, 0, attempt=2)

    def refuse(self, target):
        raise OSError(errno.ESTALE, "Stale file handle")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", refuse)
        (said,) = KeptModels("best", MINIMIZE, folder, "key", "random").take(done)
        assert KeptModels("best", MINIMIZE, folder, "key", "random").resume(done) == [said]
    assert said == f"the model of trial 0 stays in {folder.of_attempt('key', 0, 2)}: Stale file handle"
    assert folder.numbers("key") == set()
    KeptModels("best", MINIMIZE, folder, "key", "random").resume(done)
    assert folder.numbers("key") == {0}


def test_a_model_of_an_earlier_version_does_not_keep_the_place_of_another(tmp_path):
    folder = ModelFolder(tmp_path)
    (folder.of_trial("key", 0) / "fold-0").mkdir(parents=True)
    (folder.of_trial("key", 0) / "fold-0" / "model").write_text("of a killed attempt")
    write(folder, 0, attempt=2, text="mine")
    KeptModels("best", MINIMIZE, folder, "key", "random").take(ended(complete(0, 1.0), attempt=2))
    assert [path.read_text() for path in tmp_path.rglob("model")] == ["mine"]


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


def trial(fold: int = 0, attempt: int = 2) -> Trial:
    from mpi4py import MPI

    return Trial(Proposal(4, {}), comm=MPI.COMM_SELF, study_seed=3, fold=fold, folds=2, study="key", attempt=attempt)


def files(objective) -> list[str]:
    root = objective.models.path
    return sorted(str(file.relative_to(root)) for file in root.rglob("*") if file.is_file())


def test_each_fold_has_a_model_with_its_configuration_which_is_that_of_the_attempt_that_counts(objective):
    for fold in (0, 1, 1):
        objective(trial(fold))
    objective(trial(0, attempt=1))
    names = ("history.json", "model.keras", "training.yaml")
    counts = [f"fold-{fold}/{name}" for fold in (0, 1) for name in names]
    assert [name for name in files(objective) if "attempt-2" in name] == [
        f"key/.trial-00004-attempt-2/{n}" for n in counts
    ]
    objective.models.publish("key", 4, 2)
    objective.models.remove_written("key", {4})
    assert files(objective) == [f"key/trial-00004/{name}" for name in counts]
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
    assert "key/.trial-00004-attempt-2/fold-0/model.pt" in files(objective)
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
