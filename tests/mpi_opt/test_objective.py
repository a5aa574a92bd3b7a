"""A training as an objective: which data each fold gets, and which value is the figure of merit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

import mpi_learn
from mpi_learn.training.checkpoints.checkpoint_file import DamagedCheckpoint, SavedTraining
from mpi_learn.training.result import Result
from mpi_opt.core.figures_of_merit import read_figures_of_merit
from mpi_opt.core.trial import Proposal, Trial
from mpi_opt.errors import ConfigurationError
from mpi_opt.objectives import training_objective
from mpi_opt.objectives.training_objective import TrainingObjective
from tests.optional_packages import needs

SHARES = [60, 30, 10]


@pytest.fixture
def training(tmp_path: Path) -> dict:
    """A ``training:`` section with 100 samples of three classes in a file."""
    np.savez(tmp_path / "data.npz", X=np.zeros((100, 2), np.float32), y=np.repeat([0, 1, 2], SHARES))
    (tmp_path / "model.py").write_text("def build(units):\n    raise AssertionError\n")
    return {
        "model": "model.py:build",
        "parameters": {"units": 8},
        "data": {"train": ["data.npz"], "features": "X", "labels": "y"},
        "loss": "sparse_categorical_crossentropy",
        "metrics": ["accuracy"],
    }


@pytest.fixture
def trained(monkeypatch):
    """Replaces the training; returns the arguments of each call."""
    calls = []

    def train(configuration, comm, *, data, on_epoch, **_):
        calls.append((configuration, data))
        history = {"val_loss": [0.5, 0.2, 0.9], "val_accuracy": [0.1, 0.8, 0.3]}
        return Result(history, {}, 7.0, 100.0, 3, "epochs", best_epoch, None, None, None, None)

    best_epoch = None

    def restored(epoch):
        nonlocal best_epoch
        best_epoch = epoch
        return calls

    monkeypatch.setattr(mpi_learn, "train", train, raising=False)
    return restored


def trial(number=0, fold=0, folds=1, **proposal) -> Trial:
    return Trial(Proposal(number, {}, **proposal), comm=MPI.COMM_SELF, study_seed=3, fold=fold, folds=folds)


def test_every_fold_of_a_training_has_the_classes_in_equal_shares(training, trained, tmp_path):
    objective, calls = TrainingObjective(training, "val_loss", tmp_path), trained(None)
    for fold in range(5):
        objective(trial(fold=fold, folds=5))
    for _, data in calls:
        (labels,) = data.take_validation(slice(None)).y
        assert np.bincount(labels).tolist() == [share // 5 for share in SHARES]


def test_folds_are_those_of_the_data_of_the_trial(training, trained, tmp_path):
    np.savez(tmp_path / "small.npz", X=np.zeros((40, 2), np.float32), y=np.repeat([0, 1], 20))
    training["data"] = training["data"] | {"train": ["$file"]}
    objective, calls = TrainingObjective(training, "val_loss", tmp_path, n_folds=2), trained(None)
    for name in ("data.npz", "small.npz", "data.npz"):
        for fold in (0, 1):
            proposal = Proposal(0, {"file": name})
            objective(Trial(proposal, comm=MPI.COMM_SELF, study_seed=3, fold=fold, folds=2))
    assert [data.n_training for _, data in calls] == [50, 50, 20, 20, 50, 50]


def test_samples_without_labels_are_split_into_folds(training, trained, tmp_path):
    training["data"]["labels"] = None
    objective, calls = TrainingObjective(training, "val_loss", tmp_path), trained(None)
    objective(trial(fold=1, folds=5))
    assert calls[0][1].n_validation == 20


def test_a_fold_has_validation_data_for_early_stopping(training, trained, tmp_path):
    training["early_stopping"] = {"patience": 3}
    trained(None)
    TrainingObjective(training, "val_loss", tmp_path, n_folds=5)(trial(folds=5))
    with pytest.raises(ConfigurationError, match="does not produce the metric val_loss"):
        TrainingObjective(training, "val_loss", tmp_path)(trial())


def test_a_figure_of_merit_that_the_model_does_not_produce_is_named_with_those_that_it_does(
    training, trained, tmp_path
):
    trained(None)
    with pytest.raises(ConfigurationError) as raised:
        TrainingObjective(training | {"loss": None}, "val_acc", tmp_path)(trial())
    assert str(raised.value) == (
        "figure_of_merit: the training does not produce the metric val_acc\n"
        "  → did you mean val_accuracy? it produces: val_loss, val_accuracy"
    )


def test_rank_has_its_gpu_before_the_figure_of_merit_is_imported(training, tmp_path, monkeypatch):
    """The file may use a GPU as soon as it is imported; after that, the choice would have no effect."""
    monkeypatch.setattr(mpi_learn, "rehearse", lambda *arguments, **others: None, raising=False)
    for name, value in {
        "CUDA_VISIBLE_DEVICES": "4,7", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1"
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    (tmp_path / "merit.py").write_text(
        "import os\nfrom pathlib import Path\n"
        "Path(__file__).with_name('seen').write_text(os.environ['CUDA_VISIBLE_DEVICES'])\n"
        "def merit(result): ...\n"
    )
    TrainingObjective(training, "merit.py:merit", tmp_path).prepare(MPI.COMM_SELF, {})
    assert (tmp_path / "seen").read_text() == "7"


def test_every_fold_of_a_trial_has_a_folder_of_its_own_for_timelines(training, trained, tmp_path):
    training["trace"] = "traces"
    objective, calls = TrainingObjective(training, "val_loss", tmp_path), trained(None)
    for number, fold in ((0, 0), (0, 1), (12, 0)):
        objective(trial(number, fold, folds=2))
    folders = [configuration.trace for configuration, _ in calls]
    assert len(set(folders)) == 3
    assert all(folder.is_relative_to(tmp_path / "traces") for folder in folders)


@pytest.mark.parametrize(("best_epoch", "loss", "accuracy"), [(None, 0.9, 0.3), (1, 0.2, 0.8), (0, 0.5, 0.1)])
def test_the_figure_of_merit_is_that_of_the_epoch_whose_weights_the_model_has(
    best_epoch, loss, accuracy, training, trained, tmp_path
):
    trained(best_epoch)
    figures = ["val_loss", "val_accuracy", "seconds"]
    assert TrainingObjective(training, figures, tmp_path)(trial())[0] == [loss, accuracy, 7.0]
    assert TrainingObjective(training, "val_accuracy", tmp_path)(trial())[0] == accuracy


def test_every_trial_has_a_seed_of_its_own(training, trained, tmp_path):
    objective, calls = TrainingObjective(training, "val_loss", tmp_path), trained(None)
    for number in (0, 1, 0):
        objective(trial(number))
    first, second, again = [configuration.seed for configuration, _ in calls]
    assert first == again != second


def test_hyperparameters_in_the_sections_that_differ_between_trials_have_their_values(training, trained, tmp_path):
    training |= {"trace": "$kind", "checkpoint": {"path": "$kind", "every": "$every"}}
    calls = trained(None)
    one = Trial(Proposal(0, {"kind": "a", "every": 3}), comm=MPI.COMM_SELF, study_seed=3, fold=0, folds=1)
    TrainingObjective(training, "val_loss", tmp_path)(one)
    ((configuration, _),) = calls
    assert configuration.checkpoint.every == 3
    assert configuration.checkpoint.path.is_relative_to(tmp_path / "a")
    assert configuration.trace.is_relative_to(tmp_path / "a")


def test_a_null_checkpoint_is_none(training, trained, tmp_path):
    """The checkpoints that the strategy needs are removed afterwards, as without this key."""
    training["checkpoint"] = None
    calls = trained(None)
    objective = TrainingObjective(training, "val_loss", tmp_path, tmp_path / "kept")
    objective(trial(4, budget=3.0))
    folder = Path(calls[0][0].checkpoint.path)
    folder.mkdir(parents=True)
    objective.discard("", [4])
    assert not folder.exists()


def test_without_the_key_a_long_trial_has_provisional_checkpoints(training, trained, tmp_path):
    calls = trained(None)
    objective = TrainingObjective(training, "val_loss", tmp_path, tmp_path / "kept")
    objective(trial(4))
    objective(trial(4, budget=3.0))
    training["checkpoint"] = None
    objective(trial(4))
    training["checkpoint"] = {"path": "own", "every": 2}
    objective(trial(4))
    long, staged, none, own = [configuration.checkpoint for configuration, _ in calls]
    assert none is None
    assert (long.interval_s, long.provisional, long.every) == (600, True, 10**9)
    assert (staged.interval_s, staged.provisional) == (600, False)  # another trial may resume from its end
    assert (own.interval_s, own.provisional, own.every) == (None, False, 2)
    assert long.path.is_relative_to(tmp_path / "kept")


def test_a_budget_is_the_number_of_epochs(training, trained, tmp_path):
    objective, calls = TrainingObjective(training, "val_loss", tmp_path), trained(None)
    for budget in (7.4, 0.2, None):
        objective(trial(budget=budget))
    default = objective.configuration({}).epochs
    assert [configuration.epochs for configuration, _ in calls] == [7, 1, default]


def test_a_trial_that_resumes_from_another_starts_from_its_checkpoint(training, trained, tmp_path):
    objective, calls = TrainingObjective(training, "val_loss", tmp_path, tmp_path / "kept"), trained(None)
    objective(trial(4, budget=3.0))
    objective(trial(9, budget=9.0, resume_from=4))
    first, second = [configuration.checkpoint for configuration, _ in calls]
    assert first.start_from is None
    assert Path(second.start_from) == Path(first.path) != Path(second.path)


def test_after_a_lost_rank_a_trial_does_not_report_the_epochs_of_its_parent(training, tmp_path, monkeypatch):
    """Two of the three epochs that the other ranks keep are of the trial from which this one resumes."""
    values = {"epoch": 3, "began": 2, "history": {"val_loss": [0.5, 0.4, 0.3]}}

    def train(configuration, comm, *, data, on_begin, on_epoch, kept):
        kept.saved = SavedTraining(values, {})
        on_begin()
        on_epoch(3, {"val_loss": 0.2})
        return Result({"val_loss": [0.2]}, {}, 7.0, 100.0, 3, "epochs", None, None, None, None, None)

    monkeypatch.setattr(mpi_learn, "train", train, raising=False)
    monkeypatch.setenv("OMPI_MCA_mpi_ft_enable", "1")
    child = trial(9, budget=4.0, resume_from=4)
    TrainingObjective(training | {"batch_size": {"total": 10}}, "val_loss", tmp_path, tmp_path / "kept")(child)
    assert child.reported == {2: 0.3, 3: 0.2}


@pytest.mark.parametrize("resume_from", [None, 4])
def test_a_trial_whose_checkpoint_is_damaged_trains_without_it(resume_from, training, trained, tmp_path, monkeypatch):
    """First that of the trial itself, after it has lost a rank, and then that of the trial from which it resumes."""
    objective, calls = TrainingObjective(training, "val_loss", tmp_path, tmp_path / "kept"), trained(None)
    succeeds, used = mpi_learn.train, []

    def train(configuration, comm, *, data, on_epoch, **_):
        checkpoint = configuration.checkpoint
        used.append((checkpoint.resume, checkpoint.start_from is not None))
        if checkpoint.resume:
            raise DamagedCheckpoint("it is damaged", where=f"{checkpoint.path}/checkpoint.npz")
        if checkpoint.start_from is not None:
            raise DamagedCheckpoint("it is damaged", where=f"{checkpoint.start_from}/checkpoint.npz")
        return succeeds(configuration, comm, data=data, on_epoch=on_epoch)

    monkeypatch.setattr(mpi_learn, "train", train, raising=False)
    value, _ = objective(trial(9, budget=9.0, resume_from=resume_from))
    assert value == 0.9
    assert used == [(True, resume_from is not None), *([(False, True)] if resume_from else []), (False, False)]
    assert [configuration.epochs for configuration, _ in calls] == [9]


@needs("keras")
def test_a_trial_trains_anew_if_a_checkpoint_is_of_another_model(training, tmp_path, monkeypatch, capsys):
    """With a checkpoint that the user has configured, the trial is refused."""
    monkeypatch.setattr(training_objective, "CHECKPOINT_S", 1e-9)
    (tmp_path / "model.py").write_text(
        "from pathlib import Path\n"
        "def build():\n"
        "    import keras\n"
        "    n = int(Path(__file__).with_name('units').read_text())\n"
        "    return keras.Sequential([keras.Input((2,)), keras.layers.Dense(n), keras.layers.Dense(3, 'softmax')])\n"
    )
    training |= {"parameters": {}, "epochs": 2}

    def epochs_of(section: dict, units: int, **of_trial) -> list[int]:
        """The epochs that trial 5, or another one, reports if the model has so many units."""
        (tmp_path / "units").write_text(str(units))
        one = trial(**{"number": 5} | of_trial)
        TrainingObjective(training | section, "loss", tmp_path, tmp_path / "kept")(one)
        return list(one.reported)

    assert epochs_of({}, 4) == [0, 1]
    assert epochs_of({}, 4) == []  # the checkpoint is that of the last epoch
    assert epochs_of({}, 6) == [0, 1]
    assert "trial 5: " in (said := capsys.readouterr().out)
    assert "weight shapes differ from the checkpoint's; the training begins without it" in said
    assert epochs_of({}, 6) == []  # the new checkpoint has replaced the old one
    promoted = {"number": 7, "budget": 3.0, "resume_from": 5}
    assert epochs_of({}, 6, **promoted) == [2]
    assert epochs_of({}, 8, **promoted) == [0, 1, 2], "neither its own checkpoint fits, nor that of trial 5"
    mine = {"checkpoint": {"path": "mine"}}
    assert epochs_of(mine, 4) == [0, 1]
    with pytest.raises(ConfigurationError, match="weight shapes differ"):
        epochs_of(mine, 6)
    assert epochs_of(mine, 6, **promoted) == [0, 1, 2], "the search, not the user, has chosen that of trial 5"


@pytest.mark.parametrize(("start_from", "fault"), [("mine", ""), (None, "a file system that cannot be used")])
def test_a_checkpoint_that_the_user_names_or_that_may_be_read_later_is_required(
    start_from, fault, training, tmp_path, monkeypatch
):
    training["checkpoint"] = {"path": "checkpoints"} | ({"start_from": start_from} if start_from else {})
    objective = TrainingObjective(training, "val_loss", tmp_path)

    sections = []

    def train(configuration, comm, *, data, on_epoch, **_):
        sections.append(configuration.checkpoint)
        where = configuration.checkpoint.start_from or configuration.checkpoint.path
        error = DamagedCheckpoint("it is damaged", where=str(where))
        error.host_fault = fault
        raise error

    monkeypatch.setattr(mpi_learn, "train", train, raising=False)
    with pytest.raises(DamagedCheckpoint):
        objective(trial(9))
    assert len(sections) == 1


FIGURES = """
def classes(result):
    x, y = result.validation
    assert sorted(set(y.tolist())) == [0, 1, 2], "the files are sorted by class"
    return len(result.validation_weights)

def late(result):
    return result.history["val_loss"][3]

def none(result):
    pass

def infinite(result):
    return float("inf")

def both(result):
    return 1.0, 2.0
"""


@needs("keras")
def test_check_calls_the_function_of_the_figure_of_merit(training, tmp_path):
    import keras

    (tmp_path / "figures.py").write_text(FIGURES)
    network = "keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])"  # outputs are logits
    (tmp_path / "model.py").write_text(f"import keras\ndef build(units):\n    return {network}\n")
    arrays = {"X": np.ones((100, 2), np.float32), "y": np.repeat([0, 1, 2], SHARES), "w": np.ones(100)}
    np.savez(tmp_path / "data.npz", **arrays)
    training["data"] |= {"weights": "w", "validation_fraction": 0.5}
    directions = {"figures.py:both": ("minimize", "maximize")}

    def checked(name: str) -> str:
        figures = read_figures_of_merit(name, directions.get(name, "minimize"), "mean", is_training=True)
        return TrainingObjective(training, name, tmp_path).check(MPI.COMM_SELF, {}, figures)

    keras.utils.set_random_seed(0)
    text = checked("figures.py:classes")
    assert "figures.py:classes 50 after one epoch on 50 samples" in text
    assert "sparse_categorical_crossentropy expects probabilities" in text
    assert 'return result.history["val_loss"][3]' in checked("figures.py:late")
    assert "must be a finite number, not inf" in checked("figures.py:infinite")
    assert "figures.py:both 1 2 after one epoch" in checked("figures.py:both")
    with pytest.raises(ConfigurationError, match="figure_of_merit: the figure of merit must be a number, not None"):
        checked("figures.py:none")
