"""Callbacks of the user: which are called, on which rank, and which are refused."""

from __future__ import annotations

import csv
import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.errors import ConfigurationError, TrainingError
from mpi_learn.models.building.make_model import make_model
from mpi_learn.models.settings import Example
from mpi_learn.settings.user_code import load_function
from mpi_learn.testing.thread_ranks import run_ranks
from mpi_learn.training.callbacks import Callbacks
from tests.mpi_learn.configurations_for_tests import model_settings
from tests.mpi_learn.models_for_tests import line
from tests.optional_packages import by_framework, needs
from tests.world import in_world

HERE = Path(__file__).parent
FILE = str(HERE / "callbacks_for_tests.py")
TORCH = {"model": f"{HERE}/torch_models_for_tests.py:build_regression", "loss": "mse", "epochs": 4}
KERAS = TORCH | {"model": f"{HERE}/models_for_tests.py:build_regression"}


def calls(function):
    """What the callbacks of the file, as this function's module sees it, have recorded."""
    return load_function(f"{FILE}:{function}").__globals__["CALLS"]


@needs("torch")
def test_function_gets_epoch_metrics_and_model_and_stops_the_training():
    recorded = calls("stop_after_two")
    recorded.clear()
    result = train(TORCH | {"callbacks": f"{FILE}:stop_after_two"}, MPI.COMM_SELF, data=line())
    assert recorded == [(epoch, ["loss", "val_loss"], "Sequential") for epoch in (0, 1)]
    assert (result.epochs, result.stopped_by) == (2, "callback")
    made, later = ({"name": f"{FILE}:make_stopping", "at": epoch} for epoch in (1, 2))
    for functions in ([made], [made, later], [later, made]):
        assert train(TORCH | {"callbacks": functions}, MPI.COMM_SELF, data=line()).epochs == 2


@needs("keras")
def test_callback_of_keras_sees_the_trained_model_and_stops_the_training(tmp_path):
    recorded = calls("keras_stopping")
    recorded.clear()
    logger = {"name": "CSVLogger", "filename": str(tmp_path / "log.csv")}
    result = train(KERAS | {"callbacks": [f"{FILE}:keras_stopping", logger]}, MPI.COMM_SELF, data=line())
    assert (result.epochs, result.stopped_by) == (2, "callback")
    assert (recorded[0], recorded[-1]) == ("begin", "end")
    assert [one[:2] for one in recorded[1:-1]] == list(enumerate(result.history["loss"]))
    assert recorded[-2][2] == pytest.approx(float(np.sum(result.model.get_weights()[0])))
    with (tmp_path / "log.csv").open() as file:
        assert [float(row["val_loss"]) for row in csv.DictReader(file)] == pytest.approx(result.history["val_loss"])


def keras_loop(callback, epochs=6, rate=0.2):
    """`fit` with all samples in one batch, and the rates that the callback sets."""
    import keras

    keras.utils.set_random_seed(0)
    model = load_function(KERAS["model"])()
    model.compile(optimizer=keras.optimizers.SGD(rate), loss="mse")
    (x,), (y,) = line().training.x, line().training.y
    validation = (line().validation.x[0], line().validation.y[0])
    return model.fit(x, y, len(x), epochs, verbose=0, shuffle=False, validation_data=validation, callbacks=[callback])


SETTING = {
    "scheduler": ("LearningRateScheduler", {"schedule": f"{FILE}:falling"}),
    "plateau": ("ReduceLROnPlateau", {"monitor": "val_loss", "patience": 1, "factor": 0.3, "min_delta": 0.05}),
}


@needs("keras")
@pytest.mark.parametrize("name", SETTING)
def test_callback_sets_the_learning_rate_as_in_fit(name):
    import keras

    kind, arguments = SETTING[name]
    made = {key: load_function(one) if ":" in str(one) else one for key, one in arguments.items()}
    expected = keras_loop(getattr(keras.callbacks, kind)(**made)).history
    wanted = {"name": kind} | arguments if name == "plateau" else f"{FILE}:make_scheduler"
    sgd = {"name": "sgd", "learning_rate": 0.2}
    common = KERAS | {"callbacks": [wanted], "epochs": 6, "batch_size": 200, "optimizer": sgd}
    found = train(common, MPI.COMM_SELF, data=line())
    assert len(set(expected["learning_rate"])) > 1
    np.testing.assert_allclose(found.history["loss"], expected["loss"], rtol=1e-4)
    np.testing.assert_allclose(found.history["val_loss"], expected["val_loss"], rtol=1e-4)


@needs("keras")
def test_learning_rate_that_a_callback_has_set_is_in_the_checkpoint(tmp_path):
    def run(epochs, checkpoint=None):
        common = KERAS | {"callbacks": f"{FILE}:halved_once", "epochs": epochs, "batch_size": 64}
        section = {"checkpoint": {"path": str(tmp_path)}} if checkpoint else {}
        return train(common | {"optimizer": "nadam"} | section, MPI.COMM_SELF, data=line()).history

    whole = run(5)
    run(3, checkpoint=True)
    assert run(5, checkpoint=True) == whole


@needs("keras")
def test_plateau_of_keras_continues_after_a_resume(tmp_path):
    plateau = {"name": "ReduceLROnPlateau", "monitor": "val_loss", "patience": 2, "factor": 0.3, "min_delta": 0.5}
    common = KERAS | {"callbacks": [plateau], "optimizer": {"name": "sgd", "learning_rate": 0.1}}
    whole = train(common | {"epochs": 6}, MPI.COMM_SELF, data=line()).history
    checkpointed = common | {"checkpoint": {"path": str(tmp_path)}}
    train(checkpointed | {"epochs": 3}, MPI.COMM_SELF, data=line())
    assert train(checkpointed | {"epochs": 6}, MPI.COMM_SELF, data=line()).history == whole


@needs("keras")
def test_callback_sees_the_model_of_its_epoch_during_validation_by_a_thread():
    recorded, common = calls("sum_of_weights"), KERAS | {"callbacks": f"{FILE}:sum_of_weights"}
    found = []
    for mode in ("distributed", "thread"):
        recorded.clear()
        train(common | {"validation": {"mode": mode}}, MPI.COMM_SELF, data=line())
        found.append(list(recorded))
    assert found[0] == found[1]


REFUSED = {
    "early stopping": (KERAS, "EarlyStopping", "write `early_stopping: {metric"),
    "of a factory": (KERAS, "keras.callbacks:TerminateOnNaN", "TerminateOnNaN is not available as a callback"),
    "of steps": (KERAS, "TensorBoard", "TensorBoard is not available.*\n.*CSVLogger"),
    "unknown": (KERAS, "CSVLoger", "did you mean CSVLogger"),
    "arguments": (KERAS, "CSVLogger", "CSVLogger with \\(\\)"),
    "batches": (KERAS, f"{FILE}:of_batches", "acts on batches"),
    "validation": (KERAS, f"{FILE}:of_validation", "acts on each validation"),
    "no function": (KERAS, f"{FILE}:nothing", "expected a callback, found int"),
    "two schedules": (
        KERAS | {"optimizer": {"name": "sgd", "schedule": {"name": "cosine"}}},
        "ReduceLROnPlateau",
        "ReduceLROnPlateau sets the learning rate, but optimizer.schedule determines it",
    ),
    "schedule and a function": (
        KERAS | {"optimizer": {"name": "sgd", "schedule": {"name": "cosine"}}},
        f"{FILE}:halved_once",
        "a callback sets the learning rate, but optimizer.schedule",
    ),
    "schedule of the optimizer": (
        KERAS | {"optimizer": f"{HERE}/optimizers_for_tests.py:with_schedule"},
        f"{FILE}:halved_once",
        "the optimizer determines its learning rate itself",
    ),
    "plateau and schedule of the optimizer": (
        KERAS | {"optimizer": f"{HERE}/optimizers_for_tests.py:with_schedule"},
        "ReduceLROnPlateau",
        "ReduceLROnPlateau sets the learning rate, but the optimizer determines its learning rate itself",
    ),
    "keras for torch": (TORCH, "CSVLogger", "there is no callback CSVLogger"),
}


@needs("keras")
@pytest.mark.parametrize(("common", "name", "said"), by_framework(REFUSED.values()), ids=REFUSED)
def test_callback_that_is_not_available_is_refused(common, name, said):
    with pytest.raises(ConfigurationError, match=said):
        train(common | {"callbacks": [name]}, MPI.COMM_SELF, data=line())


@needs("keras")
def test_callback_of_keras_is_called_as_by_fit():
    """With the same arguments; a metric that it adds is seen by later callbacks and in the history."""
    recorded = calls("conversation")
    recorded.clear()
    history = keras_loop(load_function(f"{FILE}:conversation")(), epochs=2).history
    expected = list(recorded)
    recorded.clear()
    wanted = [f"{FILE}:conversation", f"{FILE}:hearing"]
    found = train(KERAS | {"callbacks": wanted, "epochs": 2, "batch_size": 200}, MPI.COMM_SELF, data=line()).history
    heard = [one for one in recorded if one[0] in ("of epoch 0", "of epoch 1")]
    assert heard == [("of epoch 0", 0.0), ("of epoch 1", 2.0)]
    assert [one for one in recorded if one not in heard] == expected
    assert found["gap"] == history["gap"] == [0.0, 2.0]
    assert "note" not in found  # the history has numbers only


CHANGES = {
    "decayed": "sets weight_decay of the optimizer; only its learning rate",
    "with_another_optimizer": "compiles the model again, or gives it another optimizer",
    "restarted": "sets iterations of the optimizer",
    "frozen": "changes dense.*trainable from True to False, but the step has been compiled",
}


@needs("keras")
@pytest.mark.parametrize("function", CHANGES)
def test_callback_that_changes_what_the_step_does_not_see_is_refused(function):
    callback = {"name": f"{FILE}:before_epochs", "function": function}
    with pytest.raises(ConfigurationError, match=CHANGES[function]):
        train(KERAS | {"callbacks": [callback], "epochs": 2}, MPI.COMM_SELF, data=line())


@needs("keras")
def test_callback_reads_the_rate_of_an_optimizer_with_a_schedule():
    recorded = calls("noting_the_rate")
    recorded.clear()
    optimizer = {"name": f"{HERE}/optimizers_for_tests.py:with_schedule", "learning_rate": 0.05}
    common = {"optimizer": optimizer, "callbacks": f"{FILE}:noting_the_rate", "batch_size": 100, "epochs": 2}
    train(KERAS | common, MPI.COMM_SELF, data=line())
    n_steps = -(-len(line().training.x[0]) // 100)
    assert recorded == pytest.approx([0.05 * 0.5 ** (n_steps * n / 2) for n in (1, 2)])


@needs("keras")
def test_keras_alone_loads_the_model_that_a_callback_saves(tmp_path):
    import keras

    path = str(tmp_path / "saved.keras")
    callback = {"name": f"{FILE}:make_saving", "path": path}
    result = train(KERAS | {"callbacks": [callback], "epochs": 1}, MPI.COMM_SELF, data=line())
    loaded = keras.models.load_model(path)
    assert type(loaded.optimizer).__module__.startswith("keras.")
    for now, before in zip(loaded.get_weights(), result.model.get_weights(), strict=True):
        np.testing.assert_array_equal(now, before)


@needs("keras")
def test_callback_that_raises_before_the_first_epoch_ends_the_training_on_all_ranks():
    def run(comm):
        with pytest.raises(TrainingError, match="boom"):
            rate = SimpleNamespace(fixed_by="")
            Callbacks([f"{FILE}:raising_in_set_params"], comm, 1, SimpleNamespace(framework="keras"), 1, rate, 1)

    run_ranks(2, run)


@needs("keras")
@pytest.mark.parametrize("framework", by_framework(["keras", "torch"]))
def test_callback_changes_the_weights_on_one_rank(framework):
    """Almost without a learning rate, weights that a callback has set to zero remain zero."""
    common = (KERAS if framework == "keras" else TORCH) | {"optimizer": {"name": "sgd", "learning_rate": 1e-9}}
    result = train(common | {"callbacks": f"{FILE}:zeroed", "epochs": 2}, MPI.COMM_SELF, data=line())
    weights = result.model.get_weights() if framework == "keras" else list(result.model.parameters())
    assert not any(np.any(one.detach().numpy() if framework == "torch" else one) for one in weights)
    assert result.history["loss"][1] == pytest.approx(float(np.mean(line().training.y[0] ** 2)), rel=1e-4)


@needs("torch")
def test_torch_parameters_in_other_memory_are_trained_after_a_callback():
    common = TORCH | {"optimizer": {"name": "sgd", "learning_rate": 0.1}, "batch_size": 20, "epochs": 2}
    common["model"] = f"{HERE}/torch_models_for_tests.py:build_centred"
    result = train(common | {"callbacks": f"{FILE}:zeroed"}, MPI.COMM_SELF, data=line())
    assert result.history["loss"][1] < 0.5 * float(np.mean(line().training.y[0] ** 2))


def after_an_epoch(name, model="build_centred"):
    """Calls a callback on the first of two ranks; returns the state of the model on each of them."""
    x = np.ones((8, 3), np.float32)
    settings = model_settings(f"{HERE}/torch_models_for_tests.py:{model}", loss="mse")
    models = [make_model(settings, Example((x,), (x[:, 0],))) for _ in range(2)]

    def run(comm):
        model = models[comm.rank]
        callbacks = Callbacks([f"{FILE}:{name}"], comm, 0, model, 1, SimpleNamespace(fixed_by=""), 1)
        callbacks.after_epoch(SimpleNamespace(number=0, weights=model.weights), {})
        integers = model.state.integers()[~model.state.random_mask()]
        return [*model.state.floats().tolist(), *integers.tolist()]

    return run_ranks(2, run)


@needs("torch")
def test_state_that_a_callback_changes_is_the_same_on_all_ranks():
    """As in annealing, where a variable of the model grows with the epochs."""
    assert after_an_epoch("annealed") == [[2.0] * 3] * 2
    assert after_an_epoch("counted", "build_annealed") == [[2, 2]] * 2


@needs("torch")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rescaled", "changes scale from 1.0 to 3.0 on one rank alone"),
        ("hooked", "changes number of hooks from 0 to 1"),
        ("freezing", "changes weight from trained to frozen"),
    ],
)
def test_callback_that_changes_the_module_of_one_rank_is_refused(name, said):
    with pytest.raises(ConfigurationError, match=said):
        after_an_epoch(name, "build_annealed")


@needs("torch")
def test_callback_freezes_a_layer_on_one_rank():
    """The frozen weights stay as they are; the state of the model has the same size before and after."""
    recorded = calls("freezing")
    recorded.clear()
    stopping = {"early_stopping": {"metric": "val_loss", "patience": 9}, "epochs": 5}
    train(TORCH | stopping | {"callbacks": f"{FILE}:freezing"}, MPI.COMM_SELF, data=line())
    first, second, third, fourth, fifth = recorded
    assert first == second != third == fourth != fifth


@needs("torch")
def test_callback_that_trains_frozen_weights_is_refused():
    common = TORCH | {"model": f"{HERE}/torch_models_for_tests.py:build_half_frozen"}
    with pytest.raises(ConfigurationError, match=r"replaces 0\.bias, or trains it although it was frozen before"):
        train(common | {"callbacks": f"{FILE}:thawing"}, MPI.COMM_SELF, data=line())


@needs("torch")
def test_callback_that_changes_the_weights_is_refused_on_several_ranks():
    with pytest.raises(ConfigurationError, match="a callback changes the weights"):
        after_an_epoch("zeroed")


@needs("torch")
def test_callback_that_changes_the_copy_of_a_validation_in_a_thread_is_refused():
    changes = {"callbacks": f"{FILE}:zeroed", "validation": {"mode": "thread"}, "epochs": 1}
    with pytest.raises(ConfigurationError, match="weights of the model, but callbacks receive a copy of the weights"):
        train(TORCH | changes, MPI.COMM_SELF, data=line())


PROGRAM = f"""
import json
from mpi4py import MPI
from mpi_learn import train
from mpi_learn.settings.user_code import load_function
from mpi_learn.training.callbacks import Callbacks
from tests.mpi_learn.models_for_tests import line
from mpi_learn.testing.thread_ranks import run_ranks

name = "{FILE}:stop_after_two"
load_function(name).__globals__["CALLS"].clear()
result = train({TORCH!r} | {{"callbacks": name, "algorithm": "downpour"}}, MPI.COMM_WORLD, data=line())
n_calls = MPI.COMM_WORLD.gather(len(load_function(name).__globals__["CALLS"]))
stopped_by = MPI.COMM_WORLD.gather(result.stopped_by)
if MPI.COMM_WORLD.rank == 0:
    print(json.dumps([n_calls, stopped_by]))
"""


@needs("torch")
@pytest.mark.mpi
def test_callbacks_are_called_on_the_first_worker_and_stop_all_ranks(tmp_path):
    done = in_world(3, "-c", PROGRAM, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[0, 2, 0], ["callback"] * 3]


RATES = f"""
import json
from mpi4py import MPI
from mpi_learn import train
from tests.mpi_learn.models_for_tests import line

world, found = MPI.COMM_WORLD, {{}}
sgd = {{"name": "sgd", "learning_rate": 0.1}}
training = {KERAS!r} | {{"batch_size": 50, "optimizer": sgd, "callbacks": "{FILE}:make_stopped_rate"}}
for name in ("allreduce", "downpour"):
    result = train(training | {{"algorithm": name}}, world, data=line())
    found[name] = world.gather(result.history["loss"])
if world.rank == 0:
    print(json.dumps(found))
"""


@pytest.mark.mpi
@pytest.mark.parametrize("name", ["allreduce", "downpour"])
def test_learning_rate_of_a_callback_is_that_of_all_ranks(name, tmp_path_factory):
    """From the third epoch on the rate is almost 0, and the loss remains the same, with a master and without one."""
    for loss in learning_rates(str(tmp_path_factory.getbasetemp()))[name]:
        assert loss[0] > 1.2 * loss[2]
        assert loss[2] == pytest.approx(loss[3], rel=1e-4)


@cache
def learning_rates(folder):
    done = in_world(2, "-c", RATES, cwd=Path(folder))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
