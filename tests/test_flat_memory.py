"""Repeated operations of a run do not leak memory: TensorFlow keeps every Python number that becomes a tensor."""

import ctypes
import re

import numpy as np
import pytest
import tensorflow as tf
from fakes import model

from doom_a3c.record.metrics.tensorboard import TensorBoardLogger

libc = ctypes.CDLL(None)


def bytes_in_use(path):
    """Returns how much memory malloc has handed out and not got back."""
    libc.fopen.restype = ctypes.c_void_p
    file = ctypes.c_void_p(libc.fopen(str(path).encode(), b"w"))
    libc.malloc_info(0, file)
    libc.fclose(file)
    total = path.read_text().rpartition("</heap>")[2]
    sizes = {kind: int(size) for kind, size in re.findall(r'type="(fast|rest|current)"[^>]*size="(\d+)"', total)}
    return sizes["current"] - sizes["fast"] - sizes["rest"]


@pytest.mark.skipif(not hasattr(libc, "malloc_info"), reason="asks the GNU C library")
@pytest.mark.parametrize("operation", ["update", "scalar", "histogram"])
def test_repeated_calls_with_new_numbers_do_not_leak_memory(operation, tmp_path):
    shared, logger = model(), TensorBoardLogger(tmp_path / "log")
    gradients = [tf.zeros_like(parameter) for parameter in shared.network.parameters]
    calls = {
        "update": lambda number: shared.apply(gradients, 1e-4 + 1e-9 * number),
        "scalar": lambda number: logger.metrics({"reward": 1.1 * number}, number),
        "histogram": lambda number: logger.histogram("actions", [0.0, 1.0, 1.1 * number], number),
    }
    counts = np.arange(600)
    for number in counts[:200]:
        calls[operation](int(number))
    before = bytes_in_use(tmp_path / "malloc.xml")
    for number in counts[200:]:
        calls[operation](int(number))
    assert (bytes_in_use(tmp_path / "malloc.xml") - before) / 400 < 150  # 600 or more if numbers were kept
    logger.close()
