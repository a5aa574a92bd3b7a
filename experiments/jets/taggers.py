"""Jet taggers in Keras: recurrent, convolutional in one and two dimensions, a set network, and dense layers.

The inputs are made by `inputs.py`; every network ends in one probability per class.
"""

import keras
from keras import layers, ops

N_PIXELS = 24


def build_gru(units: int = 64, dense: int = 32, dropout: float = 0.1, classes: int = 2) -> keras.Model:
    """A gated recurrent unit that reads the particles, the hardest last (Cho et al., arXiv:1406.1078).

    Args:
        units: The size of its state.
        dense: Neurons between the last state and the classes.
        dropout: The fraction of the last state that is left out in training.
        classes: The number of classes.
    """
    inputs = keras.Input((None, 6))
    state = layers.GRU(units, go_backwards=True)(inputs)
    return _classifier(inputs, state, dense, dropout, classes)


def build_conv1d(
    filters: int = 32, kernel: int = 3, depth: int = 2, dense: int = 64, dropout: float = 0.1, classes: int = 2
) -> keras.Model:
    """Convolutions along the particles in the order of their momentum.

    Args:
        filters: Of the first convolution; each further one has twice as many.
        kernel: How many neighbouring particles a filter sees.
        depth: The number of convolutions, each followed by a pooling of pairs.
        dense, dropout, classes: As in `build_gru`.
    """
    inputs = x = keras.Input((None, 6))
    for i in range(depth):
        x = layers.Conv1D(filters * 2**i, kernel, padding="same", activation="relu")(x)
        x = layers.AveragePooling1D(2, padding="same")(x)
    pooled = layers.Concatenate()([layers.GlobalAveragePooling1D()(x), layers.GlobalMaxPooling1D()(x)])
    return _classifier(inputs, pooled, dense, dropout, classes)


def build_conv2d(
    filters: int = 16, kernel: int = 5, depth: int = 2, dense: int = 64, dropout: float = 0.1, classes: int = 2
) -> keras.Model:
    """Convolutions over jet images (de Oliveira et al., arXiv:1511.05190).

    Args:
        filters: Of the first convolution; each further one has twice as many.
        kernel: The width of a filter in pixels.
        depth: The number of convolutions, each followed by a pooling of 2 × 2 pixels.
        dense, dropout, classes: As in `build_gru`.
    """
    inputs = x = keras.Input((N_PIXELS, N_PIXELS, 2))
    for i in range(depth):
        x = layers.Conv2D(filters * 2**i, kernel, padding="same", activation="relu")(x)
        x = layers.MaxPooling2D()(x)
    return _classifier(inputs, layers.Flatten()(x), dense, dropout, classes)


def build_deep_sets(
    units: int = 64, latent: int = 64, depth: int = 2, dense: int = 64, dropout: float = 0.1, classes: int = 2
) -> keras.Model:
    """A particle-flow network: F(Σ Φ(particle)), the same for any order (Komiske, Metodiev & Thaler, arXiv:1810.05165).

    Args:
        units: Neurons in each layer of Φ but the last.
        latent: Outputs of Φ, which are summed over the particles.
        depth: The number of layers of Φ before the last.
        dense: Neurons in the layer of F.
        dropout, classes: As in `build_gru`.
    """
    inputs = x = keras.Input((None, 6))
    is_particle = ops.cast(inputs[:, :, :1] > 0, "float32")
    for _ in range(depth):
        x = layers.Dense(units, activation="relu")(x)
    x = layers.Dense(latent, activation="relu")(x)
    return _classifier(inputs, ops.sum(x * is_particle, axis=1) / 10, dense, dropout, classes)


def build_dense(units: int = 64, depth: int = 2, dropout: float = 0.1, classes: int = 2) -> keras.Model:
    """Dense layers for the 21 standardised features of jets in dijet events.

    Args:
        units: Neurons in each layer.
        depth: The number of layers.
        dropout, classes: As in `build_gru`.
    """
    inputs = x = keras.Input((21,))
    for _ in range(depth - 1):
        x = layers.Dense(units, activation="relu")(x)
    return _classifier(inputs, x, units, dropout, classes)


def _classifier(inputs, x, dense: int, dropout: float, classes: int) -> keras.Model:
    x = layers.Dropout(dropout)(layers.Dense(dense, activation="relu")(x))
    return keras.Model(inputs, layers.Dense(classes, activation="softmax")(x))
