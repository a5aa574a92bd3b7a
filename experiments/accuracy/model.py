"""The network of the accuracy experiment: conv32-pool-conv64-pool-dense250-10, 421,576 parameters."""


def cnn():
    """For images of 28×28 pixels, 0 to 255."""
    import keras

    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((28, 28, 1)),
            layers.Rescaling(1 / 255),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(250, "relu"),
            layers.Dense(10, "softmax"),
        ]
    )
