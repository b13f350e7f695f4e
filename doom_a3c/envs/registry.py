"""Every scenario in Gymnasium's registry, as soon as this package is imported: `gymnasium.make("doom_a3c/Basic-v0")`.

Gymnasium imports it itself for `gymnasium.make("doom_a3c:doom_a3c/Basic-v0")`; entry points of plugins, by which it needed
no such word, are gone since its version 1.0.
"""

from __future__ import annotations

from typing import Any

from gymnasium.envs.registration import register, registry

from doom_a3c.settings.catalog import list_own_names

NAMESPACE = "doom_a3c"


def list_ids() -> dict[str, str]:
    """Returns the scenarios by their ids: 'doom_a3c/DeadlyCorridor-v0' is deadly_corridor."""
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
                disable_env_checker=True,  # it is checked by tests, and the check costs an episode
                order_enforce=False,
            )


def make(scenario: str, render_mode: str | None = "rgb_array", frame_skip: int | None = None) -> Any:
    """Returns one game of a scenario, as its agent sees it.

    Args:
        scenario: a name, a file or a Gymnasium id, as `--scenario` takes it.
        render_mode: 'rgb_array', or None.
        frame_skip: frames that a step lasts; None is what the scenario says.

    Raises:
        UserError: if there is no such scenario, or it cannot be played.
    """
    games = _make_factory(scenario, frame_skip)
    return games.make_single(render_mode)


def make_vec(
    scenario: str,
    num_envs: int = 1,
    processes: int | None = None,
    frame_skip: int | None = None,
    render_mode: str | None = "rgb_array",
) -> Any:
    """Returns games of a scenario that are stepped together, Doom's in `processes` of their own; raises as `make` does.

    They are reset in the step that ends an episode (`AutoresetMode.SAME_STEP`).
    """
    return _make_factory(scenario, frame_skip, processes).make_vector(num_envs, limited=True)


def _make_factory(scenario: str, frame_skip: int | None, processes: int | None = None) -> Any:
    from doom_a3c.envs.games import make_game_factory  # late, as all that a game needs
    from doom_a3c.settings.catalog import find
    from doom_a3c.settings.scenarios import apply_overrides

    found, _ = apply_overrides(find(scenario), {"frame_skip": frame_skip}, scenario)
    return make_game_factory(found.game, found.observation, processes)
