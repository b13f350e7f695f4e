"""Environments that a function of the user's program makes, such as a class, or a lambda that adds wrappers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import cloudpickle
import gymnasium
from gymnasium.vector import VectorEnv

from doom_a3c.envs.old_api import REPLACED
from doom_a3c.settings.errors import UserError, first_line

if TYPE_CHECKING:
    from doom_a3c.envs.processes.supervisor import MakeEnv

RAISED = (Exception, SystemExit)  # exceptions that a user's environment may raise


def call_function(make_env: MakeEnv, name: str) -> gymnasium.Env[Any, Any]:
    """Returns a new environment.

    Raises:
        UserError: if the function fails, or returns anything but a Gymnasium environment.
    """
    try:
        env: Any = make_env()
    except RAISED as error:
        raise UserError(f"{name}: {type(error).__name__}: {first_line(error)}") from error
    if isinstance(env, gymnasium.Env):
        return env
    if isinstance(env, VectorEnv):
        cure = "return a single environment; envs_per_worker sets the number of games"
    elif any(each.__module__.partition(".")[0] == "gym" for each in type(env).__mro__):
        cure = f"it is a class of {REPLACED}"
    else:
        cure = "return a gymnasium.Env"
    raise UserError(f"{name}: the function returned {type(env).__name__}: {cure}")


def name_function(make_env: MakeEnv) -> str:
    """Returns the id of the environments that a function makes, such as 'MyEnv()'; makes two of them as a check.

    Raises:
        UserError: unless each call makes a new environment, with the same spaces.
    """
    name = getattr(make_env, "__name__", "env")
    envs: list[gymnasium.Env[Any, Any]] = []
    try:
        envs += [call_function(make_env, name)]
        envs += [call_function(make_env, name)]
        if envs[0].unwrapped is envs[1].unwrapped:
            raise UserError(f"{name}: the function returned the same environment twice: make a new one in each call")
        for space in ("observation_space", "action_space"):
            if getattr(envs[0], space, None) != getattr(envs[1], space, None):
                raise UserError(f"{name}: two calls of the function made environments of different {space}")
        return f"{type(envs[0].unwrapped).__name__[:100]}()"
    except UserError:
        raise
    except RAISED as error:
        raise UserError(f"{name}: {type(error).__name__}: {first_line(error)}") from error
    finally:
        for env in envs:
            with contextlib.suppress(*RAISED):
                env.close()


def check_can_be_sent(make_env: MakeEnv, name: str) -> None:
    """Raises UserError unless a function can be sent to a game server."""
    try:
        cloudpickle.dumps(make_env)
    except Exception as error:
        raise UserError(
            f"game_processes: the function that makes {name} cannot be sent to a process ({first_line(error)}): "
            "leave game_processes out"
        ) from error
