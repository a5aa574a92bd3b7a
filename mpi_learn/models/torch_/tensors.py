"""NumPy arrays as tensors of PyTorch on the device where it computes, and its random generators."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, cast

import numpy as np
import torch

from mpi_learn.data.samples.stored_samples import Selection, copied_rows
from mpi_learn.errors import ConfigurationError
from mpi_learn.flat_layout import FlatLayout, aligned_empty
from mpi_learn.models.configuration import Device
from mpi_learn.models.settings import Arrays
from mpi_learn.mpi.messaging import Pause

SIGNED = {np.dtype(np.uint16): np.int32, np.dtype(np.uint32): np.int64, np.dtype(np.uint64): np.int64}
"""Replacements of dtypes: PyTorch does not compute with unsigned integers of more than 8 bits."""
COPIED: dict[np.dtype, torch.dtype] = {
    np.dtype(name): getattr(torch, name)
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")
}
"""The dtypes that `page_locked_rows` copies by PyTorch."""
N_GPU_STATE = 16
"""Bytes of the state of the random generator of a GPU: a seed and an offset."""


_chosen: list[Device] = ["auto"]
"""The choice of the last `choose_device`."""


def choose_device(wanted: Device) -> None:
    """Chooses the device of all models that are built from now on.

    Raises:
        ConfigurationError: There is no such device.
    """
    if wanted == "cuda" and not torch.cuda.is_available():
        is_built = torch.version.cuda is not None
        raise ConfigurationError(
            "PyTorch finds no GPU" if is_built else "this PyTorch was built without CUDA",
            where="device",
            cure="write device: auto, or "
            + ("check nvidia-smi and CUDA_VISIBLE_DEVICES" if is_built else "install PyTorch with CUDA"),
        )
    _chosen[:] = [wanted]


def device() -> torch.device:
    """The chosen device: with ``auto`` the GPU of this rank if PyTorch finds one, else the CPU.

    `choose_gpu` leaves each rank one GPU of its host.
    """
    return _device_of(_chosen[0])


@cache
def _device_of(wanted: Device) -> torch.device:
    return torch.device("cuda" if wanted != "cpu" and torch.cuda.is_available() else "cpu")


def autocast(precision: str) -> AbstractContextManager[None]:
    """In the block, modules compute in the configured precision."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device().type, getattr(torch, precision.removeprefix("mixed_")))


def shares_memory() -> bool:
    """Whether tensors on the device can be views of arrays: on the CPU."""
    return device().type == "cpu"


def on_device(array: np.ndarray) -> torch.Tensor:
    """An array as a tensor on the device: in the same memory on the CPU, a copy on a GPU."""
    tensor = torch.from_numpy(array)
    if shares_memory():
        return tensor
    if device().type == "cuda":  # from other memory, the copy would wait for the steps that are queued on the GPU
        return tensor.pin_memory().to(device(), non_blocking=True)
    return tensor.to(device(), copy=True)


def host_empty(n: int) -> np.ndarray:
    """An uninitialised vector of `n` float32. It is page-locked if the device is a GPU, which then copies it faster."""
    if device().type != "cuda":
        return aligned_empty(n)
    vector: np.ndarray = torch.empty(n, pin_memory=True).numpy()
    return vector


def page_locked_rows(array: np.ndarray, indices: Selection, dtype: np.dtype) -> np.ndarray:
    """As `copied_rows`, into page-locked memory, from which a GPU copies without a second copy on the host.

    The threads of PyTorch copy the rows. NumPy has one, which takes as long as several layers of a model. PyTorch
    uses the memory again when the copy to the GPU is done, for which it finds the memory by its address: the array that
    `on_device` receives must begin where this one does.
    """
    if array.dtype not in COPIED or dtype not in COPIED or not array.flags.carray:
        return copied_rows(array, indices, dtype)
    source = torch.from_numpy(array)
    chosen = source[indices] if isinstance(indices, slice) else torch.from_numpy(indices)
    shape = (len(chosen), *array.shape[1:])
    rows = torch.empty(shape, dtype=COPIED[dtype], pin_memory=device().type == "cuda")
    if isinstance(indices, slice):
        rows.copy_(chosen)
    elif array.dtype == dtype:
        torch.index_select(source, 0, chosen, out=rows)
    else:
        rows.copy_(source.index_select(0, chosen))
    copied: np.ndarray = rows.numpy()
    return copied


def send(array: np.ndarray, tensor: torch.Tensor) -> None:
    """Copies an array to its tensor of `on_device`, unless they share memory."""
    if not shares_memory():
        tensor.copy_(torch.from_numpy(array))


def fetch(tensor: torch.Tensor, array: np.ndarray) -> None:
    """Copies a tensor of `on_device` back to its array, unless they share memory."""
    if not shares_memory():
        torch.from_numpy(array).copy_(tensor)


def wait_for_device() -> None:
    """Waits until the device has made all steps, in Python, so that the wait can be interrupted."""
    if device().type == "cuda":
        done, pause = cast(Any, torch.cuda.Event)(), Pause(longest_s=1e-3)
        done.record()
        while not done.query():
            pause()


def tensors(arrays: Arrays) -> list[torch.Tensor]:
    """The arrays as tensors on the device: in the same memory if that is the CPU and PyTorch knows their dtype."""
    return [on_device(array.astype(SIGNED[array.dtype]) if array.dtype in SIGNED else array) for array in arrays]


def split(flat: torch.Tensor, layout: FlatLayout) -> list[torch.Tensor]:
    """The arrays of a layout as views of a flat tensor."""
    spans = zip(layout.bounds[:-1], layout.bounds[1:], layout.shapes, strict=True)
    return [flat[start:end].view(shape) for start, end, shape in spans]


def random_state() -> torch.Tensor:
    """The states of PyTorch's random generators, which all modules share, (n,) uint8.

    The state of the CPU is followed by that of the GPU, or by zeros: a checkpoint of a GPU can be read on the CPU.
    """
    zeros = torch.zeros(N_GPU_STATE, dtype=torch.uint8)
    return torch.cat([torch.get_rng_state(), zeros if device().type == "cpu" else torch.cuda.get_rng_state()])


def set_random_state(state: torch.Tensor) -> None:
    """Restores a `random_state`. A state without that of a GPU leaves the generator of the GPU as it is."""
    torch.set_rng_state(state[:-N_GPU_STATE])
    if device().type != "cpu" and state[-N_GPU_STATE:].any():
        torch.cuda.set_rng_state(state[-N_GPU_STATE:])
