"""Muon for the matrices of the hidden layers, Adam for the other parameters."""

from __future__ import annotations

from collections.abc import Iterable

import torch


class MuonAdam(torch.optim.Optimizer):
    """PyTorch's Muon and Adam as one optimizer, with the same learning rate.

    Muon's steps are scaled to the root mean square of those of Adam (``match_rms_adamw``).

    Args:
        parameters: Those of an MLP, the last layer at the end.
        learning_rate: That of both.
        ns_steps: Newton-Schulz iterations of Muon.
    """

    def __init__(self, parameters: Iterable[torch.nn.Parameter], learning_rate: float, ns_steps: int = 5) -> None:
        *hidden, weight, bias = parameters
        matrices = [one for one in hidden if one.ndim == 2]
        others = [one for one in hidden if one.ndim == 1] + [weight, bias]
        options = {"weight_decay": 0, "ns_steps": ns_steps, "adjust_lr_fn": "match_rms_adamw"}
        muon = torch.optim.Muon(matrices, learning_rate, **options)
        self._parts = [muon, torch.optim.Adam(others, learning_rate, eps=1e-7)]
        super().__init__([group for part in self._parts for group in part.param_groups], {})
        for part in self._parts:
            part.state = self.state

    def step(self, closure: None = None) -> None:
        """One step of both."""
        for part in self._parts:
            part.step()
