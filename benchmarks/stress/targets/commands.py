"""The target for command lines: everything train.py and play.py do with flags, up to the first game or network."""

from __future__ import annotations

import contextlib
import copy
import functools
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import tensorflow as tf

from benchmarks.stress.targets.examples import write_small_checkpoint
from benchmarks.stress.targets.guards import FindingError
from benchmarks.stress.targets.mutations import Mutator, mutate_json
from benchmarks.stress.targets.target import Target
from doom_a3c.cli import listing, play, run_doctor, train
from doom_a3c.cli.flags import make_flag_parser
from doom_a3c.run import launch
from doom_a3c.run.play import agent
from doom_a3c.settings import catalog
from doom_a3c.settings.config import Config
from doom_a3c.settings.fields import settings_of
from doom_a3c.settings.playing import PlaySettings

SEEDS = (
    [
        "train.py",
        "--scenario",
        "basic",
        "--workers",
        "2",
        "--envs-per-worker",
        "8",
        "--minutes",
        "3.5",
        "--learning-rate",
        "1e-3",
    ],
    [
        "train.py",
        "--scenario=cartpole",
        "--engine=queue",
        "--predictors=2",
        "--min-batch=64",
        "--queue-size=8",
        "--no-vtrace",
    ],
    [
        "train.py",
        "--scenario",
        "pong",
        "--engine",
        "cluster",
        "--hosts",
        "2",
        "--transport",
        "rollouts",
        "--address",
        "h:1",
    ],
    ["train.py", "--scenario", "own.toml", "--epsilon", "0.5", "--final-epsilon", "0.1", "--epsilon-frames", "1000"],
    ["train.py", "--resume", "--models-dir", "saved", "--frames", "900000", "--device", "cpu", "--checkpoint-every", "5"],
    ["train.py", "--summary", "out/result.json", "--frames-dir", "frames", "--logs-dir", "logs", "--advantage", "n_step"],
    ["train.py", "--list-scenarios"],
    [
        "play.py",
        "--model",
        "saved/last.ckpt",
        "--out",
        "result",
        "--episodes",
        "3",
        "--record-episodes",
        "1",
        "--policy",
        "sample",
    ],
    ["play.py", "--model=saved/last.ckpt", "--epsilon=0.1", "--seed=7", "--device", "auto", "--quiet"],
)


class ReachedError(Exception):
    """The command line is good: games would start now."""


def make_commands_target(folder: Path) -> Target:
    """Returns the target; inputs are lists of arguments as JSON, program first."""
    (folder / "saved").mkdir()
    write_small_checkpoint(folder / "saved" / "last.ckpt")
    (folder / "own.toml").write_text('base = "base/doom"\n[game]\nconfig = "basic.cfg"\n')
    _stop_before_games()
    flags = tuple(
        one.flag for record in (Config, train.Options, play.Options, PlaySettings) for one in settings_of(record).values()
    )
    return Target([json.dumps(list(seed)).encode() for seed in SEEDS], _take, _mutate, flags, named_by_user=True)


def _stop_before_games() -> None:
    """Ends both programs where games would start, and caches their parser and scenario list."""

    def reached(*arguments: Any, **options: Any) -> Any:
        raise ReachedError

    parser = functools.cache(make_flag_parser)
    _replace(train, make_flag_parser=parser)
    _replace(launch, _start_games=reached)
    _replace(run_doctor, run_doctor=reached)
    _replace(play, make_flag_parser=parser)
    _replace(agent, Builder=reached)
    _replace(listing, list_scenarios=functools.cache(listing.list_scenarios))

    def nothing(*arguments: Any) -> None:
        """TensorFlow already runs."""

    _replace(tf.config.threading, set_inter_op_parallelism_threads=nothing, set_intra_op_parallelism_threads=nothing)
    _replace(tf.config, set_visible_devices=nothing)


def _replace(module: Any, **values: Any) -> None:
    """Replaces names of a module; raises AttributeError if it no longer has one."""
    for name, value in values.items():
        getattr(module, name)
        setattr(module, name, value)


def remember_shipped_files() -> None:
    """Makes the catalog cache the shipped files and their contents."""
    parser: Any = vars(catalog)["tomllib"]
    shipped = {text: parser.loads(text) for text in (path.read_text() for path in catalog._list_own_files().values())}

    class Remembering:
        TOMLDecodeError = parser.TOMLDecodeError

        @staticmethod
        def loads(text: str) -> dict[str, Any]:
            return copy.deepcopy(shipped[text]) if text in shipped else cast(dict[str, Any], parser.loads(text))

    files, available = functools.cache(catalog._list_own_files), functools.cache(catalog.list_scenario_files)
    _replace(catalog, tomllib=Remembering, _list_own_files=files, list_scenario_files=available)


def _mutate(mutator: Mutator, data: bytes) -> bytes:
    changed = mutate_json(data, mutator.tree if mutator.chance(0.8) else lambda tree: _add_flag(mutator, tree))
    return mutator.damage(data) if changed is None else changed


def _add_flag(mutator: Mutator, arguments: Any) -> Any:
    if not isinstance(arguments, list):
        return arguments
    value = mutator.value()
    text = value if isinstance(value, str) else json.dumps(value)
    return [*arguments, f"{mutator.word()}={text}"] if mutator.chance(0.5) else [*arguments, mutator.word(), text]


def _take(data: bytes) -> bool:
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return False
    tree = tree if isinstance(tree, list) else [tree]
    arguments = [_argument(each if isinstance(each, str) else json.dumps(each)) for each in tree]
    main = play.main if arguments[:1] == ["play.py"] else train.main
    with _capture_output() as errors:
        try:
            status = main(arguments[1:])
        except ReachedError:
            return True
        except SystemExit as error:  # --help
            status = error.code if isinstance(error.code, int) else 1
            if status == 0:
                return True
    if status == 0:
        return True
    text = errors.getvalue()
    if status != 2 or text.count("\n") != 1 or not text.endswith("\n"):
        raise FindingError(f"exit status {status} and {text.count(chr(10))} lines on stderr")
    return False


def _argument(text: str) -> str:
    """Returns a text as an operating system passes it: without NULs, with undecodable bytes marked by Python."""
    return "".join("\udcff" if "\ud800" <= each <= "\udfff" else each for each in text if each != "\0")


@contextlib.contextmanager
def _capture_output() -> Iterator[io.StringIO]:
    """Keeps output off the terminal; yields the buffer that collects stderr."""
    errors = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        yield errors
