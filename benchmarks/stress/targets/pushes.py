"""The target for pushes, which a cluster's hosts send to the parameter server."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import numpy as np

from benchmarks.stress.targets.guards import FindingError
from benchmarks.stress.targets.mutations import Mutator, mutate_json
from benchmarks.stress.targets.target import Target
from doom_a3c.agent.distributions import Categorical
from doom_a3c.agent.inputs import Inputs
from doom_a3c.agent.learner import LearnerMetrics
from doom_a3c.agent.model import GlobalModel, flatten
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.rollouts import Rollout, VersionedRollout, make_blank_rollout
from doom_a3c.algorithm.optimizers import make_optimizer
from doom_a3c.engines.channel import Channel
from doom_a3c.engines.cluster.messages import Push, Verdict
from doom_a3c.engines.cluster.server import ParameterServer
from doom_a3c.engines.local import capture_state
from doom_a3c.record.metrics.counters import to_plain
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.network import Network

GAMES, STEPS = 2, 4
MAX_NUMBERS = 2**22  # in an array that a mutation asks for: this program would allocate it
RENEW_AFTER = 2000  # pushes, of which many are counted and leave a member behind
ARRAY = "array"  # marks an array in JSON: type, shape and the value of all its numbers
TUPLE = "a tuple"
SETTINGS = {"engine": "cluster", "workers": 1, "envs_per_worker": GAMES, "rollout_length": STEPS, "frames": 2**60}


class FittingRollouts(Channel[VersionedRollout]):
    """The trainer's queue, which raises FindingError at a rollout that the trainer would fail on."""

    def __init__(self, example: Rollout) -> None:
        super().__init__(1)
        self._example = example

    def wait_for_room(self, seconds: float) -> None:
        """Returns at once: nothing is queued."""

    def offer(self, item: VersionedRollout) -> bool:
        """Drops a rollout; raises FindingError unless it has the shapes and types of a real one."""
        example: tuple[Any, ...] = self._example
        for name, given, real in zip(Rollout._fields, item.rollout, example, strict=True):
            pairs = zip(given, real, strict=False) if name == "core_state" else [(given, real)]
            for array, like in pairs:
                fits = isinstance(array, np.ndarray) and array.shape == like.shape and array.dtype == like.dtype
                if not fits:
                    raise FindingError(f"a rollout with misfit {name} reaches the trainer")
        return True


class Servers:
    """A server for each transport. Owns them and their model."""

    def __init__(self) -> None:
        spec = Network(convolutions=((4, 3, 3),), hidden=(8,), core_size=4)
        network = ACNetwork(spec, Inputs((6, 6, 1), 0), Categorical(3), 0, "global", "float32")
        self._trainer = ACNetwork(spec, Inputs((6, 6, 1), 0), Categorical(3), 1, "trainer", "float32")
        self._model = GlobalModel(network, make_optimizer("adam", network.parameters, None))
        self._start = capture_state(self._model, Progress())
        self.size = len(flatten(network.parameters))
        observations = np.zeros((GAMES, 6, 6, 1), np.uint8)
        core_state = tuple(np.asarray(part) for part in network.initial_state(GAMES))
        self.blank = make_blank_rollout(observations, STEPS, core_state, network.distribution)
        self._servers: dict[str, tuple[ParameterServer, Progress]] = {}
        self._pushes = self._generation = 0

    def get(self, transport: str) -> tuple[ParameterServer, Progress]:
        """Returns a running server, and its progress."""
        self._pushes += 1
        if self._pushes % RENEW_AFTER == 0:
            self.renew()
        if transport not in self._servers:
            config = Config(**SETTINGS, transport=transport)  # type: ignore[arg-type]  # of several types
            progress = Progress()
            server = ParameterServer(config, self._model, progress, self._trainer, rollouts=FittingRollouts(self.blank))
            state = self._start
            server.start({"variables": state.variables, "counters": to_plain(state.counters), "members": {}}, {})
            self._servers[transport] = server, progress
        return self._servers[transport]

    def enroll_next(self, server: ParameterServer) -> int:
        """Returns the generation of a new process of host a: earlier ones may have been fenced off."""
        self._generation += 1
        server.enroll({"a": self._generation})
        return self._generation

    def renew(self) -> None:
        """Ends all servers: the next push gets new ones, with the first weights."""
        for server, _ in self._servers.values():
            server.stop()
        self._servers.clear()

    def check(self, server: ParameterServer, progress: Progress, frames: int) -> None:
        """Raises FindingError if a push has done harm; `frames` is the count before it."""
        counters = to_plain(progress.counters(curve=False))
        numbers = [counters[name] for name in ("frames", "steps", "updates", "episodes")]
        if any(type(number) is not int for number in numbers) or counters["frames"] < frames:
            raise FindingError("a push makes counters smaller, or not numbers")
        try:
            json.dumps(counters, allow_nan=False)
        except (TypeError, ValueError):
            raise FindingError("a push leaves a run that cannot be saved, or read back") from None
        if server.status()["over"]:
            raise FindingError("a push ends the run")
        if not np.isfinite(self._model.read_weights()[0]).all():
            raise FindingError("a push makes weights that are not finite")


def make_pushes_target(folder: Path) -> Target:
    """Returns the target. An input is JSON: transport, host, generation (0 is right), sequence, push, known version."""
    servers = Servers()

    def take(data: bytes) -> bool:
        try:
            tree = json.loads(data)
        except (ValueError, RecursionError):
            return False
        if not isinstance(tree, list) or len(tree) != 6:
            return False
        transport, host, generation, sequence, push, version = map(_decode, tree)
        server, progress = servers.get("rollouts" if transport == "rollouts" else "gradients")
        frames = progress.frames
        newest = servers.enroll_next(server)
        generation = generation + newest if type(generation) is int else generation
        try:
            answer = server.push(host, generation, sequence, push, version)
            servers.check(server, progress, frames)
        except UserError:
            return False
        except BaseException:
            servers.renew()
            raise
        if answer["verdict"] not in get_args(Verdict):
            raise FindingError(f"answer {answer['verdict']!r}")
        return answer["verdict"] in ("applied", "stale")

    seeds = [json.dumps(each).encode() for each in _make_seeds(servers)]
    words = (*Rollout._fields, "version", "steps", "float64", "uint8", "object", "int32", "<U3", ARRAY, "engine_died")
    return Target(seeds, take, _mutate, words)


def _make_seeds(servers: Servers) -> list[Any]:
    metrics = dict.fromkeys(LearnerMetrics._fields, 0.5)
    push: dict[str, Any] = dict.fromkeys(Push.__annotations__)
    push |= {"version": 0, "steps": 8, "frames": 32, "not_finite": 0, "metrics": {}, "push_seconds": 0.5}
    push |= {"episodes": [_tuple([1.5, 12, 0.25, 0, 1.75])], "faults": ["engine_died"], "reward_sums": [8, 0.5, 2.0]}
    data = _array("uint8", [10], list(b"GIF89a\4\0\4\0"))
    gif = {"data": data, "height": 4, "width": 4, "score": 1.5, "episode": 1, "worker": 0}
    gradients = {**push, "gradients": _array("float32", [servers.size], 0.001), "metrics": metrics, "gifs": [gif]}
    encoded = {name: _encode(value) for name, value in servers.blank._asdict().items()}
    rollout = {**push, "gifs": [], "rollout": encoded}
    return [["gradients", "a", 0, 1, gradients, -1], ["rollouts", "a", 0, 1, rollout, 0]]


def _array(kind: str, shape: list[int], value: Any) -> dict[str, Any]:
    return {ARRAY: [kind, shape, value]}


def _encode(value: Any) -> Any:
    return _tuple(map(_encode, value)) if isinstance(value, tuple) else _array(str(value.dtype), list(value.shape), 0)


def _tuple(parts: Iterable[Any]) -> dict[str, Any]:
    return {TUPLE: list(parts)}


def _decode(tree: Any) -> Any:
    """Returns plain data with its marked arrays and tuples built, and the rest unchanged."""
    match tree:
        case list():
            return list(map(_decode, tree))
        case {"a tuple": list(parts), **others} if not others:
            return tuple(map(_decode, parts))
        case {"array": marked, **others} if not others:
            return _make_array(marked, tree)
        case dict():
            return {key: _decode(value) for key, value in tree.items()}
    return tree


def _make_array(marked: Any, tree: Any) -> Any:
    """Returns the marked array, or `tree` if it cannot be built."""
    try:
        kind, shape, value = marked
        if np.prod(np.asarray(shape, np.float64)) > MAX_NUMBERS:
            return tree
        with np.errstate(all="ignore"):
            return np.full(shape, value, np.dtype(kind))
    except (TypeError, ValueError, OverflowError, MemoryError):
        return tree


def _mutate(mutator: Mutator, data: bytes) -> bytes:
    changed = mutate_json(data, mutator.tree)
    return mutator.damage(data) if changed is None else changed
