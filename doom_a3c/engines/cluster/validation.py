"""Checks types, shapes, sizes and finiteness of pushes, against broken hosts, not hostile ones (docs/security.md)."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from doom_a3c.agent.distributions import Actions
from doom_a3c.agent.inputs import Observations
from doom_a3c.agent.learner import LearnerMetrics
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.player import Episode
from doom_a3c.agent.rollouts import RolloutStats, make_blank_rollout
from doom_a3c.algorithm.running_moments import RunningMoments
from doom_a3c.engines.cluster.messages import MAX_COUNT, MAX_GIF_BYTES, GifMessage
from doom_a3c.engines.cluster.send_buffer import make_push
from doom_a3c.record.metrics.counters import KIND, parse_moments
from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import first_line
from doom_a3c.settings.fields import parse_finite, parse_int

MAX_WORKERS, MAX_FRAME_SKIP = 1024, 64  # as for --workers and --frame-skip
MAX_NUMBER = float(np.finfo(np.float32).max)  # logs are float32


class InvalidPushError(Exception):
    """A push that no working host of this run sends; the message names the wrong part."""


class PushRules:
    """Compares the pushes of a run with an example, whose counts are maxima."""

    def __init__(self, config: Config, network: ACNetwork) -> None:
        # While a push awaits its answer, each worker may have contributed to it and to the next one.
        most = config.push_rollouts + 2 * MAX_WORKERS * config.accumulate if config.sends_gradients else 1  # rollouts
        self._norm = 1.01 * most * config.max_grad_norm  # of a sum of clipped gradients, with room for rounding
        self._distribution, steps = network.distribution, most * config.steps_per_rollout
        episode, moments = Episode(0.0, MAX_COUNT, 0.0, MAX_COUNT, 0.0), RunningMoments(steps, 0.0, 0.0)
        push = make_push(MAX_COUNT, RolloutStats(steps, steps * MAX_FRAME_SKIP, [], [episode], ["kind"], moments))
        gif: dict[str, Any] = {**dict.fromkeys(GifMessage.__annotations__, MAX_COUNT), "score": 0.0}
        gif["data"] = np.zeros(MAX_GIF_BYTES, np.uint8)
        self._example = self._learned = {**push, "gifs": [gif]}
        if config.sends_gradients:
            self._example["not_finite"] = most
            gradients = np.zeros(sum(math.prod(parameter.shape) for parameter in network.parameters), np.float32)
            metrics = dict.fromkeys(LearnerMetrics._fields, 0.0)
            self._learned = {**self._example, "gradients": gradients, "metrics": metrics}
        else:
            start = tuple(map(np.asarray, network.initial_state(config.envs_per_worker)))
            zeros = network.inputs.make_zeros(config.envs_per_worker)
            rollout = make_blank_rollout(zeros, config.rollout_length, start, network.distribution)
            self._example["rollout"] = rollout._asdict()

    def check(self, push: Any) -> None:
        """Raises InvalidPushError unless `push`, which may be any object, fits this run."""
        try:
            gradients = push.get("gradients") if type(push) is dict else None
            _check_like(push, self._example if gradients is None else self._learned, "push")
            parse_moments(push["reward_sums"])
            if gradients is not None and not (norm := np.linalg.norm(gradients.astype(np.float64))) <= self._norm:
                raise ValueError(f"its gradients have a norm of {norm:.3g}, {self._norm:.3g} at most")
            if push["rollout"] is not None:
                self._check_actions(**push["rollout"])
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidPushError(first_line(error)) from None

    def _check_actions(self, *, actions: Actions, observations: Observations, **others: object) -> None:
        """Raises ValueError unless the game has, and allows, the actions of a rollout."""
        if not self._distribution.is_valid(actions):
            raise ValueError(f"its actions are none of {self._distribution}")  # TensorFlow would fail on them
        if isinstance(observations, dict) and "mask" in observations:
            taken = self._distribution.encode(actions.reshape(-1, *self._distribution.action_shape))
            if (taken > observations["mask"][:-1].reshape(taken.shape)).any():
                raise ValueError("it takes actions that the masks beside them forbid")


def _check_like(part: Any, like: Any, name: str) -> None:
    """Raises ValueError unless a part of a push fits the example's; a list of one in the example stands for any length."""
    fits = type(part) is type(like)
    match like:
        case int():
            fits = parse_int(part, f"its {name}", high=like) >= 0
        case float():
            fits = abs(parse_finite(part, f"its {name}")) <= MAX_NUMBER
        case str():
            fits = fits and KIND.fullmatch(part) is not None
        case np.ndarray():
            fits = fits and part.dtype == like.dtype and (part.shape == like.shape or (name == "data" and part.ndim == 1))
            fits = fits and part.size <= like.size and (like.dtype.kind != "f" or bool(np.isfinite(part).all()))
        case dict():
            fits = fits and part.keys() == like.keys()
        case tuple() | list():
            fits = fits and (len(part) == len(like) or (type(like) is list and len(like) == 1))
    if not fits:
        shape = f" of {like.dtype} {like.shape}, finite," if isinstance(like, np.ndarray) else ""
        raise ValueError(f"its {name} is not a {type(like).__name__}{shape} as hosts of this run send")
    if isinstance(like, dict):
        for key in like:
            _check_like(part[key], like[key], key)
    elif isinstance(like, tuple | list):
        for one, example in zip(part, itertools.cycle(like), strict=False):
            _check_like(one, example, name)
