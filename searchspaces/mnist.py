"""The model of mnist.yaml: two convolutions and a dense layer."""

import keras
from keras import layers


def build_model(
    filters: int = 32, kernel: int = 3, units: int = 250, dropout: float = 0.3, normalize: bool = False
) -> keras.Model:
    """A classifier of images of 28×28 pixels in 0 … 255 into ten digits.

    Args:
        filters: Number of filters of the first convolution; the second has twice as many.
        kernel: Width of the convolutions, in pixels.
        units: Number of neurons in the dense layer.
        dropout: Fraction of these neurons that are dropped in a training step.
        normalize: Whether batch normalisation follows each convolution.
    """
    model = keras.Sequential([keras.Input((28, 28, 1)), layers.Rescaling(1 / 255)])
    for n_filters in (filters, 2 * filters):
        model.add(layers.Conv2D(n_filters, kernel, activation="relu"))
        if normalize:
            model.add(layers.BatchNormalization())
        model.add(layers.MaxPooling2D())
    model.add(layers.Flatten())
    model.add(layers.Dense(units, activation="relu"))
    model.add(layers.Dropout(dropout))
    model.add(layers.Dense(10, activation="softmax"))
    return model
