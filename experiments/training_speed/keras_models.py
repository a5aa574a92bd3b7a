"""The three models of the benchmark in Keras."""


def mlp():
    import keras

    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((28, 28)),
            layers.Flatten(),
            layers.Dense(256, "relu"),
            layers.Dense(128, "relu"),
            layers.Dense(10, "softmax"),
        ]
    )


def cnn():
    import keras

    layers = keras.layers
    return keras.Sequential(
        [
            layers.Input((28, 28)),
            layers.Reshape((28, 28, 1)),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Conv2D(64, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(250, "relu"),
            layers.Dense(10, "softmax"),
        ]
    )


def lstm():
    import keras

    layers = keras.layers
    return keras.Sequential([layers.Input((28, 28)), layers.LSTM(128), layers.Dense(10, "softmax")])
