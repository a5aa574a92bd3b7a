"""Figures of merit of jet taggers: area under the ROC curve, and background rejection at 50 % signal efficiency.

With two classes quark jets (1) are the signal and gluon jets (0) the background. With five the heavy particles W, Z and
top (2, 3, 4) are the signal, and jets of gluons and quarks the background.
"""

import numpy as np
from scipy.special import softmax
from scipy.stats import rankdata


def auc(result) -> float:
    """The area under the ROC curve on the validation data of a training."""
    return area_under_curve(*scores(result))


def background_rejection(result) -> float:
    """One over the fraction of background above the cut that half of the signal passes, on the validation data."""
    return rejection(*scores(result))


def scores(result) -> tuple[np.ndarray, np.ndarray]:
    """The score of each validation sample, which is large for signal, and whether it is signal."""
    x, y = result.validation
    return signal_score(probabilities(result.model, x)), is_signal(np.ravel(y), n_classes(y))


def probabilities(model, x: np.ndarray, batch_size: int = 1024) -> np.ndarray:
    """The class probabilities that a Keras or PyTorch model gives, shape (n, classes)."""
    if hasattr(model, "predict"):
        return model.predict(x, batch_size=batch_size, verbose=0)
    import torch

    model.eval()
    with torch.no_grad():
        batches = [model(batch) for batch in torch.as_tensor(x).split(batch_size)]
    return softmax(torch.cat(batches).numpy(), axis=1)


def signal_score(found: np.ndarray) -> np.ndarray:
    """The logarithm of the ratio of signal to background probability."""
    signal = is_signal(np.arange(found.shape[1]), found.shape[1])
    tiny = np.finfo(np.float32).tiny
    return np.log(found[:, signal].sum(1) + tiny) - np.log(found[:, ~signal].sum(1) + tiny)


def is_signal(y: np.ndarray, classes: int) -> np.ndarray:
    """Whether a class is signal."""
    return y >= (1 if classes == 2 else 2)


def n_classes(y: np.ndarray) -> int:
    """2 or 5, from the labels."""
    return 2 if np.max(y) < 2 else 5


def area_under_curve(score: np.ndarray, signal: np.ndarray) -> float:
    """The probability that a signal sample has a larger score than a background sample; ties count half."""
    n_signal = np.count_nonzero(signal)
    n_background = len(signal) - n_signal
    ranks = rankdata(score)[signal]  # Mann & Whitney 1947
    return float((ranks.sum() - n_signal * (n_signal + 1) / 2) / (n_signal * n_background))


def rejection(score: np.ndarray, signal: np.ndarray, efficiency: float = 0.5) -> float:
    """One over the fraction of background above the cut that the fraction `efficiency` of the signal passes.

    If no background passes, one sample is counted: the figure stays finite.
    """
    cut = np.quantile(score[signal], 1 - efficiency, method="higher")
    passed = max(1, np.count_nonzero(score[~signal] >= cut))
    return float(np.count_nonzero(~signal) / passed)
