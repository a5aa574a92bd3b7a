"""The same trainings by a plain loop of PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.mpi_learn.conformance.rows import BATCH, EPOCHS, RATE, SEED, Arrays, Row


def by_the_framework(row: Row, module: Any, training: Arrays, validation: Arrays) -> dict[str, Any]:
    torch.manual_seed(SEED)
    model = getattr(module, row.model)(**row.parameters)
    torch.manual_seed(SEED * 1_000_003)
    loss_of, n = row.fit(module), len(training["X"])
    trained = [one for one in model.parameters() if one.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=RATE) if row.optimizer is None else row.optimizer(module, trained)
    drop_last = row.data.get("drop_last", False)
    history: dict[str, list[float]] = {"loss": [], "val_loss": []}
    for _ in range(EPOCHS):
        total = seen = 0.0
        model.train()
        for first in range(0, n - BATCH + 1 if drop_last else n, BATCH):
            batch = _tensors(training, slice(first, first + BATCH))
            optimizer.zero_grad()
            loss = loss_of(_called(model, row.inputs(batch)), batch)
            loss.backward()
            optimizer.step()
            size = float(row.weight(batch))
            total, seen = total + size * loss.item(), seen + size
        history["loss"].append(total / seen)
        model.eval()
        with torch.no_grad():
            batch = _tensors(validation, slice(None))
            history["val_loss"].append(loss_of(_called(model, row.inputs(batch)), batch).item())
    for name, value in row.options(_with_outputs(model, row, validation)).items():
        history[f"val_{name}"] = [None] * (EPOCHS - 1) + [float(value)]
    return {"history": history, "weights": weights(model)}


def _with_outputs(model: Any, row: Row, validation: Arrays) -> dict[str, Any]:
    with torch.no_grad():
        batch = _tensors(validation, slice(None))
        return batch | {"outputs": _called(model, row.inputs(batch))}


def _tensors(arrays: Arrays, part: slice) -> dict[str, torch.Tensor]:
    return {
        name: torch.from_numpy(one[part].astype(np.float32) if one.dtype == np.float64 else one[part])
        for name, one in arrays.items()
    }


def _called(model: Any, x: Any) -> Any:
    return model(*x) if isinstance(x, list) else model(**x) if _is_by_keyword(model, x) else model(x)


def _is_by_keyword(model: Any, x: Any) -> bool:
    return isinstance(x, dict) and type(model).__name__ == "ByKeyword"


def weights(model: Any) -> list[float]:
    state = (torch.view_as_real(one) if one.is_complex() else one for one in model.state_dict().values())
    found = np.concatenate([one.detach().to_dense().numpy().ravel() for one in state]).astype(float)
    return np.nan_to_num(found, neginf=-1e9).tolist()


def predicted(model: Any, x: Any) -> list[np.ndarray]:
    model.eval()
    with torch.no_grad():
        found = _called(model, _from_numpy(x))
    found = list(found.values()) if isinstance(found, dict) else found.logits if hasattr(found, "logits") else found
    return [one.detach().numpy() for one in (found if isinstance(found, list | tuple) else [found])]


def _from_numpy(x: Any) -> Any:
    if isinstance(x, dict):
        return _tensors(x, slice(None))
    if isinstance(x, list):
        return [torch.from_numpy(one) for one in x]
    return torch.from_numpy(x)


def loaded(file: Path, build: Any, x: Any) -> Any:
    model = build()
    model.load_state_dict(torch.load(file))
    return model
