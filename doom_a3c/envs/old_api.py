"""Recognizes environments for gym, Gymnasium's predecessor, by their `reset`, `step`, spaces and registry."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any

import gymnasium

from doom_a3c.settings.errors import UserError

REPLACED = "gym, which Gymnasium has replaced: write import gymnasium as gym"


class CheckedCalls(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Checks the signature of an environment's `reset`, and the results of `reset` and `step`. Owns nothing."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        """Raises UserError if `reset` does not accept `seed` and `options`."""
        super().__init__(env)
        self._name = name_env(env)
        try:
            signature = inspect.signature(env.reset)
        except ValueError:  # a function in C has no signature
            return
        try:
            signature.bind(seed=None, options=None)
        except TypeError:
            raise UserError(
                f"{self._name}: reset{signature} must accept Gymnasium's arguments: reset(self, *, seed=None, options=None)"
            ) from None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        """Starts an episode; raises UserError unless `reset` returns an observation and infos."""
        result: Any = self.env.reset(seed=seed, options=options)
        if isinstance(result, tuple | list) and len(result) == 2 and isinstance(result[1], Mapping | None):
            return result
        raise UserError(
            f"{self._name}: reset() returns {_describe_result(result)}, but Gymnasium expects 2: observation, info (a dict)"
        )

    def step(self, action: Any) -> Any:
        """Plays a step; raises UserError unless `step` returns five values."""
        result: Any = self.env.step(action)
        if isinstance(result, tuple | list) and len(result) == 5:
            return result
        raise UserError(
            f"{self._name}: step() returns {_describe_result(result)}, but Gymnasium expects 5: observation, reward, "
            "terminated, truncated (by a time limit), info"
        )


def _describe_result(result: Any) -> str:
    if isinstance(result, tuple):
        return f"{len(result)} values{', as in gym' * (len(result) == 4)}"
    return f"1 value, {type(result).__name__}{', as in gym' * (result is not None)}"


def name_env(env: gymnasium.Env[Any, Any]) -> str:
    """Returns the id of an environment, or its class if it has none."""
    return env.spec.id if env.spec else type(env.unwrapped).__name__


def check_calls(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Returns the environment with its outermost layer that is not Gymnasium's own inside `CheckedCalls`.

    The checks must be inside Gymnasium's wrappers, which rely on them. Layers further in stay unchecked: a user's wrapper
    may call methods of theirs that `CheckedCalls` lacks.
    """
    if type(env).__module__.startswith("gymnasium."):
        if isinstance(env, gymnasium.Wrapper):
            env.env = check_calls(env.env)
        return env
    return CheckedCalls(env)


def check_space(name: str, space: Any) -> None:
    """Raises UserError for a space of gym: its classes have the same names as Gymnasium's, but are different classes."""
    if type(space).__module__.split(".")[0] == "gym":
        raise UserError(f"{name}: its {type(space).__name__} is a space of {REPLACED}")


def suggest_gymnasium(game_id: str, error: BaseException) -> str:
    """Returns the reason if Gymnasium does not know a game because it was written for gym, else ''."""
    missing = error.__cause__ if isinstance(error.__cause__, ModuleNotFoundError) else error
    if isinstance(missing, ModuleNotFoundError) and str(missing.name).split(".")[0] == "gym":
        return f"its module imports {REPLACED}"
    registry: Any = getattr(getattr(sys.modules.get("gym"), "envs", None), "registry", {})
    if game_id.rpartition(":")[2] in getattr(registry, "env_specs", registry):  # `env_specs` in gym before 0.26
        return f"its module registers it with {REPLACED}"
    return "it is a class of " + REPLACED if str(error).startswith("Gym is incompatible with Gymnasium") else ""
