"""What a push must be. Hosts may be broken: one bad push must not end a run, nor spoil its weights, counters or files.

A server checks every push once, before anything of it is counted or learned from. The limits follow from the settings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from doom_a3c.agent.learner import LearnerMetrics
from doom_a3c.agent.networks import ACNetwork, Inputs
from doom_a3c.agent.player import Episode
from doom_a3c.agent.rollouts import Rollout, blank_rollout
from doom_a3c.engines.cluster.messages import MAX_GIF_BYTES, Push
from doom_a3c.record.gifs import Gif
from doom_a3c.record.progress import KIND, MAX_MEAN
from doom_a3c.settings.config import Config

_MAX_WORKERS = 1024  # of a host that takes as many as it has CPUs; --workers may say no more
_MAX_FRAME_SKIP = 64  # as --frame-skip
_MAX_FAULTS = 10_000  # in one push
_MAX_COUNT = 2**53  # what logs and JSON keep exactly
_MAX_SQUARES = 1e60  # of what games pay, as a sum
_MAX_NUMBER = float(np.finfo(np.float32).max)  # logs are float32
_ROUNDING = 1.01  # of clipped gradients, and their sum
_OF_THE_HOST = {"push_seconds"}  # metrics that are not the update's


class InvalidPushError(Exception):
    """A push is not what a host of this run sends; the message says why, in a few words."""


def is_count(value: object, most: int = _MAX_COUNT) -> bool:
    """Tells whether something is a whole number from 0 to `most`."""
    return type(value) is int and 0 <= value <= most


def _is_number(value: object) -> bool:
    """Tells whether something is a finite number that logs can hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _MAX_NUMBER


def _need(holds: bool, complaint: str) -> None:
    if not holds:
        raise InvalidPushError(complaint)


class PushRules:
    """What the pushes of a run must be: a function of its settings and its network."""

    def __init__(self, config: Config, network: ACNetwork) -> None:
        self._transport, self._games = config.transport, config.games
        self._parameters = sum(math.prod(parameter.shape) for parameter in network.parameters)
        self._actions = network.distribution.size
        self._steps = config.games * config.rollout_length  # of a rollout
        self._rollouts = 1  # in a push, at most
        self._example: dict[str, Any] = {}
        if config.transport == "gradients":
            # Workers that have added to a push wait; till then each may have played for it, and for the next one.
            self._rollouts = config.push_rollouts + 2 * (config.workers or _MAX_WORKERS) * config.accumulate
        else:
            observations, start = _observations(network.inputs, config.games), network.initial_state(config.games)
            blank = blank_rollout(observations, config.rollout_length, start, network.distribution)
            self._example = blank._replace(core_state=tuple(map(np.asarray, start)))._asdict()
        self._norm = config.max_grad_norm * self._rollouts * _ROUNDING

    def check(self, push: object) -> None:
        """Returns if a host of this run could have sent `push`, whatever its type is; raises InvalidPushError else."""
        _need(isinstance(push, dict) and push.keys() == Push.__annotations__.keys(), "it lacks parts, or has others")
        assert isinstance(push, dict)
        _need(is_count(push["version"]), "its version is no count of updates")
        self._check_counts(push)
        self._check_episodes(push)
        self._check_faults(push)
        self._check_reward_sums(push)
        if self._transport == "gradients":
            self._check_gradients(push)
        else:
            self._check_rollout(push)
        self._check_metrics(push)
        _need(isinstance(push["gifs"], list) and len(push["gifs"]) <= 1, "its gifs are no list of one at most")
        for gif in push["gifs"]:
            _check_gif(gif)

    def _check_counts(self, push: Mapping[str, Any]) -> None:
        steps, frames, most = push["steps"], push["frames"], self._rollouts * self._steps
        whole = is_count(steps, most) and steps % self._steps == 0
        _need(whole, f"its steps are not those of whole rollouts, {most} at most")
        fit = is_count(frames) and steps <= frames <= steps * _MAX_FRAME_SKIP and (steps == 0 or frames % steps == 0)
        _need(fit, f"its frames are not 1 to {_MAX_FRAME_SKIP} for each step")

    def _check_episodes(self, push: Mapping[str, Any]) -> None:
        episodes = push["episodes"]
        _need(isinstance(episodes, list) and len(episodes) <= push["steps"], "it has more episodes than steps, or no list")
        for episode in episodes:
            _need(isinstance(episode, tuple | list) and len(episode) == len(Episode._fields), "an episode is not 5 numbers")
            score, length, value, game, shaped = episode
            _need(_is_number(score) and _is_number(shaped), "the score of an episode is not a finite number")
            _need(is_count(length) and length > 0, "the length of an episode is no number of steps")
            _need(_is_number(value), "the mean value of an episode is not a finite number")
            _need(is_count(game, self._games - 1), "the game of an episode is none of its worker's")

    def _check_faults(self, push: Mapping[str, Any]) -> None:
        faults = push["faults"]
        _need(isinstance(faults, list) and len(faults) <= _MAX_FAULTS, f"its faults are no list of {_MAX_FAULTS} at most")
        named = all(isinstance(kind, str) and KIND.fullmatch(kind) for kind in faults)
        _need(named, "a fault has no name of 40 small letters, digits and _ at most")

    def _check_reward_sums(self, push: Mapping[str, Any]) -> None:
        sums = push["reward_sums"]
        _need(isinstance(sums, list) and len(sums) == 3, "its sums of rewards are not told in 3 numbers")
        size, mean, m2 = sums
        _need(is_count(size, push["steps"]), "it has more sums of rewards than steps")
        _need(
            _is_number(mean) and abs(mean) <= MAX_MEAN and type(m2) is float and 0 <= m2 <= _MAX_SQUARES,
            "its sums of rewards have no finite mean and spread",
        )

    def _check_gradients(self, push: Mapping[str, Any]) -> None:
        gradients, not_finite = push["gradients"], push["not_finite"]
        _need(push["rollout"] is None, "it has a rollout, where gradients are sent")
        _need(is_count(not_finite, self._rollouts), "its count of gradients that were not finite is none")
        if gradients is None:
            _need(not_finite > 0, "it has no gradients")
            return
        vector = isinstance(gradients, np.ndarray) and gradients.dtype == np.float32
        _need(vector and gradients.shape == (self._parameters,), f"its gradients are not {self._parameters} float32")
        with np.errstate(all="ignore"):  # squares may overflow: then the norm is not what it must be
            norm = float(np.sqrt(np.dot(gradients, gradients)))
        _need(math.isfinite(norm), "its gradients are not finite")
        _need(norm <= self._norm, "its gradients are larger than clipped ones can be")

    def _check_rollout(self, push: Mapping[str, Any]) -> None:
        rollout = push["rollout"]
        _need(push["gradients"] is None and push["not_finite"] == 0, "it has gradients, where rollouts are sent")
        _need(push["steps"] == self._steps, f"its steps are not the {self._steps} of a rollout")
        _check_arrays("rollout", rollout, self._example)
        played = Rollout(**rollout)
        _need(bool(np.isin(played.resets, (0.0, 1.0)).all()), "the resets of its rollout are not all 0 or 1")
        _need(bool((abs(played.discounts - 0.5) <= 0.5).all()), "a discount of its rollout is not from 0 to 1")
        if np.issubdtype(played.actions.dtype, np.integer):
            known = (played.actions >= 0) & (played.actions < self._actions)
            _need(bool(known.all()), f"an action of its rollout is none of the {self._actions}")

    def _check_metrics(self, push: Mapping[str, Any]) -> None:
        metrics, needed = push["metrics"], LearnerMetrics._fields if push["gradients"] is not None else ()
        named = isinstance(metrics, dict) and metrics.keys() - _OF_THE_HOST == set(needed)
        _need(named, "its metrics are not those of an update")
        _need(all(map(_is_number, metrics.values())), "its metrics are not all finite numbers")


def _observations(inputs: Inputs, games: int) -> Any:
    """Returns observations of that many games as a network of these inputs sees them, zeros."""
    variables = np.zeros((games, inputs.variables), np.float32)
    if inputs.pixels is None:
        return variables
    pixels = np.zeros((games, *inputs.pixels), np.uint8)
    return {"pixels": pixels, "variables": variables} if inputs.variables else pixels


def _check_arrays(name: str, arrays: object, like: Any) -> None:
    """Raises InvalidPushError if there are other arrays than in `like`, of other shapes or types, or not finite."""
    if isinstance(like, dict):
        _need(isinstance(arrays, dict) and arrays.keys() == like.keys(), f"its {name} lacks arrays, or has others")
        assert isinstance(arrays, dict)
        for key in like:
            _check_arrays(key, arrays[key], like[key])
    elif isinstance(like, tuple):
        _need(isinstance(arrays, tuple) and len(arrays) == len(like), f"its {name} is not a tuple of {len(like)} arrays")
        assert isinstance(arrays, tuple)
        for part, model in zip(arrays, like, strict=True):
            _check_arrays(name, part, model)
    else:
        alike = isinstance(arrays, np.ndarray) and (arrays.dtype, arrays.shape) == (like.dtype, like.shape)
        _need(alike, f"the {name} of its rollout are not {like.dtype} of shape {like.shape}")
        assert isinstance(arrays, np.ndarray)
        _need(like.dtype.kind != "f" or bool(np.isfinite(arrays).all()), f"the {name} of its rollout are not finite")


def _check_gif(gif: object) -> None:
    _need(isinstance(gif, dict) and gif.keys() == set(Gif._fields), "its gif lacks parts, or has others")
    assert isinstance(gif, dict)
    data, width, height = gif["data"], gif["width"], gif["height"]
    array = isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 1
    _need(array and data.size <= MAX_GIF_BYTES, f"its gif is not an array of {MAX_GIF_BYTES} bytes at most")
    _need(is_count(width, 2**16 - 1) and is_count(height, 2**16 - 1), "its gif has no width and height")
    header = b"".join(side.to_bytes(2, "little") for side in (width, height))
    _need(data[:10].tobytes() in (b"GIF87a" + header, b"GIF89a" + header), "its gif is not one of that width and height")
    _need(_is_number(gif["score"]), "the score of its gif is not a finite number")
    numbered = is_count(gif["episode"]) and is_count(gif["worker"], _MAX_WORKERS - 1)
    _need(numbered, "its gif names no episode and worker")  # they make the name of a file
