"""``mpi-learn`` as users type it: exit status, one message, files."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import pytest

from mpi_learn.cli.commands import main
from tests.in_process import in_process
from tests.mpi_learn.models_for_tests import digits
from tests.mpirun import patient_s
from tests.mpirun import run as run_process
from tests.optional_packages import needs
from tests.world import in_world

MODELS = Path(__file__).parent / "models_for_tests.py"
TRAINING = """
model: models.py:build_model
parameters: {units: 16}
data: {train: [digits.h5], validation_fraction: 0.2, features: X, labels: y}
loss: sparse_categorical_crossentropy
metrics: [accuracy]
batch_size: 64
epochs: 2
"""


TORCH = """
def build_model():
    import torch

    return torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 10))
"""


@pytest.fixture
def torch_folder(folder):
    """With a PyTorch model, which ranks of their own load in a third of the time."""
    (folder / "models.py").write_text(TORCH)
    text = TRAINING.replace("{units: 16}", "{}").replace("sparse_categorical_crossentropy", "cross_entropy")
    (folder / "training.yaml").write_text(text)
    return folder


@pytest.fixture
def folder(tmp_path):
    samples = digits().training
    with h5py.File(tmp_path / "digits.h5", "w") as file:
        file["X"], file["y"] = samples.x[0], samples.y[0]
    (tmp_path / "models.py").write_text(MODELS.read_text())
    (tmp_path / "training.yaml").write_text(TRAINING)
    return tmp_path


def run(folder, *arguments):
    """``mpi-learn ARGUMENTS`` in this process, which loads TensorFlow once for all of them."""
    return in_process(*arguments, cwd=folder, main=main)


def start(folder, *arguments):
    """``mpi-learn ARGUMENTS`` in a process of its own."""
    return run_process([sys.executable, "-m", "mpi_learn", *arguments], cwd=folder)


@needs("keras")
def test_train_prints_a_line_per_epoch_and_saves_a_model_that_can_be_trained_again(folder):
    (folder / "training.yaml").write_text(f"{TRAINING}validation: {{every: 2}}\n")
    done = start(folder, "train", "training.yaml", "--output", "out")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[1] for line in lines[:2]] == ["1/2", "2/2"]
    assert "val_accuracy" in lines[1]
    assert "samples/s" in lines[0]
    assert done.stderr == ""
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["history.json", "model.keras", "training.yaml"]
    history = json.loads((folder / "out" / "history.json").read_text(), parse_constant=pytest.fail)  # NaN is no JSON
    assert [value is None for value in history["val_loss"]] == [True, False]
    assert run(folder / "out", "train", "training.yaml", "--epochs", "1").returncode == 0


CHECKED = [
    "model models.py:build_model, Keras",
    "parameters 1,210 in 4 trainable arrays",
    "inputs (64,) float32",
    "labels () int64",
    "weights per sample, ",
    "outputs (10,) float32",
    "training 1,438 samples, 23 steps of 64 per epoch on one rank",
    "validation 359 samples",
    "one batch loss 2.",
    "gradient norm ",
    "saving as a whole",
    "memory ",
    "training.yaml: valid",
]


@needs("keras")
def test_check_runs_one_batch_in_one_process_and_trains_nothing(folder):
    changes = {"features: X": "features: X, class_weight: balanced", "epochs: 2": "epochs: 2\nalgorithm: downpour"}
    text = TRAINING
    for old, new in changes.items():
        text = text.replace(old, new)
    (folder / "training.yaml").write_text(text)
    before = sorted(folder.iterdir())
    done = run(folder, "check", "training.yaml")
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()).replace(f"{folder}/", "") for line in done.stdout.splitlines()]
    assert [line[: len(start)] for line, start in zip(lines, CHECKED, strict=True)] == CHECKED
    assert [one for one in sorted(folder.iterdir()) if one.name != "__pycache__"] == before


@needs("torch")
def test_check_prints_the_gradient_of_the_mean_loss_also_with_weights_of_classes(torch_folder):
    """PyTorch divides by the sum of the weights, so that equal weights change nothing."""
    norms = []
    for weight in (1, 1000):
        loss = f"loss: {{name: cross_entropy, weight: {[weight] * 10}}}"
        text = (torch_folder / "training.yaml").read_text()
        (torch_folder / "training.yaml").write_text(re.sub("loss: .*", loss, text))
        done = run(torch_folder, "check", "training.yaml")
        assert done.returncode == 0, done.stderr
        norms.append(float(re.search(r"norm (\S+),", done.stdout)[1]))
    assert norms[1] == pytest.approx(norms[0], rel=1e-3)


@needs("keras")
def test_check_refuses_a_loss_that_is_not_finite(folder):
    (folder / "models.py").write_text(
        MODELS.read_text() + "\n\ndef bad(labels, outputs):\n    return 0 / (outputs * 0)\n"
    )
    (folder / "training.yaml").write_text(TRAINING.replace("sparse_categorical_crossentropy", "models.py:bad"))
    done = run(folder, "check", "training.yaml")
    assert done.returncode == 2, done.stdout
    assert "the loss of the first batch is nan" in done.stderr
    assert "Traceback" not in done.stderr


@needs("torch")
@pytest.mark.parametrize("command", ["check", "train"])
@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("digits.h5", "digit.h5", "data.train: {folder}/digit.h5: there is no such file"),
        ("labels: y", "labels: z", "data.labels: {folder}/digits.h5: z: there is no 'z' in this HDF5 file"),
        ("digits.h5", "models.py", "data.train: {folder}/models.py: the suffix belongs to no known format"),
        ("loss: cross_entropy", "loss: mse", "data.labels: "),
    ],
)
def test_error_about_data_names_the_configuration_and_its_key(command, old, new, place, torch_folder):
    text = (torch_folder / "training.yaml").read_text()
    (torch_folder / "training.yaml").write_text(text.replace(old, new))
    done = run(torch_folder, command, "training.yaml")
    assert done.returncode == 2
    assert done.stderr.startswith(f"mpi-learn: training.yaml: {place.format(folder=torch_folder)}")


UNSAVABLE = """

def build_unsavable(units=16):
    import keras

    class Custom(keras.layers.Layer):
        def __init__(self, units, function):
            super().__init__()
            self.inner, self.function = keras.layers.Dense(units), function

        def call(self, x):
            return self.function(self.inner(x))

    layers = [keras.layers.Input((64,)), Custom(units, lambda x: keras.ops.relu(x)), keras.layers.Dense(10, "softmax")]
    return keras.Sequential(layers)
"""


@pytest.mark.mpi
def test_model_that_cannot_be_saved_is_announced_and_its_weights_are_saved(folder):
    (folder / "models.py").write_text(MODELS.read_text() + UNSAVABLE)
    (folder / "training.yaml").write_text(TRAINING.replace("build_model", "build_unsavable"))
    done = run(folder, "train", "training.yaml", "--output", "out")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("the model cannot be saved as a whole: NotImplementedError")
    assert [line.strip() for line in lines[2:5]] == [
        "from models import build_unsavable",
        "model = build_unsavable(units=16)",
        "model.load_weights('model.weights.h5')",
    ]
    assert lines[5].startswith("epoch 1/2")
    assert (folder / "out" / "history.json").exists()
    loading = "\n".join(line.strip() for line in lines[2:5])
    beside = "import os, sys; sys.path.append(os.getcwd()); os.chdir('out')"
    loaded = in_world(1, "-c", f"{beside}\n{loading}\nprint(len(model.get_weights()))", cwd=folder)
    assert loaded.stdout.strip() == "4", loaded.stderr


@needs("keras")
def test_failure_of_the_save_after_the_training_is_status_1_with_weights_and_history_on_disk(folder):
    (folder / "training.yaml").write_text(TRAINING.replace("epochs: 2", "epochs: 1"))
    (folder / "out" / "model.keras").mkdir(parents=True)  # in the way of the file
    (folder / "out" / "model.keras" / "something").touch()
    done = run(folder, "train", "training.yaml", "--output", "out")
    assert done.returncode == 1
    assert "the model could not be saved: IsADirectoryError" in done.stderr
    assert "saved out/model.weights.h5, the weights alone; to load them:" in done.stderr
    assert "Traceback" not in done.stderr
    assert {"history.json", "model.weights.h5"} <= {path.name for path in (folder / "out").iterdir()}


@needs("torch")
def test_a_training_continues_if_nothing_can_be_printed(torch_folder):
    command = [sys.executable, "-m", "mpi_learn", "train", "training.yaml", "--output", "out"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # as of users
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = subprocess.run(command, cwd=torch_folder, stdout=full, timeout=patient_s(60), env=buffered)
    assert done.returncode == 0
    assert (torch_folder / "out" / "model.pt").exists()


@needs("torch")
@pytest.mark.mpi
def test_n_starts_mpirun_itself_and_one_rank_speaks(torch_folder):
    done = start(torch_folder, "train", "training.yaml", "-n", "2")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["epoch", "epoch", "2", "the"]


BAD = {
    "unknown key": ("batch_size: 64", "batchsize: 64", "batchsize: unknown key"),
    "missing data": ("digits.h5", "digit.h5", "digit.h5"),
    "missing model": ("models.py", "model.py", "did you mean models.py"),
    "missing function": ("build_model", "build_modl", "did you mean build_model"),
    "label outside range": ("{units: 16}", "{units: 16, classes: 4}", "outside of the model's 4 classes"),
    "no such dataset": ("labels: y", "labels: z", "there is no 'z' in this HDF5 file\n  → there are: X, y"),
}


@needs("keras")
@pytest.mark.parametrize(("old", "new", "said"), BAD.values(), ids=BAD)
def test_bad_input_is_status_2_and_one_message(folder, old, new, said):
    (folder / "training.yaml").write_text(TRAINING.replace(old, new))
    done = run(folder, "train", "training.yaml")
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("mpi-learn:") == 1
    assert "Traceback" not in done.stderr


@needs("keras")
@pytest.mark.parametrize(
    ("line", "where"),
    [("", "--output"), ("trace: file/traces", "trace"), ("checkpoint: {path: file/checkpoints}", "checkpoint.path")],
)
def test_an_impossible_folder_is_reported_before_the_training(folder, line, where):
    (folder / "file").touch()
    (folder / "training.yaml").write_text(f"{TRAINING}{line}\n")
    done = run(folder, "train", "training.yaml", *(() if line else ("--output", "file/out")))
    assert done.returncode == 2
    assert where in done.stderr
    assert "the folder is not writable" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_debug_shows_the_traceback(folder):
    (folder / "training.yaml").write_text(TRAINING.replace("batch_size", "batchsize"))
    done = run(folder, "train", "training.yaml", "--debug")
    assert done.returncode == 2
    assert "Traceback" in done.stderr


@pytest.mark.mpi
@pytest.mark.parametrize("name", ["unknown key", "label outside range"])
def test_bad_input_is_one_message_on_several_ranks(folder, name):
    old, new, said = BAD[name]
    (folder / "training.yaml").write_text(TRAINING.replace(old, new))
    done = in_world(3, "-m", "mpi_learn", "train", "training.yaml", cwd=folder)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.count("mpi-learn:") == 1
    assert "Traceback" not in done.stderr


FAILING_LATER = """

def bad(labels, outputs, calls=[]):
    import tensorflow as tf

    def counted(outputs):
        calls.append(1)
        return outputs[:, 0] if len(calls) < 100 else 1 / 0

    return tf.ensure_shape(tf.py_function(counted, [outputs], tf.float32), [None])
"""


@pytest.mark.mpi
def test_failed_training_is_status_1_and_names_the_rank(folder):
    (folder / "models.py").write_text(MODELS.read_text() + FAILING_LATER)
    text = TRAINING.replace("sparse_categorical_crossentropy", "models.py:bad").replace("epochs: 2", "epochs: 50")
    (folder / "training.yaml").write_text(text)
    done = in_world(2, "-m", "mpi_learn", "train", "training.yaml", cwd=folder)
    assert done.returncode == 1
    assert "training failed on rank 0" in done.stderr
    assert "ZeroDivisionError" in done.stderr
    assert "models.py" in done.stderr  # in the traceback of that rank
    assert done.stderr.count("mpi-learn:") == 1


@needs("torch")
@pytest.mark.mpi
def test_a_lost_rank_is_named_in_one_message(torch_folder):
    dying = "os.environ['OMPI_COMM_WORLD_RANK'] == '1' and os.kill(os.getpid(), signal.SIGKILL)"
    source = TORCH.replace("    import torch\n", f"    import os, signal, torch\n    {dying}\n")
    (torch_folder / "models.py").write_text(source)
    done = start(torch_folder, "train", "training.yaml", "-n", "3")
    assert done.returncode == 1
    assert "mpi-learn: rank 1 was lost" in done.stderr
    assert done.stderr.count("mpi-learn:") == 1
    assert "Traceback" not in done.stderr


@needs("torch")
@pytest.mark.mpi
def test_ctrl_c_ends_a_training_without_checkpoints_at_once(torch_folder):
    configure_endless(torch_folder)
    done, _ = interrupted(torch_folder, signal.SIGINT, "-n", "2")
    assert done == 130


@needs("torch")
@pytest.mark.mpi
def test_a_training_that_is_asked_to_end_saves_a_checkpoint_from_which_it_continues(torch_folder):
    folder = torch_folder
    endless = configure_endless(folder, "checkpoint: {path: saved, every: 1000}\n")
    status, out = interrupted(folder, signal.SIGTERM, "-n", "2")
    assert status == 75
    n_epochs = int(re.search(r"ended after epoch (\d+) of 100000", out)[1])
    assert "the same command continues" in out
    (folder / "training.yaml").write_text(endless.replace("epochs: 100000", f"epochs: {n_epochs + 1}"))
    done = run(folder, "train", "training.yaml")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [words[1] for words in lines if words[0] == "epoch"] == [f"{n_epochs + 1}/{n_epochs + 1}"]


def configure_endless(folder, more="") -> str:
    """Changes the training.yaml to a training that does not end by itself; returns the text."""
    file = folder / "training.yaml"
    file.write_text(file.read_text().replace("epochs: 2", "epochs: 100000") + more)
    return file.read_text()


def interrupted(folder, number, *arguments) -> tuple[int, str]:
    """The exit status and output of a training that gets a signal after its first epoch."""
    command = [sys.executable, "-m", "mpi_learn", "train", "training.yaml", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)
    assert process.stdout.readline().startswith("epoch")
    process.send_signal(number)
    try:
        out, _ = process.communicate(timeout=patient_s(30))
    finally:
        process.kill()
    return process.returncode, out


def test_name_of_a_data_set_is_checked_before_the_file_to_write(folder):
    done = run(folder, "prepare", "mnits")
    assert done.returncode == 2
    assert "there is no data set 'mnits'" in done.stderr
    assert "did you mean mnist?" in done.stderr


def test_usage_errors_are_status_2(folder):
    assert run(folder, "trian").returncode == 2
    assert run(folder, "train").returncode == 2
    assert run(folder, "train", "nowhere.yaml").returncode == 2


def test_n_under_mpirun_is_one_message(folder, monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    done = run(folder, "train", "training.yaml", "-n", "2")
    assert done.returncode == 2
    assert "drop -n, or drop mpirun" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"SLURM_NTASKS": "5"}, "this Slurm job has 5 tasks"),
        ({"SLURM_STEP_NUM_TASKS": "5", "SLURM_PROCID": "0"}, "srun started 5 processes"),
        ({"SLURM_STEP_NUM_TASKS": "5", "SLURM_PROCID": "3"}, ""),
    ],
)
def test_slurm_tasks_that_mpi_does_not_connect_are_refused_in_one_message(folder, monkeypatch, variables, said):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = run(folder, "train", "training.yaml")
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert done.stderr.count("mpi-learn: ") == bool(said)


@needs("torch")
@pytest.mark.parametrize(("every", "is_said"), [(1, True), (2, False)])
def test_a_validation_in_a_thread_for_which_every_epoch_waits_is_reported(torch_folder, every, is_said):
    file = torch_folder / "training.yaml"
    file.write_text(f"{file.read_text()}validation: {{mode: thread}}\ncheckpoint: {{path: saved, every: {every}}}\n")
    done = run(torch_folder, "train", "training.yaml")
    assert ("has no effect: every epoch waits" in done.stdout) is is_said


@needs("torch")
def test_a_checkpoint_that_leaves_no_epoch_to_train_is_reported(torch_folder):
    def train_with(checkpoint):
        (torch_folder / "checkpointed.yaml").write_text(f"{(torch_folder / 'training.yaml').read_text()}{checkpoint}")
        return run(torch_folder, "train", "checkpointed.yaml").stdout

    said = "no epoch was trained: the checkpoint has 2 epochs, and `epochs: 2` includes them"
    assert said not in train_with("checkpoint: {path: first}")
    assert said in train_with("checkpoint: {path: first}")
    assert said in train_with("checkpoint: {path: second, start_from: first}")
    assert said not in train_with("checkpoint: {path: third}")
