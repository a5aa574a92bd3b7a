"""The model of digits.yaml: dense layers for images of 8×8 pixels."""

import keras


def build_model(units: int = 64, layers: int = 2, activation: str = "relu", dropout: float = 0.2) -> keras.Model:
    """A classifier of 64 pixels in [0, 1] into ten digits.

    Args:
        units: Neurons in each hidden layer.
        layers: Number of hidden layers.
        activation: Activation function of the hidden layers.
        dropout: Fraction of neurons that are dropped in a training step.
    """
    model = keras.Sequential([keras.Input((64,))])
    for _ in range(layers):
        model.add(keras.layers.Dense(units, activation=activation))
        model.add(keras.layers.Dropout(dropout))
    model.add(keras.layers.Dense(10, activation="softmax"))
    return model
