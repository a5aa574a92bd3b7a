"""Optimizers of Keras and PyTorch, and of the user: the same steps as in `fit` and in a plain loop.

The conformance table (`test_conformance.py`) compares them over several batches, and three ranks with one.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from mpi4py import MPI

from mpi_learn import train
from mpi_learn.errors import ConfigurationError, TrainingError
from mpi_learn.training.checkpoints.checkpoint_file import load_checkpoint
from tests.mpi_learn import optimizers_for_tests
from tests.mpi_learn.configurations_for_tests import gan_configuration, unlabelled
from tests.mpi_learn.models_for_tests import build_regression, line
from tests.optional_packages import by_framework, is_installed, needs
from tests.world import in_world

if is_installed("keras"):
    import keras

pytestmark = needs("keras")
HERE = Path(__file__).parent
FILE = str(HERE / "optimizers_for_tests.py")
TORCH = {"model": f"{HERE}/torch_models_for_tests.py:build_regression", "loss": "mse", "epochs": 5}
KERAS = TORCH | {"model": f"{HERE}/models_for_tests.py:build_regression"}
BY_FRAMEWORK = {"keras": KERAS, "torch": TORCH}


def trained(common, optimizer, **others):
    return train(common | {"optimizer": optimizer} | others, MPI.COMM_SELF, data=line())


def weights(result):
    found = result.model
    arrays = found.get_weights() if hasattr(found, "get_weights") else [one.detach() for one in found.parameters()]
    return np.concatenate([np.ravel(one) for one in arrays])


CLIPPED = {"clip_value": 0.3, "schedule": {"name": "step", "every": 2, "factor": 0.5, "warmup_epochs": 1}}
SAME = {
    "keras": ("keras", {"name": "keras.optimizers:SGD", "learning_rate": 0.1} | CLIPPED, {"name": "sgd"} | CLIPPED),
    "torch": ("torch", {"name": "torch.optim:SGD", "lr": 0.1} | CLIPPED, {"name": "sgd"} | CLIPPED),
    "norm": (
        "torch", {"name": "torch.optim:SGD", "lr": 0.1, "momentum": 0.9, "clip_norm": 0.1},
        {"name": "sgd", "momentum": 0.9, "clip_norm": 0.1},
    ),
    "decay": (
        "keras", {"name": "adamax", "learning_rate": 0.1, "weight_decay": 0.5},
        {"name": "keras.optimizers:Adamax", "weight_decay": 0.5},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("framework", "optimizer", "same"), by_framework(SAME.values()), ids=SAME)
def test_clipping_decay_and_schedule_are_those_of_the_fused_optimizers(framework, optimizer, same):
    common = BY_FRAMEWORK[framework] | {"batch_size": 100}
    found, expected = trained(common, optimizer), trained(common, {"learning_rate": 0.1} | same)
    np.testing.assert_allclose(weights(found), weights(expected), atol=1e-5)
    np.testing.assert_allclose(found.history["val_loss"], expected.history["val_loss"], rtol=1e-4)


@pytest.mark.parametrize(
    ("framework", "name", "only_of_amsgrad"),
    by_framework([("keras", "keras.optimizers:Adam", "velocity_hat"), ("torch", "torch.optim:Adam", "max_exp_avg_sq")]),
)
def test_state_in_a_checkpoint_is_named_by_what_it_is(framework, name, only_of_amsgrad, tmp_path):
    """``start_from`` uses the arrays of an optimizer with other options."""
    kept = {}
    for amsgrad in (False, True):
        folder = tmp_path / str(amsgrad)
        trained(BY_FRAMEWORK[framework], {"name": name, "amsgrad": amsgrad}, checkpoint={"path": str(folder)})
        arrays = load_checkpoint(folder).arrays
        kept[amsgrad] = {key: array.shape for key, array in arrays.items() if key.startswith("algorithm.Adam.")}
    assert kept[False]
    assert kept[False].items() <= kept[True].items()
    added = kept[True].keys() - kept[False].keys()
    assert added
    assert all(key.endswith(f".{only_of_amsgrad}") for key in added)


MATRIX = {"model": "torch.nn:Linear", "parameters": {"in_features": 3, "out_features": 1, "bias": False}}
MUON = {
    "keras": (KERAS, {"name": "keras.optimizers:Muon", "learning_rate": 0.1}, ("weight_decay", "adam_weight_decay")),
    "torch": (TORCH | MATRIX, {"name": "torch.optim:Muon", "lr": 0.1}, ("weight_decay",)),
}


@pytest.mark.parametrize("decay", [0.0, 0.5])
@pytest.mark.parametrize(("common", "same", "decays"), by_framework(MUON.values()), ids=MUON)
def test_weight_decay_that_a_framework_has_by_default_does_not_act(common, same, decays, decay):
    found = trained(common, {"name": "muon", "learning_rate": 0.1, "weight_decay": decay})
    expected = trained(common, same | dict.fromkeys(decays, decay))
    np.testing.assert_allclose(weights(found), weights(expected), rtol=1e-4, atol=1e-6)


def test_rate_of_a_schedule_of_the_optimizer_itself_is_kept():
    found = trained(KERAS | {"epochs": 6, "batch_size": 200}, f"{FILE}:with_schedule")
    decaying = {"name": "sgd", "learning_rate": 0.05, "schedule": {"name": "exponential", "every": 2, "factor": 0.5}}
    expected = trained(KERAS | {"epochs": 6, "batch_size": 200}, decaying)
    np.testing.assert_allclose(weights(found), weights(expected), atol=1e-5)


class InterruptionError(Exception):
    pass


@pytest.mark.parametrize(
    ("framework", "optimizer"),
    by_framework([("keras", "nadam"), ("torch", "nadam"), ("torch", {"name": f"{FILE}:counting", "lr": 0.05})]),
    ids=["keras", "torch", "numbers"],
)
def test_resumed_training_has_the_state_of_the_optimizer(framework, optimizer, tmp_path):
    def interrupted(epoch, metrics):
        if epoch == 3:
            raise InterruptionError
        return False

    common = BY_FRAMEWORK[framework] | {"optimizer": optimizer, "batch_size": 64}
    whole = train(common, MPI.COMM_SELF, data=line())
    checkpointed = common | {"checkpoint": {"path": str(tmp_path / "c"), "every": 2}}
    with pytest.raises(TrainingError, match="InterruptionError"):
        train(checkpointed, MPI.COMM_SELF, data=line(), on_epoch=interrupted)
    resumed = train(checkpointed, MPI.COMM_SELF, data=line())
    assert resumed.history == whole.history
    np.testing.assert_array_equal(weights(resumed), weights(whole))


AVERAGES = {"name": f"{FILE}:with_averages"}
ENDS = {
    "averages as weights in every third step": {"name": f"{FILE}:with_averages", "frequency": 3},
    "averages of one of two optimizers": {"name": f"{FILE}:with_averages", "is_one_of_two": True},
    "code of the user": {"name": f"{FILE}:with_own_end"},
}
WHOLE = KERAS | {"batch_size": 200}


def fitted(optimizer, epochs):
    """Weights and validation losses of `keras.Model.fit`, whose steps take long because they are not compiled."""
    keras.utils.set_random_seed(0)
    model, data = build_regression(), line()
    arguments = {name: value for name, value in optimizer.items() if name != "name"}
    made = getattr(optimizers_for_tests, optimizer["name"].partition(":")[2])(**arguments)
    model.compile(made, "mse", run_eagerly=True)
    arrays = [(data.training.x[0], data.training.y[0]), (data.validation.x[0], data.validation.y[0])]
    history = model.fit(*arrays[0], batch_size=200, epochs=epochs, validation_data=arrays[1], verbose=0).history
    return np.concatenate([np.ravel(one) for one in model.get_weights()]), history["val_loss"]


@pytest.mark.parametrize("optimizer", ENDS.values(), ids=ENDS)
def test_training_ends_with_the_weights_of_fit_and_can_continue(optimizer, tmp_path):
    """A checkpoint has the weights before, so that a longer training makes the steps of one without an interruption."""
    keeps = {"checkpoint": {"path": str(tmp_path / "c")}}
    of_fit = {epochs: fitted(optimizer, epochs) for epochs in (2, 4)}
    last = None
    for epochs in (2, 2, 4):
        last = trained(WHOLE | {"epochs": epochs}, optimizer, **keeps)
        expected, losses = of_fit[epochs]
        np.testing.assert_allclose(weights(last), expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(last.history["val_loss"], losses, rtol=1e-4)
    at_once = trained(WHOLE | {"epochs": 4}, optimizer)
    np.testing.assert_array_equal(weights(last), weights(at_once))


def test_best_weights_replace_moving_averages_as_in_fit(tmp_path):
    stopping = {"metric": "val_loss", "patience": 9, "restore_best": True}
    found = trained(WHOLE, AVERAGES, early_stopping=stopping)
    assert found.best_epoch == 4
    plain = trained(WHOLE, {"name": "keras.optimizers:SGD", "learning_rate": 0.1})
    np.testing.assert_allclose(weights(found), weights(plain), rtol=1e-6)


def test_moving_averages_begin_with_the_weights_of_another_training(tmp_path):
    began = {"path": str(tmp_path / "averages"), "start_from": str(tmp_path / "sgd")}
    sgd = {"name": "keras.optimizers:SGD", "learning_rate": 0.1}
    first = trained(WHOLE | {"epochs": 2}, sgd, checkpoint={"path": began["start_from"]})
    unchanged = trained(WHOLE | {"epochs": 2}, AVERAGES, checkpoint=began)
    np.testing.assert_array_equal(weights(unchanged), weights(first))
    one_step = weights(trained(WHOLE | {"epochs": 3}, AVERAGES, checkpoint=began))
    later = weights(trained(WHOLE | {"epochs": 3}, sgd))
    np.testing.assert_allclose(one_step, 0.8 * weights(first) + 0.2 * later, rtol=1e-4, atol=1e-6)


def test_moving_averages_are_refused_where_ranks_have_different_weights():
    with pytest.raises(ConfigurationError, match=r"(?s)different weights with easgd.*write algorithm: allreduce"):
        trained(KERAS, AVERAGES, algorithm="easgd")


@pytest.mark.parametrize("framework", by_framework(BY_FRAMEWORK))
def test_optimizer_that_starts_from_the_checkpoint_of_another_one_has_a_new_state(framework, tmp_path):
    common = BY_FRAMEWORK[framework] | {"batch_size": 64}
    trained(common, "adam", checkpoint={"path": str(tmp_path / "adam")}, epochs=2)
    began = {"start_from": str(tmp_path / "adam"), "path": str(tmp_path / "nadam")}
    found = trained(common, "nadam", checkpoint=began, epochs=4)
    assert np.isfinite(weights(found)).all()
    assert found.history["loss"][-1] < found.history["loss"][0]


ALGORITHMS = {"easgd": "easgd", "gem": "gem", "clusters": {"name": "clusters", "size": 1}}


@pytest.mark.parametrize(
    ("framework", "name"), by_framework([("keras", "easgd"), *(("torch", name) for name in ALGORITHMS)])
)
def test_every_algorithm_whose_workers_update_their_weights_takes_it(framework, name):
    adamax = {"name": "adamax", "learning_rate": 0.05}
    found = trained(BY_FRAMEWORK[framework], adamax, algorithm=ALGORITHMS[name], batch_size=32)
    assert found.history["val_loss"][-1] < 0.5 * found.history["val_loss"][0]


@needs("torch")
def test_models_of_a_gan_have_optimizers_of_the_framework():
    own = {"generator_optimizer": {"name": "nadam", "learning_rate": 0.005}}
    file = TORCH["model"].partition(":")[0]
    found = train(gan_configuration(file, gan=own, epochs=1, optimizer="adamax"), MPI.COMM_SELF, data=unlabelled())
    assert np.isfinite(found.history["loss"]).all()


REFUSED = {
    "unknown": (KERAS, "nadm", "there is no nadm.*did you mean nadam.*adadelta.*adamax"),
    "of the other framework": (TORCH, "ftrl", "torch.optim has no ftrl.*nadam"),
    "argument": (KERAS, {"name": "nadam", "beta": 1}, "nadam: calling it with \\(beta=1\\) raised"),
    "argument of a function": (TORCH, {"name": f"{FILE}:counting", "rate": 1}, "unexpected keyword argument 'rate'"),
    "no function": (KERAS, f"{FILE}:no_such", "there is no function no_such"),
    "no optimizer": (KERAS, f"{FILE}:nothing", "expected a keras optimizer for a keras model, found int"),
    "for another model": (TORCH, f"{FILE}:with_averages", "calling it with"),
    "needs the loss again": (TORCH, "torch.optim:LBFGS", "LBFGS: a step with a gradient raised"),
    "needs sparse gradients": (TORCH, "torch.optim:SparseAdam", "a step with a gradient raised.*dense"),
    "state": (TORCH, f"{FILE}:listing", "state gradients is of type list"),
    "scaled loss": (KERAS, {"name": "nadam", "loss_scale_factor": 8.0}, "loss scaling is not available"),
    "two schedules": (
        KERAS, {"name": f"{FILE}:with_schedule", "schedule": {"name": "cosine"}},
        "optimizer.schedule: the optimizer determines its learning rate itself.*leave schedule out",
    ),
    "rate of the first step alone": (
        TORCH, {"name": "rprop", "schedule": {"name": "cosine"}},
        "optimizer.schedule: the optimizer determines its learning rate itself.*leave schedule out",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("common", "optimizer", "said"), by_framework(REFUSED.values()), ids=REFUSED)
def test_optimizer_that_is_not_available_is_refused(common, optimizer, said):
    with pytest.raises(ConfigurationError, match=f"(?s){said}"):
        trained(common, optimizer)


@needs("torch")
def test_master_cannot_hold_an_optimizer_of_a_framework():
    with pytest.raises(ConfigurationError, match=r"(?s)downpour updates .* on a master.*write algorithm: allreduce"):
        trained(TORCH, "nadam", algorithm="downpour")


PROGRAM = f"""
import json
import numpy as np
from mpi4py import MPI
from mpi_learn import train
from mpi_learn.errors import UserError
from tests.mpi_learn.models_for_tests import line

world, found = MPI.COMM_WORLD, {{}}
for name in ("allreduce", "clusters", "easgd"):
    algorithm = {{"name": name}} | ({{"size": 1}} if name == "clusters" else {{}})
    training = {TORCH!r} | {{"algorithm": algorithm, "optimizer": "nadam", "batch_size": 32}}
    result = train(training, world, data=line())
    everywhere = world.gather(result.history["val_loss"])
    found[name] = everywhere
    resumed = training | {{"checkpoint": {{"path": f"c-{{name}}"}}}}
    train(resumed | {{"epochs": 3}}, world, data=line())
    found[f"{{name}} resumed"] = train(resumed, world, data=line()).history
    found[f"{{name}} whole"] = result.history
    try:
        train(training | {{"optimizer": "torch.optim:LBFGS"}}, world, data=line())
    except UserError as error:
        found[f"{{name}} refused"] = world.gather(str(error))
if world.rank == 0:
    print(json.dumps(found))
"""


@needs("torch")
@pytest.mark.mpi
def test_two_ranks_agree_resume_and_are_refused_together(tmp_path):
    done = in_world(2, "-c", PROGRAM, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    alone = trained(TORCH | {"batch_size": 64}, "nadam").history["val_loss"]
    np.testing.assert_allclose(found["allreduce"], [alone, alone], rtol=1e-4)
    for name in ("allreduce", "clusters", "easgd"):
        assert found[name][0] == found[name][1]
        assert len(set(found[f"{name} refused"])) == 1
        if name != "clusters":  # the exchanges of clusters depend on time
            assert found[f"{name} resumed"] == found[f"{name} whole"]
