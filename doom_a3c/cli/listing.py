"""The table of --list-scenarios."""

from __future__ import annotations

from doom_a3c.settings import catalog
from doom_a3c.settings.config import Config
from doom_a3c.settings.games import AtariSpec, DoomSpec
from doom_a3c.settings.scenarios import Scenario

_WIDTH = 44  # of the buttons


def listing() -> str:
    """Returns every scenario's game, buttons, input, budget of frames and the score to expect."""
    rows = [("scenario", "game", "buttons", "input", "frames", "score to expect")]
    for name in sorted(catalog.available(), key=lambda name: ("/" in name, name)):
        scenario = catalog.find(name)
        buttons, seen = _facts(scenario)
        short = buttons if len(buttons) <= _WIDTH else buttons[: _WIDTH - 4].rpartition(" ")[0] + " ..."
        frames = f"{scenario.training.get('frames', Config.frames):,}"
        rows.append((name, scenario.game.title, short, seen, frames, scenario.expected_score))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join(
        [
            *lines,
            "",
            "Every Atari game (--scenario ALE/Qbert-v5), Gymnasium environment (--scenario Acrobot-v1) and ViZDoom file",
            "(--scenario mine.cfg) works too, with settings that are not tuned for it.",
        ]
    )


def _facts(scenario: Scenario) -> tuple[str, str]:
    """Returns the buttons and the input of a scenario; loads the engines of the kinds that there are, one by one."""
    game, observation = scenario.game, scenario.observation
    shape: tuple[int, ...] = (*observation.size, observation.channels)
    if isinstance(game, DoomSpec):
        from doom_a3c.envs.doom_setup import action_names, check  # late, as the others: a listing may need one kind alone

        check(game, observation)
        buttons = " ".join(action_names(game, observation))
    elif isinstance(game, AtariSpec):
        from doom_a3c.envs.atari import actions

        buttons = " ".join(actions(game))
    else:
        from doom_a3c.envs.registered import make

        env = make(game, observation)
        count = getattr(env.action_space, "n", None)  # Discrete has one
        buttons, shape = f"{count} actions" if count else str(env.action_space), env.observation_space.shape or ()
        env.close()
    return buttons, f"{'x'.join(map(str, shape))}, core {scenario.network.core}"
