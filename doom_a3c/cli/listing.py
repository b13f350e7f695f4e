"""The tables of --list-scenarios and --list-models."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from doom_a3c.record.progress import shown
from doom_a3c.run.pretrained import cards
from doom_a3c.settings import catalog
from doom_a3c.settings.config import Config
from doom_a3c.settings.games import AtariSpec, DoomSpec
from doom_a3c.settings.scenarios import Scenario

_WIDTH = 44  # of the buttons


def models() -> str:
    """Returns the models that come with the project, with how well they play."""
    rows = [("model", "greedy", "sampled", "random play", "frames", "minutes")]
    for name, card in cards().items():
        scores = (shown(card.greedy[0]), shown(card.sample[0]), shown(card.random[0]))
        rows.append((name, *scores, f"{card.frames:,}", f"{card.minutes:g}"))
    told = "play one: play.py --model MODEL; begin a training with its weights: train.py --from MODEL"
    return "\n".join([*_aligned(rows, str.rjust), "", told])


def _aligned(rows: Sequence[tuple[str, ...]], justify: Callable[[str, int], str] = str.ljust) -> list[str]:
    """Returns the lines of a table, all columns but the first justified as told."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(justify, row[1:], widths[1:])]).rstrip() for row in rows]


def listing() -> str:
    """Returns every scenario's game, buttons, input, budget of frames and the score to expect."""
    rows = [("scenario", "game", "buttons", "input", "frames", "score to expect")]
    for name in sorted(catalog.available(), key=lambda name: ("/" in name, name)):
        scenario = catalog.find(name)
        buttons, seen = _facts(scenario)
        short = buttons if len(buttons) <= _WIDTH else buttons[: _WIDTH - 4].rpartition(" ")[0] + " ..."
        frames = f"{scenario.training.get('frames', Config.frames):,}"
        rows.append((name, scenario.game.title, short, seen, frames, scenario.expected_score))
    return "\n".join(
        [
            *_aligned(rows),
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
