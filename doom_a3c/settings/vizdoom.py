"""ViZDoom's engine settings that a scenario may change: only settings of the game itself.

ViZDoom's other settings name programs, their arguments, files or other configurations. They are refused, because a
scenario can come from a stranger's checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

from doom_a3c.settings.fields import setting

_SCORED = "; part of the score"


@dataclass(frozen=True, kw_only=True)
class VizdoomSettings:
    """Keys of [game.settings] in a Doom scenario; an unset key keeps ViZDoom's default."""

    living_reward: float | None = setting(None, "Reward of every frame" + _SCORED)
    death_penalty: float | None = setting(None, "Penalty for a death" + _SCORED)
    death_reward: float | None = setting(None, "Reward of a death" + _SCORED)
    map_exit_reward: float | None = setting(None, "Reward of leaving the map" + _SCORED)
    kill_reward: float | None = setting(None, "Reward of a kill" + _SCORED)
    secret_reward: float | None = setting(None, "Reward of a secret found" + _SCORED)
    item_reward: float | None = setting(None, "Reward of an item taken" + _SCORED)
    frag_reward: float | None = setting(None, "Reward of a frag" + _SCORED)
    hit_reward: float | None = setting(None, "Reward of a hit" + _SCORED)
    hit_taken_reward: float | None = setting(None, "Reward of a hit taken" + _SCORED)
    hit_taken_penalty: float | None = setting(None, "Penalty for a hit taken" + _SCORED)
    damage_made_reward: float | None = setting(None, "Reward of a point of damage made" + _SCORED)
    damage_taken_reward: float | None = setting(None, "Reward of a point of damage taken" + _SCORED)
    damage_taken_penalty: float | None = setting(None, "Penalty for a point of damage taken" + _SCORED)
    health_reward: float | None = setting(None, "Reward of a point of health gained" + _SCORED)
    armor_reward: float | None = setting(None, "Reward of a point of armor gained" + _SCORED)
    episode_timeout: int | None = setting(
        None, "Frames after which an episode ends; 0 never ends it", unit="frames", low=0, high=2**31 - 1
    )
    episode_start_time: int | None = setting(None, "Frames before an episode begins", unit="frames", low=0, high=2**31 - 1)
    ticrate: int | None = setting(None, "Frames per second of real time", low=1, high=1000)
    doom_skill: int | None = setting(None, "Difficulty", low=1, high=5)
    render_hud: bool | None = setting(None, "Show the status bar")
    render_minimal_hud: bool | None = setting(None, "Show a small status bar")
    render_weapon: bool | None = setting(None, "Show the weapon")
    render_crosshair: bool | None = setting(None, "Show a crosshair")
    render_decals: bool | None = setting(None, "Show marks on walls")
    render_particles: bool | None = setting(None, "Show particles")
    render_effects_sprites: bool | None = setting(None, "Show smoke and blood")
    render_messages: bool | None = setting(None, "Show messages")
    render_corpses: bool | None = setting(None, "Show corpses")
    render_screen_flashes: bool | None = setting(None, "Show flashes of damage and pick-ups")
    render_all_frames: bool | None = setting(None, "Draw skipped frames, too")
