"""What the command lines share: one-line errors, quiet imports, the time since the process began."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import NoReturn, cast

from doom_a3c.quiet import caught_stderr, say_at_once
from doom_a3c.settings import UserError


def run(program: str, command: Callable[[list[str] | None], int], arguments: list[str] | None) -> int:
    """Runs a command; a UserError becomes one line on stderr and exit status 2.

    Until the command handles signals itself they end it at once: an exception in the midst of imports would surface as
    anything, and there is nothing to save. Its games end with it.
    """
    previous = {
        number: signal.signal(number, lambda number, frame: end_at_once(number, f"{program}: interrupted"))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        _check_folder()
        return command(arguments)
    except UserError as error:
        print(f"{program}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return 130
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _check_folder() -> None:
    """Raises UserError where the current folder is gone."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UserError("the current folder has been removed: change into another") from None


def end_at_once(number: int, line: str) -> NoReturn:
    """Ends the process as after a signal, with a line on stderr."""
    say_at_once(line)
    os._exit(128 + number)


def import_tensorflow(threads: int, verbose: bool, device: str, *, each: int = 1) -> None:
    """Imports TensorFlow without its chatter and sets its thread pools: `threads` operations at once, `each` on so many.

    Workers run at the same time, so parallelism between operations serves two of them better than parallelism within.
    `device` decides which GPU TensorFlow sees, if any; what it sees, it uses.

    Raises:
        UserError: if there is no such device.
    """
    kind, _, number = device.partition(":")
    if kind not in ("auto", "cpu", "gpu") or (number and (kind != "gpu" or not number.isdigit())):
        raise UserError(f"--device {device!r} is none of auto, cpu, gpu, gpu:0, gpu:1, ...")
    if not verbose:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with caught_stderr(not verbose):
        # TensorFlow loads Keras, and that Matplotlib, for optimizers that nobody uses here.
        with importing(), without("keras.src"):
            import tensorflow as tf

        tf.config.threading.set_inter_op_parallelism_threads(threads)
        tf.config.threading.set_intra_op_parallelism_threads(each)
        gpus = [] if kind == "cpu" else tf.config.list_physical_devices("GPU")
        chosen = gpus[int(number or 0) : int(number or 0) + 1]
        tf.config.set_visible_devices(chosen, "GPU")
        for gpu in chosen:
            tf.config.experimental.set_memory_growth(gpu, True)  # others may want some of it
        tf.constant(0)  # starts the runtime, which prints too
    if kind == "gpu" and not chosen:
        raise UserError(f"--device {device}: TensorFlow sees {len(gpus)} GPUs; --device cpu or auto needs none")


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Spares what is imported inside the block the collector of cycles: it would find nothing, again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


@contextlib.contextmanager
def without(module: str) -> Iterator[None]:
    """Lets imports of a module fail inside the block, unless it has been imported before."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = cast(ModuleType, None)  # Python's own mark for this
    try:
        yield
    finally:
        sys.modules.pop(module, None)


def seconds_since_start() -> float:
    """Returns the age of this process in seconds, the interpreter's start and all imports included."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError):  # not Linux
        return time.process_time()


def output_folder(path: str, flag: str) -> Path:
    """Returns a folder that exists and can be written to, making it if need be.

    Raises:
        UserError: naming the flag, if it cannot be.
    """
    folder = Path(path).expanduser()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".writable-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(f"{flag} {folder}: {error.strerror}; name a folder that can be written to") from None
    return folder
