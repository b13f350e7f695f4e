"""Optimizers for concurrent workers: slots made at once, a learning rate per call, TensorFlow's fused update kernels.

Keras optimizers do not fit: they create their slots lazily (a race between threads), count their own iterations, and
their RMSProp starts its accumulator at 0, where the settings of the A3C literature assume 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf


def _make_slots(variables: Sequence[tf.Variable], name: str, value: float) -> list[tf.Variable]:
    return [
        tf.Variable(tf.fill(variable.shape, value), trainable=False, name=f"{variable.name.split(':')[0]}/{name}")
        for variable in variables
    ]


class Adam(tf.Module):
    """Adam (Kingma & Ba 2015, arXiv:1412.6980, end of section 2, epsilon-hat). Owns both moments and their powers."""

    beta_1, beta_2 = 0.9, 0.999

    def __init__(self, variables: Sequence[tf.Variable], epsilon: float = 1e-8) -> None:
        super().__init__(name="adam")
        self.epsilon = epsilon
        self._variables = list(variables)
        self._first = _make_slots(variables, "adam_m", 0.0)
        self._second = _make_slots(variables, "adam_v", 0.0)
        self._power_1 = tf.Variable(self.beta_1, trainable=False, name="adam_beta_1_power")
        self._power_2 = tf.Variable(self.beta_2, trainable=False, name="adam_beta_2_power")
        self.slots = [*self._first, *self._second, self._power_1, self._power_2]

    def apply(self, gradients: Sequence[tf.Tensor], learning_rate: tf.Tensor) -> None:
        """Updates the variables by one step; `gradients` are in the order of the variables."""
        for variable, first, second, gradient in zip(self._variables, self._first, self._second, gradients, strict=True):
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=first.handle,
                v=second.handle,
                beta1_power=self._power_1,
                beta2_power=self._power_2,
                lr=learning_rate,
                beta1=self.beta_1,
                beta2=self.beta_2,
                epsilon=self.epsilon,
                grad=gradient,
            )
        self._power_1.assign(self._power_1 * self.beta_1)
        self._power_2.assign(self._power_2 * self.beta_2)


class RMSProp(tf.Module):
    """RMSProp with shared statistics, as in the published A3C (Mnih et al. 2016, section 4: shared g, decay 0.99).

    g = 0.99 g + 0.01 grad^2, starting at 1;  variable -= learning_rate * grad / sqrt(g + epsilon).
    """

    decay = 0.99

    def __init__(self, variables: Sequence[tf.Variable], epsilon: float = 0.1) -> None:
        super().__init__(name="rmsprop")
        self.epsilon = epsilon
        self._variables = list(variables)
        self._mean_squares = _make_slots(variables, "rmsprop_g", 1.0)
        self._momenta = _make_slots(variables, "rmsprop_momentum", 0.0)
        self.slots = [*self._mean_squares, *self._momenta]

    def apply(self, gradients: Sequence[tf.Tensor], learning_rate: tf.Tensor) -> None:
        """Updates the variables by one step; `gradients` are in the order of the variables."""
        for variable, mean_square, momentum, gradient in zip(
            self._variables, self._mean_squares, self._momenta, gradients, strict=True
        ):
            tf.raw_ops.ResourceApplyRMSProp(
                var=variable.handle,
                ms=mean_square.handle,
                mom=momentum.handle,
                lr=learning_rate,
                rho=self.decay,
                momentum=0.0,
                epsilon=self.epsilon,
                grad=gradient,
            )


Optimizer = Adam | RMSProp


def make_optimizer(kind: str, variables: Sequence[tf.Variable], epsilon: float | None) -> Optimizer:
    """Returns an 'adam' or 'rmsprop' optimizer of `variables`; an `epsilon` of None is the default of its kind."""
    kinds: dict[str, type[Adam] | type[RMSProp]] = {"adam": Adam, "rmsprop": RMSProp}
    make = kinds[kind]
    return make(variables) if epsilon is None else make(variables, epsilon)
