"""What --list-scenarios and --list-models show."""

from __future__ import annotations

import textwrap

from doom_a3c.cli.wrapping import WHOLE_WORDS, text_width
from doom_a3c.run.pretrained import cards
from doom_a3c.settings import catalog
from doom_a3c.settings.config import Config
from doom_a3c.settings.formatting import format_score
from doom_a3c.settings.games import AtariSpec, DoomSpec
from doom_a3c.settings.scenarios import Scenario

_BUTTONS = 76  # characters that their names may take: some games have hundreds of actions


def models() -> str:
    """Returns the models that come with the project, with how well they play."""
    rows = [("model", "greedy", "sampled", "random play", "frames", "minutes")]
    for name, card in cards().items():
        scores = (format_score(card.greedy[0]), format_score(card.sample[0]), format_score(card.random[0]))
        rows.append((name, *scores, f"{card.frames:,}", f"{card.minutes:g}"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
    return "\n".join([*lines, "", "play one: play.py --model MODEL", "learn on from its weights: train.py --from MODEL"])


def listing() -> str:
    """Returns every scenario's game, input, budget, buttons and the score to expect, in lines that fit the terminal."""
    lines = []
    for name in sorted(catalog.available(), key=lambda name: ("/" in name, name)):
        scenario = catalog.find(name)
        buttons, seen = _facts(scenario)
        facts = (
            f"{scenario.game.title}, input {seen}, budget {scenario.training.get('frames', Config.frames):,} frames",
            textwrap.shorten(buttons, _BUTTONS, placeholder=" ...", break_on_hyphens=False),
            f"score to expect: {scenario.expected_score}",
        )
        lines += [name, *(_wrapped(fact, indent="    ") for fact in facts)]
    told = (
        "Every Atari game (--scenario ALE/Qbert-v5), Gymnasium environment (--scenario Acrobot-v1) and ViZDoom file "
        "(--scenario mine.cfg) works too, with settings that are not tuned for it."
    )
    return "\n".join([*lines, "", _wrapped(told)])


def _wrapped(text: str, indent: str = "") -> str:
    """Returns text in lines that break between words; what is too long for one has one of its own."""
    return textwrap.fill(text, text_width(), initial_indent=indent, subsequent_indent=indent, **WHOLE_WORDS)


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
