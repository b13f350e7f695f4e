"""The settings of ViZDoom's engine that a scenario may have: those that shape a game.

ViZDoom has others, which name programs, their arguments, files or other configurations. None of those is taken, as a
scenario may be a stranger's, in a checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass

from doom_a3c.settings.fields import setting

_LEARNED = "; part of the score"


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """What [game.settings] of a Doom scenario takes; unset leaves what ViZDoom does by itself."""

    living_reward: float | None = setting(None, "reward of every frame" + _LEARNED)
    death_penalty: float | None = setting(None, "taken off the reward at a death" + _LEARNED)
    death_reward: float | None = setting(None, "reward of a death" + _LEARNED)
    map_exit_reward: float | None = setting(None, "reward of leaving the map" + _LEARNED)
    kill_reward: float | None = setting(None, "reward of a kill" + _LEARNED)
    secret_reward: float | None = setting(None, "reward of a secret found" + _LEARNED)
    item_reward: float | None = setting(None, "reward of an item taken" + _LEARNED)
    frag_reward: float | None = setting(None, "reward of a frag" + _LEARNED)
    hit_reward: float | None = setting(None, "reward of a hit" + _LEARNED)
    hit_taken_reward: float | None = setting(None, "reward of a hit taken" + _LEARNED)
    hit_taken_penalty: float | None = setting(None, "taken off the reward at a hit taken" + _LEARNED)
    damage_made_reward: float | None = setting(None, "reward of a point of damage made" + _LEARNED)
    damage_taken_reward: float | None = setting(None, "reward of a point of damage taken" + _LEARNED)
    damage_taken_penalty: float | None = setting(None, "taken off the reward at a point of damage taken" + _LEARNED)
    health_reward: float | None = setting(None, "reward of a point of health gained" + _LEARNED)
    armor_reward: float | None = setting(None, "reward of a point of armor gained" + _LEARNED)
    episode_timeout: int | None = setting(
        None, "an episode ends after so long; 0 is never", unit="frames", low=0, high=2**31 - 1
    )
    episode_start_time: int | None = setting(None, "frames before an episode begins", unit="frames", low=0, high=2**31 - 1)
    ticrate: int | None = setting(None, "frames a second of real time", low=1, high=1000)
    doom_skill: int | None = setting(None, "difficulty", low=1, high=5)
    render_hud: bool | None = setting(None, "show the status bar")
    render_minimal_hud: bool | None = setting(None, "show a small status bar")
    render_weapon: bool | None = setting(None, "show the weapon")
    render_crosshair: bool | None = setting(None, "show a crosshair")
    render_decals: bool | None = setting(None, "show marks on walls")
    render_particles: bool | None = setting(None, "show particles")
    render_effects_sprites: bool | None = setting(None, "show smoke and blood")
    render_messages: bool | None = setting(None, "show messages")
    render_corpses: bool | None = setting(None, "show corpses")
    render_screen_flashes: bool | None = setting(None, "show flashes of damage and pick-ups")
    render_all_frames: bool | None = setting(None, "draw skipped frames, too")
