"""Callbacks as users write them."""

from __future__ import annotations

CALLS = []


def stop_after_two(epoch, metrics, model):
    """A function."""
    CALLS.append((epoch, sorted(metrics), type(model).__name__))
    return epoch == 1


def make_stopping(at=0):
    """A factory of a function."""
    return lambda epoch, metrics, model: epoch == at


def keras_stopping():
    """A factory of a callback of Keras."""
    import keras

    class Stops(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            CALLS.append("begin")

        def on_epoch_end(self, epoch, logs=None):
            CALLS.append((epoch, float(logs["loss"]), float(keras.ops.sum(self.model.trainable_variables[0]))))
            self.model.stop_training = epoch == 1

        def on_train_end(self, logs=None):
            CALLS.append("end")

    return Stops()


def raising_in_set_params():
    import keras

    class Raises(keras.callbacks.Callback):
        def set_params(self, params):
            raise ValueError("boom")

    return Raises()


def of_batches():
    import keras

    return keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: None)


def nothing():
    return 3


def falling(epoch, rate):
    return rate * (0.5 if epoch % 2 else 0.9)


def make_scheduler():
    import keras

    return keras.callbacks.LearningRateScheduler(falling)


def halved_once(epoch, metrics, model):
    """A function that sets the learning rate."""
    if epoch == 1:
        model.optimizer.learning_rate = 0.5 * model.optimizer.learning_rate
    return False


def make_stopped_rate():
    """Almost no learning from the third epoch on."""
    import keras

    return keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 if epoch < 2 else 1e-9)


def sum_of_weights(epoch, metrics, model):
    CALLS.append((epoch, float(sum(weights.sum() for weights in model.get_weights()))))


def zeroed(epoch, metrics, model):
    """Changes the weights of a model of Keras or PyTorch."""
    if hasattr(model, "set_weights"):
        model.set_weights([0 * weights for weights in model.get_weights()])
    else:
        for parameter in model.parameters():
            parameter.data = 0 * parameter.data


def annealed(epoch, metrics, model):
    """Changes a buffer of a PyTorch module."""
    model.mean.fill_(epoch + 2)


def halved(epoch, metrics, model):
    """Notes the weights of a PyTorch module, then halves them."""
    CALLS.append([parameter.tolist() for parameter in model.parameters()])
    for parameter in model.parameters():
        parameter.data *= 0.5


def noting_device(epoch, metrics, model):
    """Notes where the parameters of a PyTorch module are."""
    CALLS.extend(parameter.device.type for parameter in model.parameters())


def conversation():
    """A callback of Keras that notes how it is called, and adds a metric."""
    import keras

    class Notes(keras.callbacks.Callback):
        def set_model(self, model):
            super().set_model(model)
            CALLS.append("set_model")

        def on_train_begin(self, logs):
            CALLS.append((self.params, logs))

        def on_epoch_begin(self, epoch, logs):
            CALLS.append((epoch, logs))

        def on_epoch_end(self, epoch, logs):
            logs["gap"] = 2.0 * epoch
            logs["note"] = f"of epoch {epoch}"
            CALLS.append((epoch, {name: len(values) for name, values in self.model.history.history.items()}))

        def on_train_end(self, logs):
            CALLS.append((sorted(logs), sorted(self.model.history.history)))

    return Notes()


def hearing(epoch, metrics, model):
    CALLS.append((metrics["note"], metrics["gap"]))


def of_validation():
    import keras

    class Waits(keras.callbacks.Callback):
        def on_test_end(self, logs=None):
            pass

    return Waits()


def before_epochs(function):
    """A callback of Keras that calls a function of this file with the model before each epoch."""
    import keras

    class Calls(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            globals()[function](self.model)

    return Calls()


def decayed(model):
    model.optimizer.weight_decay = 0.5


def with_another_optimizer(model):
    import keras

    model.optimizer = keras.optimizers.SGD(1e-9)


def restarted(model):
    model.optimizer.iterations.assign(7)


def frozen(model):
    model.layers[0].trainable = False


def noting_the_rate(epoch, metrics, model):
    CALLS.append(float(model.optimizer.learning_rate))


def make_saving(path):
    return lambda epoch, metrics, model: model.save(path)


def counted(epoch, metrics, model):
    """Changes an integer buffer of a PyTorch module."""
    model.count.fill_(epoch + 2)


def rescaled(epoch, metrics, model):
    """Changes an attribute of a PyTorch module."""
    model.scale = 3.0


def hooked(epoch, metrics, model):
    model.register_forward_hook(lambda module, inputs, outputs: 0 * outputs)


def freezing(epoch, metrics, model):
    """Trains the first array of a PyTorch module in every second epoch only."""
    first = next(model.parameters())
    first.requires_grad_(epoch % 2 == 1)
    CALLS.append(first.tolist())


def thawing(epoch, metrics, model):
    for parameter in model.parameters():
        parameter.requires_grad_(True)
