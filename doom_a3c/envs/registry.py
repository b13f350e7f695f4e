"""Registers every scenario with Gymnasium when this package is imported: `gymnasium.make("doom_a3c/Basic-v0")`.

Without the import, use `gymnasium.make("doom_a3c:doom_a3c/Basic-v0")`: Gymnasium 1.0 dropped the plugins that would make
the prefix unnecessary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gymnasium
from gymnasium.envs.registration import register, registry
from gymnasium.vector import VectorEnv

from doom_a3c.settings.catalog import list_own_names

if TYPE_CHECKING:
    from doom_a3c.envs.factory import GameFactory

NAMESPACE = "doom_a3c"


def list_ids() -> dict[str, str]:
    """Returns the scenarios by id: {'doom_a3c/DeadlyCorridor-v0': 'deadly_corridor', ...}."""
    return {f"{NAMESPACE}/{_to_camel_case(name)}-v0": name for name in list_own_names() if "/" not in name}


def _to_camel_case(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def register_all() -> None:
    """Registers every scenario that has a file in scenarios/."""
    for id_, scenario in list_ids().items():
        if id_ not in registry:
            register(
                id=id_,
                entry_point="doom_a3c.envs.registry:make",
                vector_entry_point="doom_a3c.envs.registry:make_vec",
                kwargs={"scenario": scenario},
                disable_env_checker=True,  # tests check it, and a check costs an episode
                order_enforce=False,
            )


def make(scenario: str, render_mode: str | None = "rgb_array", frame_skip: int | None = None) -> gymnasium.Env[Any, Any]:
    """Returns one game of a scenario, with the observations and actions of its agent.

    Args:
        scenario: a name, a file or a Gymnasium id, as `--scenario` takes it.
        render_mode: 'rgb_array', or None.
        frame_skip: frames per step; None is the scenario's.

    Raises:
        UserError: if there is no such scenario, or it cannot be played.
    """
    return _make_factory(scenario, frame_skip).make_single(render_mode)


def make_vec(
    scenario: str,
    num_envs: int = 1,
    processes: int | None = None,
    frame_skip: int | None = None,
    render_mode: str | None = "rgb_array",
) -> VectorEnv[Any, Any, Any]:
    """Returns `num_envs` games of a scenario, stepped together; Doom runs in `processes` game servers.

    The step that ends an episode also resets the game (`AutoresetMode.SAME_STEP`). Raises as `make` does.
    """
    return _make_factory(scenario, frame_skip, processes).make_vector(num_envs, limited=True)


def _make_factory(scenario: str, frame_skip: int | None, processes: int | None = None) -> GameFactory:
    from doom_a3c.envs.games import make_game_factory  # late: games need many modules
    from doom_a3c.settings.catalog import find
    from doom_a3c.settings.scenarios import apply_overrides

    found, _ = apply_overrides(find(scenario), {"frame_skip": frame_skip}, scenario)
    return make_game_factory(found.game, found.observation, processes)
