"""Prepares Keras and PyTorch for a model: threads, random seeds, precision, and a quiet terminal.

The framework of a model is known only when the user's function has returned it, but threads and seeds must be set
before the function uses the framework. Frameworks that are loaded are prepared before the function is called, the
others as soon as anything imports them.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import numpy as np

from mpi_learn.environment import prepare_environment, quiet_stderr, reuse_freed_memory
from mpi_learn.errors import ConfigurationError, ModelError

NAMES = {"keras": "Keras", "torch": "PyTorch"}
EXTRAS = {"keras": "cpu", "torch": "torch"}

Prepare = Callable[[ModuleType], None]


@contextmanager
def prepared(seed: int, precision: str) -> Iterator[None]:
    """In the block, initial weights are drawn from `seed`, and new Keras layers compute in `precision`."""
    n_threads = prepare_environment()  # TensorFlow reads its numbers of threads from there
    seed_python(seed)
    before: list[Any] = []

    def prepare_tensorflow(tensorflow: Any) -> None:
        tensorflow.zeros(1)  # its first use writes to the terminal

    def prepare_keras(keras: Any) -> None:
        keras.backend.clear_session(free_memory=False)  # KerasNetwork.close has freed it
        keras.utils.set_random_seed(seed)
        before.append(keras.config.dtype_policy())
        keras.config.set_dtype_policy(precision)

    def prepare_torch(torch: Any) -> None:
        reuse_freed_memory()
        torch.set_num_threads(n_threads)
        torch.manual_seed(seed)

    steps: dict[str, Prepare] = {
        "tensorflow": prepare_tensorflow,
        "keras": prepare_keras,
        "torch": prepare_torch,
    }
    finder = _PreparingFinder({name: step for name, step in steps.items() if name not in sys.modules})
    for name in [name for name in steps if name in sys.modules]:
        with quiet_stderr() if name == "tensorflow" else nullcontext():
            steps[name](sys.modules[name])
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        if before:
            sys.modules["keras"].config.set_dtype_policy(before[0])


def seed_python(seed: int) -> None:
    """Seeds the global generators of Python and NumPy, which models may use, e.g. for permutations of their inputs."""
    random.seed(seed)
    np.random.seed(seed % 2**32)


@contextmanager
def seeded_python(seed: int) -> Iterator[None]:
    """In the block, Python's and NumPy's global generators begin from `seed`; at its end, they continue as before."""
    before = random.getstate(), np.random.get_state()
    seed_python(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


class _PreparingFinder(MetaPathFinder):
    """Runs a step after the import of a module, and suppresses what TensorFlow writes to stderr meanwhile."""

    def __init__(self, steps: dict[str, Prepare]) -> None:
        self.steps = steps

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        step = self.steps.pop(name, None)  # without it, the other finders find the module
        if step is None:
            return None
        spec = importlib.util.find_spec(name)
        self.steps[name] = step  # for the import, because a program can look for a module without importing it
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def load_and_prepare(module: ModuleType) -> None:
            with quiet_stderr() if name == "tensorflow" else nullcontext():
                load(module)
                # A framework has a million objects, which garbage collection would visit after every model. Garbage of
                # the import is removed before, because its stack frames refer to the callers and their variables.
                gc.collect()
                gc.freeze()
                step(module)

        spec.loader.exec_module = load_and_prepare  # type: ignore[method-assign]  # of this one import
        return spec


def framework_of(model: Any) -> str | None:
    """``keras`` or ``torch`` if `model` is a model of that framework."""
    keras, torch = sys.modules.get("keras"), sys.modules.get("torch")
    if keras is not None and isinstance(model, keras.Layer):
        return "keras" if isinstance(model, keras.Model) else None  # on PyTorch, a layer is a `torch.nn.Module` too
    return "torch" if torch is not None and isinstance(model, torch.nn.Module) else None


def load_framework(name: str) -> Any:
    """The package of a framework.

    Raises:
        ModelError: It is not installed, or Keras runs neither on TensorFlow nor on PyTorch.
    """
    try:
        package = importlib.import_module(name)
    except ImportError as error:
        raise ModelError(f"{NAMES[name]} is needed: {error}", cure=f"pip install mpi-opt[{EXTRAS[name]}]") from error
    if name == "keras" and (backend := package.backend.backend()) not in ("tensorflow", "torch"):
        raise ModelError(f"Keras runs on {backend} here", cure="set KERAS_BACKEND to tensorflow or torch")
    return package


def runs_on_torch(model: Any) -> bool:
    """Whether `model` is a Keras model on the PyTorch backend of Keras."""
    return framework_of(model) == "keras" and bool(sys.modules["keras"].backend.backend() == "torch")


def without_tensorflow(what: str, where: str = "model", cure: str = "") -> ConfigurationError:
    """The error of `what` needs Keras on TensorFlow.

    Args:
        cure: What else can be done.
    """
    instead = "set KERAS_BACKEND to tensorflow"
    return ConfigurationError(
        f"with KERAS_BACKEND=torch, {what} is not available",
        where=where,
        cure=f"{cure}, or {instead}" if cure else instead,
    )
