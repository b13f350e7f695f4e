"""Importing TensorFlow: quietly, quickly, and set up for threads that run at the same time."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import platform
import re
import shlex
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import cast

from doom_a3c.quiet import capture_stderr
from doom_a3c.settings.errors import UserError, shorten_list

# The packages of requirements.txt by module, the most important one first.
PACKAGES = {
    **{name: name for name in ("tensorflow", "vizdoom", "gymnasium")},
    **{"ale_py": "ale-py", "cv2": "opencv-python-headless", "PIL": "pillow", "imageio_ffmpeg": "imageio-ffmpeg"},
    **{name: name for name in ("numpy", "scipy", "rich", "safetensors", "matplotlib", "tensorboard", "imageio")},
    **{name: name for name in ("cloudpickle", "shtab", *(("tomli",) if sys.version_info < (3, 11) else ()))},
}
_PARTS = {"google": "protobuf", "absl": "absl-py", "yaml": "pyyaml"}  # of packages that these need
_LISTED = 3  # packages in a message
_SEVERITIES = "IWEF"  # of TensorFlow's messages, by the level that still shows them
_LOGGED = re.compile(r"[IWEF]\d{4} ")


def describe_missing(error: ModuleNotFoundError) -> str:
    """Returns a message that names all missing packages, and says how to install them."""
    module = str(error.name).partition(".")[0]
    missing = [package for name, package in PACKAGES.items() if name == module or not _is_installed(name)]
    if not missing:  # another package's part, or one that the user's environment needs
        missing = [_PARTS.get(module, module)]
    many = len(missing) > _LISTED
    install = "-r requirements.txt" if many else shlex.join(missing)
    return (
        f"{shorten_list(missing, _LISTED)} {'are' if len(missing) > 1 else 'is'} not installed for {sys.executable}: "
        f"activate the environment (. .venv/bin/activate), or pip install {install} -c constraints.txt"
    )


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def import_tensorflow(threads: int, verbose: bool, device: str, *, each: int = 1) -> None:
    """Imports TensorFlow, without log messages below TF_CPP_MIN_LOG_LEVEL, and sets up its threads and devices.

    Workers run concurrently, so parallelism between operations serves them better than parallelism within one. If
    TensorFlow is running already, its set-up stays.

    Args:
        threads: operations that may run at once.
        verbose: whether to keep all messages, unless the user has set that variable; otherwise only fatal ones stay.
        device: auto, cpu, gpu or gpu:N; TensorFlow uses every GPU that this makes visible.
        each: threads of one operation.

    Raises:
        UserError: if there is no such device.
    """
    kind, number = parse_device(device)
    level = os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "0" if verbose else "3")
    if platform.machine() in ("x86_64", "AMD64"):
        # On by default only on CPUs with VNNI or AMX, but with AVX2 alone, too, it halves the time of a gradient.
        os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    with capture_stderr(level != "0") as captured:  # some messages are printed at any level
        # TensorFlow loads Keras, and Keras Matplotlib, for optimizers that are not used here.
        with pause_gc(), hide_module("keras.src"):
            import tensorflow as tf

        gpus = [] if kind == "cpu" else tf.config.list_physical_devices("GPU")
        chosen = gpus[int(number or 0) : int(number or 0) + 1]
        with contextlib.suppress(RuntimeError):  # TensorFlow runs already, set up by an earlier call or by the user
            tf.config.threading.set_inter_op_parallelism_threads(threads)
            tf.config.threading.set_intra_op_parallelism_threads(each)
            tf.config.set_visible_devices(chosen, "GPU")
            for gpu in chosen:
                tf.config.experimental.set_memory_growth(gpu, True)  # leaves memory to other programs
        tf.constant(0)  # starts the runtime, which prints too
    for line in captured.text.splitlines():
        if _LOGGED.match(line) and line[0] in _SEVERITIES[int(level) if level.isdigit() else 0 :]:
            print(line, file=sys.stderr)
    if kind == "gpu" and not chosen:
        raise UserError(f"--device {device}: TensorFlow sees {len(gpus)} GPUs; use --device cpu or auto")


def parse_device(device: str) -> tuple[str, str]:
    """Returns the kind and the number of a device, such as 'gpu' and '1', or 'auto' and ''; raises UserError for others."""
    kind, _, number = device.partition(":")
    if kind not in ("auto", "cpu", "gpu") or (number and (kind != "gpu" or not number.isdigit())):
        meant = re.sub("cuda|nvidia|rocm|mps", "gpu", device.lower())
        likely = f": did you mean --device {meant}?" if re.fullmatch(r"cpu|auto|gpu(:\d+)?", meant) else ""
        raise UserError(f"--device takes auto, cpu, gpu, or gpu:0, gpu:1, ..., not {device!r}{likely}")
    return kind, number


@contextlib.contextmanager
def pause_gc() -> Iterator[None]:
    """Pauses the garbage collector for imports inside the block: it would scan all modules repeatedly and free nothing."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def hide_module(module: str) -> Iterator[None]:
    """Makes imports of a module fail inside the block, unless it was imported before."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = cast(ModuleType, None)  # Python's own mark for this
    try:
        yield
    finally:
        sys.modules.pop(module, None)
