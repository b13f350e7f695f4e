"""Importing TensorFlow: quietly, quickly, and set up for threads that run at the same time."""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import cast

from doom_a3c.quiet import capture_stderr
from doom_a3c.settings.errors import UserError


def import_tensorflow(threads: int, verbose: bool, device: str, *, each: int = 1) -> None:
    """Imports TensorFlow without its chatter and sets its thread pools: `threads` operations at once, `each` on so many.

    Workers run at the same time, so parallelism between operations serves two of them better than parallelism within.
    `device` decides which GPU TensorFlow sees, if any; what it sees, it uses. Where TensorFlow runs already, it stays as it
    is.

    Raises:
        UserError: if there is no such device.
    """
    kind, _, number = device.partition(":")
    if kind not in ("auto", "cpu", "gpu") or (number and (kind != "gpu" or not number.isdigit())):
        raise UserError(f"--device takes auto, cpu, gpu, or gpu:0, gpu:1, ..., not {device!r}")
    if not verbose:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if platform.machine() in ("x86_64", "AMD64"):
        # TensorFlow does so by itself on CPUs with VNNI or AMX alone; with AVX2, too, gradients take half the time by it.
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    with capture_stderr(not verbose):
        # TensorFlow loads Keras, and that Matplotlib, for optimizers that nobody uses here.
        with import_lock(), hide_modules("keras.src"):
            import tensorflow as tf

        gpus = [] if kind == "cpu" else tf.config.list_physical_devices("GPU")
        chosen = gpus[int(number or 0) : int(number or 0) + 1]
        with contextlib.suppress(RuntimeError):  # it runs already, set up by an earlier call, or by whoever uses it
            tf.config.threading.set_inter_op_parallelism_threads(threads)
            tf.config.threading.set_intra_op_parallelism_threads(each)
            tf.config.set_visible_devices(chosen, "GPU")
            for gpu in chosen:
                tf.config.experimental.set_memory_growth(gpu, True)  # others may want some of it
        tf.constant(0)  # starts the runtime, which prints too
    if kind == "gpu" and not chosen:
        raise UserError(f"--device {device}: TensorFlow sees {len(gpus)} GPUs; --device cpu or auto needs none")


@contextlib.contextmanager
def import_lock() -> Iterator[None]:
    """Spares what is imported inside the block the collector of cycles: it would find nothing, again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def hide_modules(module: str) -> Iterator[None]:
    """Lets imports of a module fail inside the block, unless it has been imported before."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = cast(ModuleType, None)  # Python's own mark for this
    try:
        yield
    finally:
        sys.modules.pop(module, None)
