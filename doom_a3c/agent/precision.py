"""What number type large matrices are multiplied in: half the bits are several times faster on CPUs made for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import tensorflow as tf

from doom_a3c.settings.errors import UserError


def matrix_type(precision: str, cpu_info: Path = Path("/proc/cpuinfo")) -> tf.DType:
    """Returns the type that 'float32', 'bfloat16' or 'auto' means: bfloat16 where the CPU that computes has AMX for it.

    AVX512 alone has bfloat16 products too, but gains less by them than rounding and unrounding costs; without oneDNN
    there are none at all.
    """
    if precision != "auto":
        return tf.as_dtype(precision)
    if tf.config.get_visible_devices("GPU") or not _has_onednn():
        return tf.float32
    try:
        return tf.bfloat16 if "amx_bf16" in cpu_info.read_text() else tf.float32
    except OSError:  # not Linux
        return tf.float32


def _has_onednn() -> bool:
    return os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1") not in ("0", "false")


def check_can_learn(precision: str, cpu_info: Path = Path("/proc/cpuinfo")) -> None:
    """Raises UserError where gradients in bfloat16 would be wrong: those of convolutions by 4 to 16 per cent.

    Only oneDNN's kernels sum them in float32, and it has them for CPUs with AVX512 alone.
    """
    if precision != "bfloat16" or tf.config.get_visible_devices("GPU"):
        return
    if not _has_onednn():
        raise UserError("--precision bfloat16 needs TF_ENABLE_ONEDNN_OPTS=1: without oneDNN its gradients are wrong")
    if cpu_info.exists() and "avx512f" not in cpu_info.read_text():
        raise UserError("--precision bfloat16 needs a CPU with AVX512: without it gradients are wrong; use auto")


def add_bias(features: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Returns features [..., F] plus a float32 bias [F], in the type of the features.

    The bias's gradient, a sum over all other axes, is summed in float32. TensorFlow's own kernel sums in the features' type
    on CPUs without AVX512: a bfloat16 sum of thousands of small numbers stops growing, and was wrong by 12 to 97 per cent.
    """
    if features.dtype == bias.dtype:
        return tf.nn.bias_add(features, bias)

    @tf.custom_gradient  # type: ignore[untyped-decorator]  # of TensorFlow
    def added(features: tf.Tensor, bias: tf.Tensor) -> tuple[tf.Tensor, Any]:
        def gradients(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            axes = list(range(len(upstream.shape) - 1))
            return upstream, tf.reduce_sum(tf.cast(upstream, bias.dtype), axes)

        return tf.nn.bias_add(features, tf.cast(bias, features.dtype)), gradients

    return added(features, tf.convert_to_tensor(bias))


class Matrix:
    """A parameter to multiply with, in a type of its own.

    Owns the rounded `copy`, None where the type is the parameter's own: rounding at every use costs too much.
    """

    def __init__(self, parameter: tf.Variable, dtype: tf.DType) -> None:
        self._parameter = parameter
        self.copy = None if dtype == parameter.dtype else tf.Variable(tf.cast(parameter, dtype), trainable=False)

    def refresh(self) -> None:
        """Takes over what has been assigned to the parameter."""
        if self.copy is not None:
            self.copy.assign(tf.cast(self._parameter, self.copy.dtype))

    def read(self) -> tf.Tensor:
        """Returns the rounded values; gradients flow into the parameter."""
        copy = self.copy
        if copy is None:
            return tf.convert_to_tensor(self._parameter)

        @tf.custom_gradient  # type: ignore[untyped-decorator]  # of TensorFlow
        def rounded(_: tf.Tensor) -> tuple[tf.Tensor, Any]:
            return copy.read_value(), lambda gradient: tf.cast(gradient, tf.float32)

        return rounded(self._parameter)
