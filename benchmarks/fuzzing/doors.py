"""The doors that hostile inputs come through: each knows good inputs, how to mutate them, and what takes them in."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.numpy

from doom_a3c.envs.doom import setup as doom_setup
from doom_a3c.record.metrics.progress import Counters, Point
from doom_a3c.run.builder import Builder
from doom_a3c.run.checkpoints import checkpoint
from doom_a3c.run.checkpoints.run_record import Best, RunRecord, record_from_plain, record_to_plain
from doom_a3c.settings import catalog, scenarios
from doom_a3c.settings.config import Config
from doom_a3c.settings.consistency import check_combinations
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.fields import settings_of
from doom_a3c.settings.games import DoomSpec, GymnasiumSpec, shipped_folder
from doom_a3c.settings.network import Network
from doom_a3c.settings.scenarios import Scenario
from fuzzing.guards import FindingError
from fuzzing.mutations import Mutator, join_checkpoint, mutated_json, split_checkpoint, toml_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_WEIGHTS = 2**28  # a gigabyte of float32


class Door(NamedTuple):
    """One way in."""

    seeds: list[bytes]  # good inputs
    take: Callable[[bytes], bool]  # takes an input in; returns whether it is accepted; a refusal is no error
    mutate: Callable[[Mutator, bytes], bytes]
    words: tuple[str, ...] = ()  # that its reader knows
    once: Callable[[], Iterable[bytes]] = tuple  # hostile inputs that are too slow to be tried again and again
    named_by_user: bool = False  # the input says where to write


def refusing(take: Callable[[Any], object]) -> Callable[[Any], bool]:
    """Returns what tells whether an input is accepted: a UserError refuses it."""

    def taken(data: Any) -> bool:
        try:
            take(data)
        except UserError:
            return False
        return True

    return taken


def check_harmless(scenario: Scenario, source: str) -> None:
    """Raises FindingError for what has been accepted, and would run a program or allocate too much later on."""
    if (count := weights(scenario.network, scenario)) > MAX_WEIGHTS:
        exceeds = "any memory" if count > 2**40 else "a gigabyte"
        raise FindingError(f"{source} may ask for a network that exceeds {exceeds}")


def weights(network: Network, scenario: Scenario) -> int:
    """Returns about how many weights the hidden layers and the core of a network have, and its convolutions."""
    seen, rows, columns = scenario.observation, *map(int, scenario.observation.size)
    channels, count = seen.channels, 0
    for filters, size, stride in network.convolutions:
        count += size * size * channels * filters
        rows, columns, channels = (rows - size) // stride + 1, (columns - size) // stride + 1, filters
    # What a game of Gymnasium's shows is not known yet: it is measured again when it is, before anything is made.
    count, width = (0, 1) if isinstance(scenario.game, GymnasiumSpec) else (count, rows * columns * channels)
    for size in network.hidden:
        count, width = count + width * size, size
    variables = len(scenario.game.variables) if isinstance(scenario.game, DoomSpec) else 0
    for size in network.variable_hidden if variables else ():
        count, variables = count + variables * size, size
    width += variables
    return count + (0 if network.core == "none" else 4 * network.core_size * (width + network.core_size))


def example(name: str = "basic") -> RunRecord:
    """Returns the record of a run of a scenario, with something in every field."""
    scenario = catalog.find(name)
    scenario, config = scenarios.apply_overrides(scenario, scenario.training, "settings")
    faults = {"engine_died": 2, "server_hung": 1}
    counters = Counters(800, 200, 20, 3, faults, [1.0, -2.5, 3.0], [Point(1, 200, 1.0, 1.0), Point(2, 500, -2.5, -0.75)], 1)
    return RunRecord(f"{name}-seed1-20260101-000000", 1, scenario, config, counters, Best(12.5, "sample"))


def small_checkpoint(path: Path) -> None:
    """Writes the checkpoint of a run of CartPole with a network of a few weights."""
    record = example("cartpole")
    scenario = dataclasses.replace(record.scenario, network=dataclasses.replace(record.scenario.network, hidden=(4,)))
    model = Builder(scenario, record.config).make_model(record.config)
    checkpoint.save(path, model.snapshot(), record._replace(scenario=scenario))


def names() -> tuple[str, ...]:
    """Returns the settings' names."""
    return (*settings_of(Config), "frame_skip")


def _json_mutation(mutator: Mutator, data: bytes) -> bytes:
    changed = mutated_json(data, mutator.tree) if mutator.chance(0.95) else None
    return mutator.damaged(data) if changed is None else changed


def records(folder: Path) -> Door:
    """Returns the door for the JSON of checkpoints."""

    def take(data: bytes) -> None:
        try:
            tree = json.loads(data)
        except (ValueError, RecursionError):
            raise UserError("no JSON") from None
        record = record_from_plain(tree, "a checkpoint")
        check_harmless(record.scenario, "a record")
        json.dumps(record_to_plain(record))  # it can be saved again

    plain = [record_to_plain(example(name)) for name in ("basic", "cartpole", "pong")]
    return Door([json.dumps(each).encode() for each in plain], refusing(take), _json_mutation, names())


def checkpoints(folder: Path) -> Door:
    """Returns the door for checkpoints as files."""
    path = folder / "input.ckpt"
    small_checkpoint(path)
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

    return Door([seed], refusing(take), lambda mutator, data: with_checksum(mutator.checkpoint(data)), names(), once)


def with_checksum(data: bytes) -> bytes:
    """Returns a checkpoint with the checksum it should have, as far as it has one: what is behind that is tried too."""
    try:
        header, arrays = split_checkpoint(data)
        metadata = header["__metadata__"]
        record = json.loads(metadata["record"])
        record.pop("crc32", None)
        checksum = checkpoint._compute_checksum(record, safetensors.numpy.load(data))
        metadata["record"] = json.dumps(record | {"crc32": checksum})
        return join_checkpoint(header, arrays)
    except Exception:  # of whatever the mutation has made
        return data


def _playable(scenario: Scenario) -> None:
    """Checks what train.py checks before it starts a game."""
    scenario, config = scenarios.apply_overrides(scenario, scenario.training, "settings")
    check_combinations(config)
    check_harmless(scenario, "a scenario file")
    if isinstance(scenario.game, DoomSpec):
        doom_setup.check(scenario.game, scenario.observation)


def tomls(folder: Path) -> Door:
    """Returns the door for scenario files: JSON that is written as TOML, or TOML itself."""
    path = folder / "input.toml"

    def take(data: bytes) -> None:
        try:
            text = toml_of(json.loads(data)).encode() if data.startswith(b"{") else data
        except (ValueError, RecursionError, AttributeError, TypeError):
            text = data
        path.write_bytes(text)
        _playable(catalog.find(str(path)))

    def mutate(mutator: Mutator, data: bytes) -> bytes:
        if data.startswith(b"{") and mutator.chance(0.9):
            return _json_mutation(mutator, data)
        if mutator.chance(0.2):
            return mutator.damaged(data)
        return mutator.line(data.decode("utf-8", "replace")).encode("utf-8", "replace")

    own = [
        path
        for name, path in catalog.list_scenario_files().items()
        if path.suffix == ".toml" and name in ("basic", "cartpole", "pong")
    ]
    texts = [path.read_bytes() for path in own]
    trees = [tomllib.loads(text.decode()) for text in texts]
    whole = [scenarios.to_plain(catalog.find(name)) for name in ("basic", "cartpole", "pong")]
    return Door([*texts, *(json.dumps(tree).encode() for tree in (*trees, *whole))], refusing(take), mutate, names())


def cfgs(folder: Path) -> Door:
    """Returns the door for ViZDoom's own configuration files."""
    path = folder / "input.cfg"
    shipped = [shipped_folder() / f"{name}.cfg" for name in ("basic", "deadly_corridor", "health_gathering")]
    for file in shipped:
        shutil.copy(file.with_suffix(".wad"), folder)

    def take(data: bytes) -> None:
        path.write_bytes(data)
        _playable(catalog.find(str(path)))

    def mutate(mutator: Mutator, data: bytes) -> bytes:
        if mutator.chance(0.15):
            return mutator.damaged(data)
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
    return Door([file.read_bytes() for file in shipped], refusing(take), mutate, words)


def doors() -> Mapping[str, Callable[[Path], Door]]:
    """Returns all doors by name, each made with a folder of its own."""
    from fuzzing.commands import commands  # late, as the next: they replace parts of the program
    from fuzzing.pushes import pushes

    return {
        "records": records,
        "tomls": tomls,
        "commands": commands,
        "pushes": pushes,
        "cfgs": cfgs,
        "checkpoints": checkpoints,
    }
