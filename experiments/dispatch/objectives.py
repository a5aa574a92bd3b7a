"""Objectives for the measurements of dispatch."""

import time


def nothing(trial):
    return trial.parameters["a"]


def one_second(trial):
    time.sleep(1.0)
    return trial.parameters["a"]


def one_long_trial(trial):
    """All blocks but one have nothing to do for half a minute."""
    time.sleep(30.0 if trial.number == 0 else 0.0)
    return trial.parameters["a"]
