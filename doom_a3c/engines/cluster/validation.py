"""Validates pushes: types, shapes, sizes, and finite numbers.

The server validates a push before it counts it or learns from it. This protects weights, counters and files of a run from
broken hosts, not from hostile ones (docs/security.md).
"""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any

import numpy as np

from doom_a3c.agent.learner import LearnerMetrics
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.rollouts import make_blank_rollout
from doom_a3c.engines.cluster.messages import MAX_GIF_BYTES
from doom_a3c.record.metrics.progress import KIND, parse_moments
from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import first_line
from doom_a3c.settings.fields import parse_int

_MAX_WORKERS = 1024  # of a host with one worker per CPU
_MAX_FRAME_SKIP = 64  # as for --frame-skip
_MAX_ITEMS = 2**20  # of a list
_MAX_NUMBER = float(np.finfo(np.float32).max)  # logs are float32
_MAX_SQUARES = 1e60  # of reward sums, so that their total over a run stays finite
_COUNT = range(2**53)  # floats and JSON keep these exactly
_NUMBER = 0.0  # example of any finite float32


class InvalidPushError(Exception):
    """A push that no working host of this run sends; the message says why."""


class PushRules:
    """The rules for the pushes of a run, from its settings and its network."""

    def __init__(self, config: Config, network: ACNetwork) -> None:
        self._sends_gradients = config.transport == "gradients"
        # While a push waits for its answer, each worker may have played for it and for the next one.
        waiting = 2 * (config.workers or _MAX_WORKERS) * config.accumulate
        rollouts = config.push_rollouts + waiting if self._sends_gradients else 1  # at most
        self._steps, self._actions = rollouts * config.steps_per_rollout, network.distribution.size
        self._norm = 1.01 * rollouts * config.max_grad_norm  # of a sum of clipped gradients, with room for rounding
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
            "rollout": None if self._sends_gradients else _make_rollout_example(config, network),
            "gifs": [{"data": _check_bytes, "score": _NUMBER, **gif_numbers}],
        }
        size = sum(math.prod(parameter.shape) for parameter in network.parameters)
        metrics = dict.fromkeys(LearnerMetrics._fields, _NUMBER)
        self._example_learned = {**self._example, "gradients": np.zeros(size, np.float32), "metrics": metrics}

    def check(self, push: object) -> None:
        """Raises InvalidPushError unless `push`, which may be any object, fits this run."""
        try:
            self._check(push)
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidPushError(first_line(error)) from None

    def _check(self, push: Any) -> None:
        learned = self._sends_gradients and type(push) is dict and push.get("gradients") is not None
        _check_like(push, self._example_learned if learned else self._example, "push")
        if learned:
            with np.errstate(over="ignore"):  # an infinite norm is too large, too
                norm = np.linalg.norm(push["gradients"])
            _require(norm <= self._norm, f"the norm of its gradients is {norm:.3g}; the maximum is {self._norm:.3g}")
        elif push["rollout"] is not None and (actions := push["rollout"]["actions"]).dtype.kind == "i":
            known = actions.min() >= 0 and actions.max() < self._actions  # TensorFlow fails on unknown actions
            _require(known, f"an action of its rollout is not one of the {self._actions}")


def _make_rollout_example(config: Config, network: ACNetwork) -> dict[str, Any]:
    pixels = np.zeros((config.envs_per_worker, *(network.inputs.pixels or ())), np.uint8)
    variables = np.zeros((config.envs_per_worker, network.inputs.variables), np.float32)
    start = tuple(map(np.asarray, network.initial_state(config.envs_per_worker)))
    observations = network.inputs.join(pixels, variables)
    return make_blank_rollout(observations, config.rollout_length, start, network.distribution)._asdict()


def is_count(value: object) -> bool:
    """Returns whether `value` is an integer in the range of the counters."""
    return type(value) is int and value in _COUNT


def _require(holds: bool | np.bool_, complaint: str) -> None:
    if not holds:
        raise ValueError(complaint)


def _check_moments(moments: Any, most: int) -> None:
    _require(parse_moments(moments, most).m2 <= _MAX_SQUARES, "its reward_sums are too large")


def _check_bytes(data: Any) -> None:
    fits = type(data) is np.ndarray and (data.dtype, data.ndim) == (np.uint8, 1) and data.size <= MAX_GIF_BYTES
    _require(fits, f"the data of its gif is not an array of at most {MAX_GIF_BYTES} bytes")


def _check_like(part: Any, like: Any, name: str) -> None:
    """Raises ValueError unless a part of a push has the structure, types, shapes and ranges of an example."""
    match like:
        case dict():
            _require(type(part) is dict and part.keys() == like.keys(), f"its {name} does not have the parts {list(like)}")
            for key in like:
                _check_like(part[key], like[key], key)
        case tuple():
            _require(type(part) is tuple and len(part) == len(like), f"its {name} is not a tuple of {len(like)}")
            for one, example in zip(part, like, strict=True):
                _check_like(one, example, name)
        case list():
            _require(type(part) is list and len(part) <= _MAX_ITEMS, f"its {name} is not a list of at most {_MAX_ITEMS}")
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
            _require(type(part) is str and like.fullmatch(part) is not None, f"its {name} holds an unknown kind of fault")
        case None:
            _require(part is None, f"its {name} must be None in this run")
        case _:  # a function that checks the part
            like(part)
