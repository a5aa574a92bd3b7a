"""The models of the experiments: a recurrent jet tagger, and a convolutional network for CIFAR-10."""

import keras
from keras import layers


def gru(units: int = 64) -> keras.Model:
    """A gated recurrent unit over the particles of a jet (n, particles, 4)."""
    inputs = keras.Input((None, 4))
    state = layers.GRU(units)(layers.BatchNormalization()(inputs))
    return keras.Model(inputs, layers.Dense(2, activation="softmax")(state))


def cnn() -> keras.Model:
    """The CIFAR-10 network of the Keras examples, 1.25 million weights."""
    return keras.Sequential(
        [
            keras.Input((32, 32, 3)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(32, 3, padding="same", activation="relu"),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Dropout(0.25),
            layers.Conv2D(64, 3, padding="same", activation="relu"),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(512, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(10, activation="softmax"),
        ]
    )
