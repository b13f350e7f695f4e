"""Checks what hosts push: types, shapes, sizes, and that all numbers are finite.

The server checks a push before it counts or learns from any of it. This guards a run's weights, counters and files against
a host that is broken, not against one that is hostile (docs/security.md).
"""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any

import numpy as np

from doom_a3c.agent.learner import LearnerMetrics
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.rollouts import blank_rollout
from doom_a3c.engines.cluster.messages import MAX_GIF_BYTES
from doom_a3c.record.metrics.progress import KIND, parse_moments
from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import first_line
from doom_a3c.settings.fields import parse_int

_MAX_WORKERS = 1024  # of a host that has as many as it has CPUs
_MAX_FRAME_SKIP = 64  # that of --frame-skip
_MAX_ITEMS = 2**20  # of a list
_MAX_NUMBER = float(np.finfo(np.float32).max)  # logs are float32
_MAX_SQUARES = 1e60  # of rewards, so that their sum over a run stays finite
_COUNT = range(2**53)  # floats and JSON keep these exactly
_NUMBER = 0.0  # stands for any finite float32


class InvalidPushError(Exception):
    """A push that no host of this run sends; the message says why."""


class PushRules:
    """What the pushes of one run must look like, by its settings and its network."""

    def __init__(self, config: Config, network: ACNetwork) -> None:
        self._sends_gradients = config.transport == "gradients"
        # Workers that wait for a push to be answered may each have played for it, and for the next one.
        waiting = 2 * (config.workers or _MAX_WORKERS) * config.accumulate
        rollouts = config.push_rollouts + waiting if self._sends_gradients else 1  # at most
        self._steps, self._actions = rollouts * config.envs_per_worker * config.rollout_length, network.distribution.size
        self._norm = 1.01 * rollouts * config.max_grad_norm  # of a sum of clipped gradients, rounded
        gif_numbers = dict.fromkeys(("height", "width", "episode", "worker"), _COUNT)
        self._example = {
            "version": _COUNT,
            "steps": range(self._steps + 1),
            "frames": range(self._steps * _MAX_FRAME_SKIP + 1),
            "episodes": [(_NUMBER, _COUNT, _NUMBER, _COUNT, _NUMBER)],
            "faults": [KIND],
            "reward_sums": partial(_check_moments, most=self._steps),
            "gradients": None,
            "not_finite": range(rollouts + 1 if self._sends_gradients else 1),
            "metrics": {},
            "push_seconds": _NUMBER,
            "rollout": None if self._sends_gradients else _blank_rollout(config, network),
            "gifs": [{"data": _check_bytes, "score": _NUMBER, **gif_numbers}],
        }
        size = sum(math.prod(parameter.shape) for parameter in network.parameters)
        metrics = dict.fromkeys(LearnerMetrics._fields, _NUMBER)
        self._example_learned = {**self._example, "gradients": np.zeros(size, np.float32), "metrics": metrics}

    def check(self, push: object) -> None:
        """Raises InvalidPushError unless a host of this run could have sent `push`, which may be any object."""
        try:
            self._check(push)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidPushError(first_line(error)) from None

    def _check(self, push: Any) -> None:
        learned = self._sends_gradients and type(push) is dict and push.get("gradients") is not None
        _check_like(push, self._example_learned if learned else self._example, "push")
        if learned:
            with np.errstate(over="ignore"):  # to an infinite norm, which is too large as well
                norm = np.linalg.norm(push["gradients"])
            _require(norm <= self._norm, f"the norm of its gradients is {norm:.3g}, {self._norm:.3g} at most is possible")
        elif push["rollout"] is not None and (actions := push["rollout"]["actions"]).dtype.kind == "i":
            known = actions.min() >= 0 and actions.max() < self._actions  # TensorFlow fails at others
            _require(known, f"an action of its rollout is none of the {self._actions}")


def _blank_rollout(config: Config, network: ACNetwork) -> dict[str, Any]:
    pixels = np.zeros((config.envs_per_worker, *(network.inputs.pixels or ())), np.uint8)
    variables = np.zeros((config.envs_per_worker, network.inputs.variables), np.float32)
    start = tuple(map(np.asarray, network.initial_state(config.envs_per_worker)))
    observations = network.inputs.joined(pixels, variables)
    return blank_rollout(observations, config.rollout_length, start, network.distribution)._asdict()


def is_count(value: object) -> bool:
    """Tells whether `value` is a whole number that the counters can hold."""
    return type(value) is int and value in _COUNT


def _require(holds: bool | np.bool_, complaint: str) -> None:
    if not holds:
        raise ValueError(complaint)


def _check_moments(moments: Any, most: int) -> None:
    _require(parse_moments(moments, most).m2 <= _MAX_SQUARES, "its reward_sums are too large")


def _check_bytes(data: Any) -> None:
    fits = type(data) is np.ndarray and (data.dtype, data.ndim) == (np.uint8, 1) and data.size <= MAX_GIF_BYTES
    _require(fits, f"the data of its gif is not {MAX_GIF_BYTES} bytes at most")


def _check_like(part: Any, like: Any, name: str) -> None:
    """Raises ValueError unless a part of a push has the structure, the types, the shapes and the ranges of an example."""
    match like:
        case dict():
            _require(type(part) is dict and part.keys() == like.keys(), f"its {name} has other parts than {list(like)}")
            for key in like:
                _check_like(part[key], like[key], key)
        case tuple():
            _require(type(part) is tuple and len(part) == len(like), f"its {name} is not a tuple of {len(like)}")
            for one, example in zip(part, like, strict=True):
                _check_like(one, example, name)
        case list():
            _require(type(part) is list and len(part) <= _MAX_ITEMS, f"its {name} is not a list of {_MAX_ITEMS} at most")
            for one in part:
                _check_like(one, like[0], name)
        case np.ndarray():
            fits = type(part) is np.ndarray and (part.dtype, part.shape) == (like.dtype, like.shape)
            _require(fits, f"its {name} is not {like.dtype} of shape {like.shape}")
            _require(like.dtype.kind != "f" or np.isfinite(part).all(), f"its {name} is not finite")
        case range():
            parse_int(part, f"its {name}", high=like.stop - 1)
        case float():
            fits = isinstance(part, int | float) and type(part) is not bool and abs(part) <= _MAX_NUMBER
            _require(fits, f"its {name} is {str(part)[:40]}, not a finite float32")
        case re.Pattern():
            _require(type(part) is str and like.fullmatch(part) is not None, f"its {name} has a name that no fault has")
        case None:
            _require(part is None, f"its {name} is not what this run sends")
        case _:  # a check of its own
            like(part)
