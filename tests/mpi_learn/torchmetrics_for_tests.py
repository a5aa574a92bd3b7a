"""A metric of torchmetrics that a user has written."""

from __future__ import annotations

import torch
import torchmetrics


class MeanOutput(torchmetrics.Metric):
    """The mean of the outputs. The result is a number of Python."""

    def __init__(self):
        super().__init__()
        for name in ("total", "count"):
            self.add_state(name, default=torch.tensor(0.0), dist_reduce_fx="sum")

    def update(self, outputs, targets):
        self.total += outputs.sum()
        self.count += outputs.numel()

    def compute(self):
        return self.total.item() / max(self.count.item(), 1.0)
