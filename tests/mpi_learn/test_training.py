"""The training in one process: compared with Keras' own, and its error messages."""

from __future__ import annotations

import copy
import errno
import gc
import json
import math
import os
import pickle
import resource
import time
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.data.samples.batches import Dataset
from mpi_learn.data.samples.stored_samples import Samples
from mpi_learn.errors import ConfigurationError, DataError, ModelError, SavingError, TrainingError, UserError
from mpi_learn.training.checkpoints.checkpoint_file import (
    SavedTraining,
    check_same,
    load_checkpoint,
    save_checkpoint,
)
from mpi_learn.training.configuration import read_configuration
from mpi_learn.training.loop import Training
from mpi_learn.training.result import save_result
from tests.mpi_learn.configurations_for_tests import CLASSES, KERAS, NUMBERS
from tests.mpi_learn.killed_writer import killed_while_writing
from tests.mpi_learn.models_for_tests import digits, line
from tests.optional_packages import by_framework, needs

pytestmark = needs("keras")

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def comm():
    return MPI.COMM_SELF


def test_same_seed_gives_the_same_history_twice(comm):
    configuration = CLASSES | {"parameters": {"dropout": 0.3}, "epochs": 2, "batch_size": 64, "seed": 3}
    first, second = (train(configuration, comm, data=digits()) for _ in range(2))
    assert first.history == second.history
    assert train(configuration | {"seed": 4}, comm, data=digits()).history != first.history


def test_metrics_of_sums_are_exact_over_uneven_batches(comm):
    import keras

    dataset = line(n=101)
    y = (dataset.training.y[0] > 0).astype(np.int64)
    dataset = Dataset(Samples(dataset.training.x, (y,)), Samples(dataset.training.x, (y,)))
    names = ["accuracy", "AUC", "Precision", "mae", f"{KERAS}:absolute_error"]
    configuration = {
        "model": f"{KERAS}:build_binary", "loss": "binary_crossentropy", "metrics": names, "batch_size": 32,
        "validation": {"batch_size": 7}, "epochs": 1,
    }  # fmt: skip
    result = train(configuration, comm, data=dataset)
    outputs, labels = result.model.predict(dataset.training.x[0], verbose=0), y[:, None]
    expected = {
        "accuracy": np.mean((outputs > 0.5) == labels),
        "mae": np.mean(np.abs(outputs - labels)),
        "absolute_error": np.mean(np.abs(outputs - labels)),
        "loss": np.mean(keras.losses.binary_crossentropy(labels, outputs)),
    }
    for name, metric in (("AUC", keras.metrics.AUC()), ("Precision", keras.metrics.Precision())):
        metric.update_state(labels, outputs)
        expected[name] = float(metric.result())
    for name, value in expected.items():
        assert result.history[f"val_{name}"][0] == pytest.approx(float(value), rel=1e-5), name


def test_model_of_several_inputs_and_outputs_has_metrics_of_each(comm):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(60, 5)).astype("f"), rng.normal(size=(60, 2)).astype("f")
    samples = Samples((a, b), (a.sum(1, keepdims=True), (b[:, 0] > 0).astype(np.int64)))
    configuration = {
        "model": f"{HERE}/conformance/keras_models.py:two_by_two", "loss": ["mse", "sparse_categorical_crossentropy"],
        "metrics": {"energy": ["mae"], "kind": ["accuracy"]}, "epochs": 2, "batch_size": 16,
    }  # fmt: skip
    result = train(configuration, comm, data=Dataset(samples, samples))
    names = {"loss", "energy_loss", "kind_loss", "energy_mae", "kind_accuracy"}
    assert set(result.history) == names | {f"val_{name}" for name in names}
    assert len(result.validation[0]) == 2


def test_losses_and_metrics_go_to_the_outputs_of_their_names(comm):
    x = np.random.default_rng(0).normal(size=(60, 3)).astype("f")
    samples = Samples((x,), (x.sum(1, keepdims=True), x[:, :1] ** 2))
    common = {"model": f"{KERAS}:build_named_pair", "epochs": 2, "batch_size": 16}
    in_order = {"loss": ["mse", "mae"], "metrics": {"energy": ["mape"], "angle": ["mse"]}}
    by_name = {"loss": {"angle": "mae", "energy": "mse"}, "metrics": {"angle": ["mse"]}}
    ordered, named = (train(common | one, comm, data=Dataset(samples, samples)).history for one in (in_order, by_name))
    assert named["val_loss"] == ordered["val_loss"]
    assert named["val_angle_mse"] == ordered["val_angle_mse"]
    wrong = common | {"loss": {"angle": "mae", "enrgy": "mse"}}
    with pytest.raises(ConfigurationError, match="its outputs are: energy, angle"):
        train(wrong, comm, data=Dataset(samples, samples))


@pytest.mark.parametrize("loss", ["mse", ["mse", "mae"], {"energy": "mse", "angle": "mae"}], ids=str)
def test_the_loss_of_one_of_several_outputs_can_be_watched(comm, loss):
    x = np.random.default_rng(0).normal(size=(60, 3)).astype("f")
    samples = Samples((x,), (x.sum(1, keepdims=True), x[:, :1] ** 2))
    common = {"model": f"{KERAS}:build_named_pair", "loss": loss}

    def watched(metric):
        stopping = {"early_stopping": {"metric": metric, "mode": "min"}}
        return train(common | stopping, comm, data=Dataset(samples, samples)).history

    assert "val_energy_loss" in watched("val_energy_loss")
    with pytest.raises(ConfigurationError, match=r"enrgy_loss\n.*energy_loss"):
        watched("val_enrgy_loss")


def test_metric_names_of_the_configuration_are_those_of_keras(comm, tmp_path):
    (tmp_path / "other.py").write_text("def absolute_error(labels, outputs):\n    return (labels - outputs) ** 2\n")
    metrics = ["mae", f"{KERAS}:absolute_error", f"{tmp_path}/other.py:absolute_error"]
    configuration = NUMBERS | {"metrics": metrics, "weighted_metrics": ["mae", "mse", "mse"]}
    history = train(configuration, comm, data=line(n=20)).history
    assert read_configuration(configuration).metric_names() == list(history)


@needs("torch")
@pytest.mark.parametrize(("model", "prefix"), [("build_regression", ""), ("build_named", "energy_")])
def test_metrics_of_a_mapping_and_of_functions_with_the_same_name_can_be_watched(comm, tmp_path, model, prefix):
    """Only a model that returns a mapping has a prefix in the history."""
    torch_models = HERE / "torch_models_for_tests.py"
    (tmp_path / "other.py").write_text("def absolute_error(outputs, targets):\n    return outputs.squeeze(-1) ** 2\n")
    functions = [f"{torch_models}:absolute_error", f"{tmp_path}/other.py:absolute_error"]
    stopping = {"metric": f"val_{prefix}absolute_error_1", "mode": "min"}
    configuration = {
        "model": f"{torch_models}:{model}", "loss": "mse", "metrics": {"energy": functions},
        "early_stopping": stopping, "target": {"metric": f"{prefix}absolute_error", "below": 0.0},
    }  # fmt: skip
    history = train(configuration, comm, data=line(n=20)).history
    assert {stopping["metric"], f"{prefix}absolute_error"} <= set(history)


def test_early_stopping_restores_the_best_weights(comm):
    stopping = {"metric": "val_loss", "patience": 2}
    optimizer = {"name": "sgd", "learning_rate": 0.3, "schedule": {"name": "constant"}}
    result = train(
        NUMBERS | {"early_stopping": stopping, "optimizer": optimizer, "epochs": 200, "batch_size": 8},
        comm,
        data=line(),
    )
    losses = result.history["val_loss"]
    assert result.stopped_by == "early_stopping"
    assert result.best_epoch == int(np.argmin(losses)) == len(losses) - 3
    x, y = result.validation
    found = np.mean((result.model.predict(x, verbose=0)[:, 0] - y) ** 2)
    assert found == pytest.approx(min(losses), rel=1e-4)


class InterruptionError(Exception):
    pass


@pytest.mark.parametrize(
    "optimizer", ["adam", {"name": "sgd", "momentum": 0.9, "schedule": {"name": "cosine", "warmup_epochs": 2}}], ids=str
)
def test_resumed_training_has_the_losses_of_one_never_stopped(comm, tmp_path, optimizer):
    common = CLASSES | {
        "parameters": {"dropout": 0.3, "norm": True}, "epochs": 5, "batch_size": 128, "optimizer": optimizer,
        "early_stopping": {"metric": "val_loss", "patience": 50},
    }  # fmt: skip
    whole = train(common, comm, data=digits())

    def interrupted(epoch, metrics):
        if epoch == 3:
            raise InterruptionError
        return False

    checkpointed = common | {"checkpoint": {"path": str(tmp_path / "c"), "every": 2}}
    with pytest.raises(TrainingError, match="InterruptionError"):
        train(checkpointed, comm, data=digits(), on_epoch=interrupted)
    resumed = train(checkpointed, comm, data=digits())
    assert resumed.history == whole.history
    np.testing.assert_array_equal(resumed.model.get_weights()[0], whole.model.get_weights()[0])
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["checkpoint.npz"]


OTHER = {
    "moved folder": (
        {"data": {"train": ["/new/a.h5", "/b.h5"], "features": "x", "labels": "y"}},
        r"another data\.train\[0\]: '/old/a\.h5', now '/new/a\.h5'",
    ),
    "more files": (
        {"data": {"train": ["/old/a.h5"], "features": "x", "labels": "y"}},
        r"another data\.train: \['/old/a\.h5', '/b\.h5'\], now \['/old/a\.h5'\]",
    ),
    "argument removed": ({"parameters": {}}, r"another parameters\.units: 4, now None"),
    "algorithm": ({"algorithm": "downpour"}, r"another algorithm\.name: 'allreduce', now 'downpour'"),
}


@pytest.mark.parametrize(("changes", "said"), OTHER.values(), ids=OTHER)
def test_changed_key_of_a_checkpoints_training_is_named_with_its_values(changes, said):
    data = {"train": ["/old/a.h5", "/b.h5"], "features": "x", "labels": "y"}
    then = NUMBERS | {"parameters": {"units": 4}, "data": data}
    one, other = (read_configuration(each).model_dump(mode="json") for each in (then, then | changes))
    with pytest.raises(ConfigurationError, match=said):
        check_same(one, other, "checkpoint")


def test_what_changes_no_result_may_change_when_a_training_continues():
    one, other = (
        read_configuration(NUMBERS | changes).model_dump(mode="json")
        for changes in ({}, {"gradient_checkpointing": True, "framework": "keras", "xla": True})
    )
    check_same(one, other, "checkpoint")


@needs("torch")
@pytest.mark.parametrize("before", ["sgd", "adagrad", "rmsprop"])
def test_an_optimizer_that_starts_from_the_checkpoint_of_another_one_begins_with_its_first_step(comm, before, tmp_path):
    """The first step of Adam changes every weight by at most the learning rate."""
    file = Path(__file__).with_name("torch_models_for_tests.py")
    common = {"model": f"{file}:build_classes", "loss": "cross_entropy", "batch_size": 2000}
    first = common | {"optimizer": before, "epochs": 4, "checkpoint": {"path": str(tmp_path / "a")}}
    train(first, comm, data=digits())
    start = {"path": str(tmp_path / "b"), "start_from": str(tmp_path / "a")}
    adam = common | {"optimizer": {"name": "adam", "learning_rate": 0.5}, "epochs": 5, "checkpoint": start}
    train(adam, comm, data=digits())
    one, two = (load_checkpoint(tmp_path / name).arrays["weights"] for name in "ab")
    assert np.abs(two - one).max() == pytest.approx(0.5, rel=1e-3)


@needs("torch")
@pytest.mark.parametrize(("saved", "built"), [("build_centred", "build_named"), ("build_named", "build_centred")])
def test_a_checkpoint_with_other_batch_statistics_than_the_model_is_refused(comm, saved, built, tmp_path):
    """Both models have the same weights; `build_centred` also has a moving mean."""
    common = {"loss": "mse", "epochs": 2}
    torch_models = HERE / "torch_models_for_tests.py"
    first = common | {"model": f"{torch_models}:{saved}", "checkpoint": {"path": str(tmp_path / "a")}}
    train(first, comm, data=line(n=20))
    start = {"path": str(tmp_path / "b"), "start_from": str(tmp_path / "a")}
    with pytest.raises(ConfigurationError, match="batch statistics differ from the checkpoint's") as caught:
        train(common | {"model": f"{torch_models}:{built}", "checkpoint": start}, comm, data=line(n=20))
    assert str(tmp_path / "a") in str(caught.value)


@needs("torch")
def test_both_models_of_a_validation_in_a_thread_are_closed_if_the_training_cannot_begin(comm, monkeypatch, tmp_path):
    from mpi_learn.models.torch_.model import TorchModel

    closed = []
    monkeypatch.setattr(TorchModel, "close", lambda model: closed.append(id(model)))
    configuration = {
        "model": f"{HERE}/torch_models_for_tests.py:build_regression", "loss": "mse", "batch_size": 300,
        "data": {"train": "unused.h5", "features": "X", "labels": "y", "drop_last": True},
        "validation": {"mode": "thread"},
    }  # fmt: skip
    with pytest.raises(ConfigurationError, match="do not fill one batch"):
        train(configuration, comm, data=line())
    assert len(set(closed)) == 2
    closed.clear()
    with pytest.raises(ConfigurationError, match="do not fill one batch"):  # every epoch waits: no model for a thread
        train(configuration | {"checkpoint": {"path": str(tmp_path)}}, comm, data=line())
    assert len(set(closed)) == 1


WRONG = {
    "model of another input shape": (CLASSES, line(), ModelError, r"of shape \(64,\), the data have \(3,\)"),
    "labels outside of the classes": (
        CLASSES | {"parameters": {"classes": 5}}, digits(), DataError, "is outside of the model's 5 classes",
    ),
    "class numbers for a one-hot loss": (
        CLASSES | {"loss": "categorical_crossentropy"}, digits(), ModelError, "use sparse_categorical_crossentropy",
    ),
    "no such loss": (NUMBERS | {"loss": "mean_squared_eror"}, line(), ConfigurationError, "did you mean mean_squa"),
    "no such metric": (NUMBERS | {"metrics": ["acuracy"]}, line(), ConfigurationError, "did you mean accuracy"),
    "no such parameter": (NUMBERS | {"parameters": {"unit": 1}}, line(), ConfigurationError, "did you mean units"),
    "function that returns no model": (
        NUMBERS | {"model": f"{KERAS}:build_nothing"}, line(), ModelError, "expected a Keras or PyTorch model",
    ),
    "function that raises": (
        NUMBERS | {"model": f"{KERAS}:build_raising"}, line(), ModelError, "RuntimeError: no such layer",
    ),
    "negative units": (NUMBERS | {"parameters": {"units": -1}}, line(), ModelError, "units=-1"),
    "no data": (NUMBERS, None, ConfigurationError, "data: this section is required"),
    "no such file": (
        NUMBERS | {"model": "missing.keras"}, line(), UserError, r"there is no such file\n.*check the path",
    ),
    "a file name that is too long": (
        NUMBERS | {"model": f"{'long' * 99}.keras"}, line(), UserError, "not accessible: File name too long",
    ),
    "arguments of a saved model": (
        NUMBERS | {"model": "saved.keras", "parameters": {"units": 8}}, line(), UserError,
        r"^parameters: a saved model takes no arguments, found units\n.*write model: file.py:function",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("configuration", "data", "kind", "said"), by_framework(WRONG.values()), ids=WRONG)
def test_mistakes_are_reported_before_the_first_step(comm, configuration, data, kind, said):
    with pytest.raises(kind, match=said):
        train(configuration, comm, data=data)


def test_arrays_in_place_of_a_dataset_are_refused_with_a_cure(comm):
    arrays = np.zeros((20, 3), np.float32), np.zeros(20, np.float32)
    with pytest.raises(ConfigurationError, match=r"expected a .*Dataset, found tuple\n.*HDF5"):
        train(NUMBERS, comm, data=arrays)


def test_saved_model_can_be_trained_again(comm, tmp_path):
    first = train(NUMBERS | {"epochs": 3}, comm, data=line())
    file = first.save_model(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model.keras"]
    second = train(NUMBERS | {"model": str(file), "epochs": 1}, comm, data=line())
    assert second.history["val_loss"][0] < first.history["val_loss"][0]
    (tmp_path / "model.json").write_text(first.model.to_json())
    third = train(NUMBERS | {"model": str(tmp_path / "model.json"), "epochs": 1}, comm, data=line())
    assert third.history["val_loss"][0] > second.history["val_loss"][0]


def test_saved_keras_model_is_compiled_with_losses_and_metrics_unless_they_are_code_of_the_user(comm, tmp_path):
    import keras

    given = NUMBERS | {"epochs": 2, "metrics": ["mae", {"name": "MeanSquaredError", "dtype": "float32"}]}
    result = train(given, comm, data=line())
    loaded = keras.saving.load_model(result.save_model(tmp_path / "model"))
    (x, y), sums = result.validation, {"loss": "val_loss", "mae": "val_mae"}
    found = loaded.evaluate(x, y, verbose=0, return_dict=True)
    for name, ours in sums.items():
        assert found[name] == pytest.approx(result.history[ours][-1], rel=1e-5)
    assert result.model.optimizer is None
    own = f"{HERE}/models_for_tests.py:squared_error"
    for changes in ({"loss": own}, {"metrics": [own]}):
        other = train(NUMBERS | {"epochs": 1} | changes, comm, data=line())
        assert not keras.saving.load_model(other.save_model(tmp_path / "other")).compiled


@pytest.mark.parametrize("framework", by_framework(["keras", "torch"]))
def test_saving_is_tested_in_the_folder_of_the_output(comm, tmp_path, framework):
    """A full disk is no property of the model."""
    configuration = NUMBERS | {"epochs": 1}
    if framework == "torch":
        configuration |= {"model": f"{HERE}/torch_models_for_tests.py:build_regression"}

    def run():
        unsavable = lambda reason, lines: pytest.fail(reason)  # noqa: E731
        train(configuration, comm, data=line(), on_unsavable=unsavable, output=tmp_path)
        assert not list(tmp_path.iterdir())

    run()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, limits[1]))
    try:
        with pytest.raises(SavingError, match=f"the model cannot be saved in {tmp_path}: .*\n.*enough free space"):
            run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


def test_history_is_plain_json(comm):
    result = train(NUMBERS | {"epochs": 2}, comm, data=line())
    assert json.loads(json.dumps(result.history)) == result.history


def test_many_trainings_in_one_process_do_not_grow_and_collect_garbage_once_each(comm, monkeypatch):
    def resident_mb():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

    for _ in range(2):
        train(NUMBERS | {"epochs": 1}, comm, data=line())
    before, collected = resident_mb(), []
    collect = gc.collect
    monkeypatch.setattr(gc, "collect", lambda *arguments: collected.append(collect(*arguments)))
    for _ in range(6):
        train(NUMBERS | {"epochs": 1}, comm, data=line())
    assert resident_mb() - before < 30
    assert len(collected) == 6


@pytest.mark.parametrize("model", by_framework(["keras", "torch"]))
def test_validation_by_a_thread_gives_the_same_history(comm, tmp_path, model):
    configuration = CLASSES | {"parameters": {"norm": True, "dropout": 0.2}, "epochs": 4, "batch_size": 128}
    if model == "torch":
        torch_models = Path(__file__).parent / "torch_models_for_tests.py"
        configuration |= {"model": f"{torch_models}:build_classes", "loss": "cross_entropy"}
    configuration |= {"checkpoint": {"path": str(tmp_path / "a"), "every": 3}, "early_stopping": {"patience": 9}}
    plain = train(configuration, comm, data=digits())
    checkpoint = {"path": str(tmp_path / "b"), "every": 3}
    threaded = configuration | {"validation": {"mode": "thread"}, "checkpoint": checkpoint}
    assert train(threaded, comm, data=digits()).history == plain.history


@pytest.mark.parametrize(("mode", "n_threads"), [("thread", "2"), ("master", "1")])
def test_tensorflow_may_compute_a_validation_in_a_thread_beside_the_training(comm, monkeypatch, mode, n_threads):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.delenv("TF_NUM_INTEROP_THREADS", raising=False)
    train(NUMBERS | {"epochs": 1, "validation": {"mode": mode}}, comm, data=line())
    assert os.environ["TF_NUM_INTEROP_THREADS"] == n_threads


def test_monitor_puts_processor_and_memory_into_the_history(comm):
    history = train(NUMBERS | {"epochs": 2, "monitor": True}, comm, data=line()).history
    assert all(50 < value < 20000 for value in history["memory_mb"] + history["peak_memory_mb"])
    assert all(value > 0 for value in history["cpu_percent"])


class SmallMessages(MPI.Intracomm):
    """Refuses pickled messages of more than 50 kB, as MPI refuses those of more than 2 GiB."""

    def Dup(self, info=MPI.INFO_NULL):  # noqa: N802 - MPI's name
        return SmallMessages(super().Dup(info))

    def bcast(self, obj=None, root=0):
        assert len(pickle.dumps(obj)) < 50_000
        return super().bcast(obj, root)


def test_training_resumes_from_a_checkpoint_that_is_larger_than_a_message_of_mpi(tmp_path):
    configuration = CLASSES | {"parameters": {"units": 256}, "checkpoint": {"path": str(tmp_path)}}
    first = train(configuration | {"epochs": 1}, MPI.COMM_SELF, data=digits())
    assert (tmp_path / "checkpoint.npz").stat().st_size > 200_000
    resumed = train(configuration | {"epochs": 2}, SmallMessages(MPI.COMM_SELF), data=digits())
    assert resumed.history["loss"][:1] == first.history["loss"]
    assert resumed.epochs == 2


ENDED_EARLY = NUMBERS | {"batch_size": 8, "optimizer": {"name": "sgd", "learning_rate": 0.3}}
"""A training whose loss rises after a few epochs."""


def test_early_stopping_by_another_metric_begins_with_the_resumed_epochs(comm, tmp_path):
    """The largest error so far is no limit for the smallest loss."""
    common = ENDED_EARLY | {"metrics": ["mae"], "checkpoint": {"path": str(tmp_path)}}
    rising = {"metric": "val_mae", "mode": "max", "patience": 50}
    train(common | {"epochs": 3, "early_stopping": rising}, comm, data=line())
    resumed = train(common | {"epochs": 8, "early_stopping": {"patience": 50}}, comm, data=line())
    losses = resumed.history["val_loss"]
    assert resumed.best_epoch == 3 + int(np.argmin(losses[3:]))


def test_steps_of_the_optimizer_that_a_model_reads_continue(comm, tmp_path):
    common = {"model": f"{KERAS}:build_annealed", "batch_size": 32}
    data = line()
    whole = train(common | {"epochs": 4}, comm, data=data)
    (x,), (y,) = data.validation.x, data.validation.y
    error = np.mean((y - whole.model.predict(x, verbose=0)[:, 0]) ** 2)
    n_steps = 4 * math.ceil(len(data.training) / 32)
    assert whole.history["val_loss"][-1] == pytest.approx((1 + 0.1 * n_steps) * error, rel=1e-4)
    checkpoint = {"checkpoint": {"path": str(tmp_path)}}
    train(common | {"epochs": 2} | checkpoint, comm, data=line())
    assert train(common | {"epochs": 4} | checkpoint, comm, data=line()).history == whole.history
    threaded = common | {"epochs": 4, "validation": {"mode": "thread"}}
    assert train(threaded, comm, data=line()).history == whole.history


def test_a_training_is_freed_at_its_end_without_garbage_collection(comm, monkeypatch):
    """Otherwise the trainings of a search would share the memory with those before."""
    trainings = []

    class Observed(Training):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            trainings.append(weakref.ref(self))

    monkeypatch.setattr("mpi_learn.training.train.Training", Observed)
    schedule = {"name": "adam", "schedule": {"name": "cosine"}}
    gc.disable()
    try:
        train(NUMBERS | {"epochs": 1, "optimizer": schedule}, comm, data=line())
        (training,) = trainings
        assert training() is None
    finally:
        gc.enable()


def test_checkpoint_from_before_an_option_and_a_counter_existed_is_continued(comm, tmp_path):
    configuration = NUMBERS | {"algorithm": {"name": "allreduce"}, "checkpoint": {"path": str(tmp_path)}}
    first = train(configuration | {"epochs": 2}, comm, data=line())
    checkpoint = load_checkpoint(tmp_path)
    del checkpoint.metadata["training"]["algorithm"]["matrix_rank"]
    checkpoint.arrays["counters"] = checkpoint.arrays["counters"][:, 1:]
    save_checkpoint(tmp_path, checkpoint, [])
    longer = train(configuration | {"epochs": 4}, comm, data=line())
    assert longer.history["loss"][:2] == first.history["loss"]
    assert len(longer.history["loss"]) == 4


@pytest.mark.parametrize("name", ["constant", "plateau"])
def test_checkpoint_with_an_earlier_default_of_a_schedule_is_continued(name):
    schedule = {"optimizer": {"name": "adam", "schedule": {"name": name}}}
    now = read_configuration(NUMBERS | schedule).model_dump(mode="json")
    then = copy.deepcopy(now)
    then["optimizer"]["schedule"]["mode"] = "min"
    check_same(then, now, "checkpoint")
    then["optimizer"]["schedule"]["factor"] = 0.5
    with pytest.raises(ConfigurationError, match=r"optimizer\.schedule\.factor: 0\.5, now 0\.1"):
        check_same(then, now, "checkpoint")


ONE_EPOCH = read_configuration(NUMBERS | {"epochs": 1})


@pytest.fixture(scope="module")
def result(comm):
    return train(ONE_EPOCH, comm, data=line())


@pytest.mark.parametrize("blocked", ["training.yaml", "history.json"])
def test_a_result_is_saved_although_one_of_its_files_cannot_be_written(result, tmp_path, blocked):
    (tmp_path / blocked).mkdir()
    with pytest.raises(SavingError, match=f"{blocked} could not be saved: IsADirectoryError") as caught:
        save_result(tmp_path, ONE_EPOCH, result)
    assert f"saved {tmp_path / 'model.keras'}" in str(caught.value)
    files = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert files == {"training.yaml", "history.json", "model.keras"} - {blocked}


@pytest.mark.parametrize("is_whole", [True, False])
def test_history_is_saved_although_a_full_disk_cannot_take_the_model(result, tmp_path, is_whole):
    def fail(path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    unsaved = replace(result, save_model=fail, save_weights=fail)
    with pytest.raises(SavingError, match=r"the weights could not be saved: OSError: .*No space left") as caught:
        save_result(tmp_path, ONE_EPOCH, unsaved, is_whole=is_whole)
    assert ("the model could not be saved" in str(caught.value)) == is_whole
    assert {path.name for path in tmp_path.iterdir()} == {"training.yaml", "history.json"}


def test_what_a_killed_job_has_begun_to_write_is_removed_but_not_what_another_one_writes(tmp_path):
    save_checkpoint(tmp_path, SavedTraining({}, {}), [])
    abandoned = killed_while_writing(tmp_path / "checkpoint.npz")
    recent = killed_while_writing(tmp_path / "checkpoint.npz")
    an_hour_ago = time.time() - 3601
    os.utime(abandoned, (an_hour_ago, an_hour_ago))
    save_checkpoint(tmp_path, SavedTraining({}, {}), [])
    assert set(tmp_path.iterdir()) == {tmp_path / "checkpoint.npz", recent}
