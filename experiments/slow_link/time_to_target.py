"""Figure of merit of `search.yaml`: the time of training until the validation loss has reached a target."""

import math
from itertools import pairwise

TARGET = 0.2
UNTRAINED = math.log(10)
"""The loss of ten equal probabilities."""


def seconds_to_target(result) -> float:
    """The time in seconds, interpolated between epochs. Losses fall exponentially in between.

    If no epoch reaches the target, the time of the whole training is multiplied by the ratio of its smallest loss to
    the target, so that the search can compare such trainings, too. Without a finite loss it is infinite.
    """
    losses = [UNTRAINED, *result.history["val_loss"]]
    epoch_s = result.seconds / result.epochs
    for number, (before, after) in enumerate(pairwise(losses)):
        if after <= TARGET:
            return epoch_s * (number + math.log(before / TARGET) / math.log(before / after))
    smallest = min((loss for loss in losses[1:] if math.isfinite(loss)), default=math.inf)
    return result.seconds * smallest / TARGET
