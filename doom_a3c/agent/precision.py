"""The number type of large matrix products: bfloat16 is faster on CPUs with hardware for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf

from doom_a3c.settings.errors import UserError

Gradient = Callable[[tf.Tensor], tf.Tensor | tuple[tf.Tensor, tf.Tensor]]  # from the output's gradient to the inputs'


def choose_matrix_type(precision: str, cpu_info: Path = Path("/proc/cpuinfo")) -> tf.DType:
    """Returns the type for 'float32', 'bfloat16' or 'auto', which is bfloat16 where its products are fast.

    They are fast with AMX, and with AVX512 on AMD's CPUs; with AVX512 on Intel's, conversions cost more than they save.
    """
    if precision != "auto":
        return tf.as_dtype(precision)
    usable = _has_onednn() and cpu_info.exists() and not tf.config.get_visible_devices("GPU")
    fast = ({"amx_bf16"}, {"AuthenticAMD", "avx512_bf16"})
    return tf.bfloat16 if usable and any(one <= set(cpu_info.read_text().split()) for one in fast) else tf.float32


def _has_onednn() -> bool:
    return os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1") not in ("0", "false")


def check_can_learn(precision: str, cpu_info: Path = Path("/proc/cpuinfo")) -> None:
    """Raises UserError if this machine's bfloat16 gradients would be wrong, by 4 to 16 per cent in convolutions.

    Only oneDNN's kernels accumulate in float32, and they need a CPU with AVX512.
    """
    if precision != "bfloat16" or tf.config.get_visible_devices("GPU"):
        return
    if not _has_onednn():
        raise UserError("--precision bfloat16 needs TF_ENABLE_ONEDNN_OPTS=1: without oneDNN its gradients are wrong")
    if cpu_info.exists() and "avx512f" not in cpu_info.read_text():
        raise UserError("--precision bfloat16 needs a CPU with AVX512: without it gradients are wrong; use auto")


def add_bias(features: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Adds a float32 bias [F] to features [..., F], in the type of the features.

    The gradient of the bias, a sum over all other axes, is accumulated in float32. On CPUs without AVX512, TensorFlow's
    own kernel accumulates in the features' type: a bfloat16 sum of thousands of small numbers stops growing, and was wrong
    by 12 to 97 per cent.
    """
    if features.dtype == bias.dtype:
        return tf.nn.bias_add(features, bias)

    @tf.custom_gradient  # type: ignore[untyped-decorator]  # of TensorFlow
    def add(features: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
        def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            axes = list(range(len(upstream.shape) - 1))
            return upstream, tf.reduce_sum(tf.cast(upstream, bias.dtype), axes)

        return tf.nn.bias_add(features, tf.cast(bias, features.dtype)), gradients

    return add(features, tf.convert_to_tensor(bias))


class Matrix:
    """A parameter with a rounded copy for matrix products.

    Owns the `copy`, None if the types are equal: rounding at every use would cost too much.
    """

    def __init__(self, parameter: tf.Variable, dtype: tf.DType) -> None:
        self.parameter = parameter
        self.copy = None if dtype == parameter.dtype else tf.Variable(tf.cast(parameter, dtype), trainable=False)

    def refresh(self) -> None:
        """Updates the rounded copy after an assignment to the parameter."""
        if self.copy is not None:
            self.copy.assign(tf.cast(self.parameter, self.copy.dtype))

    def read(self) -> tf.Tensor:
        """Returns the rounded values; gradients flow to the parameter."""
        copy = self.copy
        if copy is None:
            return tf.convert_to_tensor(self.parameter)

        @tf.custom_gradient  # type: ignore[untyped-decorator]  # of TensorFlow
        def read_copy(_: tf.Tensor) -> tuple[tf.Tensor, Gradient]:
            return copy.read_value(), lambda gradient: tf.cast(gradient, tf.float32)

        return read_copy(self.parameter)
