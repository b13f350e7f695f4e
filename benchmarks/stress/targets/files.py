"""The targets for files: records and checkpoints, scenario files, ViZDoom's configuration files."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import safetensors.numpy

from benchmarks.stress.targets.examples import make_record, write_small_checkpoint
from benchmarks.stress.targets.harm import check_harmless
from benchmarks.stress.targets.mutations import Mutator, join_checkpoint, mutate_json, split_checkpoint, write_toml
from benchmarks.stress.targets.target import Target, make_take
from doom_a3c.envs.doom import setup as doom_setup
from doom_a3c.run.checkpoints import checkpoint
from doom_a3c.run.checkpoints.run_record import record_from_plain, record_to_plain
from doom_a3c.settings import catalog, scenarios
from doom_a3c.settings.checks import check_combinations
from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.fields import settings_of
from doom_a3c.settings.games import DoomSpec, shipped_folder
from doom_a3c.settings.scenarios import Scenario

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def list_setting_names() -> tuple[str, ...]:
    """Returns all setting names."""
    return (*settings_of(Config), "frame_skip")


def _mutate_json(mutator: Mutator, data: bytes) -> bytes:
    changed = mutate_json(data, mutator.tree) if mutator.chance(0.95) else None
    return mutator.damage(data) if changed is None else changed


def make_records_target(folder: Path) -> Target:
    """Returns the target for the JSON of checkpoints."""

    def take(data: bytes) -> None:
        try:
            tree = json.loads(data)
        except (ValueError, RecursionError):
            raise UserError("no JSON") from None
        record = record_from_plain(tree, "a checkpoint")
        check_harmless(record.scenario, "a record")
        json.dumps(record_to_plain(record))  # it can be saved again

    plain = [record_to_plain(make_record(name)) for name in ("basic", "cartpole", "pong")]
    return Target([json.dumps(each).encode() for each in plain], make_take(take), _mutate_json, list_setting_names())


def make_checkpoints_target(folder: Path) -> Target:
    """Returns the target for checkpoint files."""
    path = folder / "input.ckpt"
    write_small_checkpoint(path)
    seed = path.read_bytes()
    header, arrays = split_checkpoint(seed)
    metadata = {"__metadata__": header["__metadata__"]}

    def take(data: bytes) -> None:
        path.write_bytes(data)
        checkpoint.load(path)

    def once() -> Iterator[bytes]:
        for length in (2**24, 2**31, 2**63, 2**64 - 1):
            yield length.to_bytes(8, "little") + seed[8:]
        for nested in (b"[", b'{"a":', b'{"__metadata__":{"record":['):
            yield join_checkpoint(nested * 400_000)
        deep = json.dumps({"record": "[" * 200_000})
        yield join_checkpoint(f'{{"__metadata__": {deep}}}'.encode())
        empty = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
        yield join_checkpoint(metadata | {f"{number}": empty for number in range(50_000)})
        yield join_checkpoint(metadata | {"a": {"dtype": "F32", "shape": [2**38], "data_offsets": [0, 2**40]}}, arrays)
        yield join_checkpoint(metadata | {"a": {"dtype": "F16", "shape": [2**62, 2**62], "data_offsets": [0, 2]}}, b"ab")

    return Target(
        [seed], make_take(take), lambda mutator, data: add_checksum(mutator.checkpoint(data)), list_setting_names(), once
    )


def add_checksum(data: bytes) -> bytes:
    """Returns a checkpoint with a valid checksum if possible, so that the checks after it are fuzzed, too."""
    try:
        header, arrays = split_checkpoint(data)
        metadata = header["__metadata__"]
        record = json.loads(metadata["record"])
        record.pop("crc32", None)
        metadata["record"] = json.dumps(
            record | {"crc32": checkpoint._compute_checksum(record, safetensors.numpy.load(data))}
        )
        return join_checkpoint(header, arrays)
    except Exception:  # the mutated file is damaged anyway
        return data


def _check_playable(scenario: Scenario) -> None:
    """Makes train.py's checks up to the first game."""
    scenario, config = scenarios.apply_overrides(scenario, scenario.training, "settings")
    check_combinations(config)
    check_harmless(scenario, "a scenario file")
    if isinstance(scenario.game, DoomSpec):
        doom_setup.check(scenario.game, scenario.observation)


def make_tomls_target(folder: Path) -> Target:
    """Returns the target for scenario files: JSON to be written as TOML, or TOML itself."""
    path = folder / "input.toml"

    def take(data: bytes) -> None:
        try:
            text = write_toml(json.loads(data)).encode() if data.startswith(b"{") else data
        except (ValueError, RecursionError, AttributeError, TypeError):
            text = data
        path.write_bytes(text)
        _check_playable(catalog.find(str(path)))

    def mutate(mutator: Mutator, data: bytes) -> bytes:
        if data.startswith(b"{") and mutator.chance(0.9):
            return _mutate_json(mutator, data)
        if mutator.chance(0.2):
            return mutator.damage(data)
        return mutator.line(data.decode("utf-8", "replace")).encode("utf-8", "replace")

    names = ("basic", "cartpole", "pong", "duel")
    own = [path for name, path in catalog.list_scenario_files().items() if path.suffix == ".toml" and name in names]
    texts = [path.read_bytes() for path in own]
    trees = [tomllib.loads(text.decode()) for text in texts]
    whole = [scenarios.to_plain(catalog.find(name)) for name in names]
    for tree in whole:
        del tree["name"]  # comes from the file
        if not tree["game"].get("match"):  # a file without a match has no such table, and an empty one is an error
            tree["game"].pop("match", None)
    return Target(
        [*texts, *(json.dumps(tree).encode() for tree in (*trees, *whole))], make_take(take), mutate, list_setting_names()
    )


def make_cfgs_target(folder: Path) -> Target:
    """Returns the target for ViZDoom's own configuration files."""
    path = folder / "input.cfg"
    shipped = [shipped_folder() / f"{name}.cfg" for name in ("basic", "deadly_corridor", "health_gathering")]
    for file in shipped:
        shutil.copy(file.with_suffix(".wad"), folder)

    def take(data: bytes) -> None:
        path.write_bytes(data)
        _check_playable(catalog.find(str(path)))

    def mutate(mutator: Mutator, data: bytes) -> bytes:
        if mutator.chance(0.15):
            return mutator.damage(data)
        return mutator.line(data.decode("utf-8", "replace")).encode("utf-8", "replace")

    words = (
        "doom_scenario_path",
        "doom_map",
        "available_buttons",
        "episode_timeout",
        "{",
        "}",
        "+=",
        "#",
        "ATTACK",
        "TURN_LEFT",
    )
    return Target([file.read_bytes() for file in shipped], make_take(take), mutate, words)
