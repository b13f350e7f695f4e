"""Makes the lists of --list-scenarios and --list-models."""

from __future__ import annotations

import textwrap

from doom_a3c.cli.layout import format_table, wrap
from doom_a3c.record.metrics.statistics import format_score
from doom_a3c.run.checkpoints.pretrained import read_cards
from doom_a3c.settings import catalog
from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.games import AtariSpec, DoomSpec
from doom_a3c.settings.scenarios import Scenario

_BUTTONS = 76  # characters of the list of buttons: some games have hundreds of actions


def list_models() -> str:
    """Returns a table of the pretrained models and their scores."""
    rows = []
    for name, card in read_cards().items():
        scores = (format_score(card.greedy[0]), format_score(card.sample[0]), format_score(card.random[0]))
        rows.append((name, *scores, f"{card.frames:,}", f"{card.minutes:g}"))
    table = format_table(("model", "greedy", "sampled", "random play", "frames", "minutes"), rows, "lrrrrr")
    return f"{table}\n\nplay one: play.py --model MODEL\nstart training from its weights: train.py --from MODEL"


def list_scenarios() -> str:
    """Returns every scenario's game, input, frame budget, buttons and expected score, wrapped to the terminal."""
    lines = []
    for name in sorted(catalog.list_scenario_files(), key=lambda name: ("/" in name, name)):
        scenario = catalog.find(name)
        buttons, seen = _describe_interface(scenario)
        facts = (
            f"{scenario.game.title}, input {seen}, budget {scenario.training.get('frames', Config.frames):,} frames",
            textwrap.shorten(buttons, _BUTTONS, placeholder=" ...", break_on_hyphens=False),
            f"score to expect: {scenario.expected_score}",
        )
        lines += [name, *(wrap(fact, indent="    ") for fact in facts)]
    others = (
        "Every Atari game (--scenario ALE/Qbert-v5), Gymnasium environment (--scenario Acrobot-v1) and ViZDoom file "
        "(--scenario mine.cfg) works too, with settings that are not tuned for it."
    )
    return "\n".join([*lines, "", wrap(others)])


def _describe_interface(scenario: Scenario) -> tuple[str, str]:
    """Returns the buttons and the input of a scenario."""
    game, observation = scenario.game, scenario.observation
    shape: tuple[int, ...] = (*observation.size, observation.channels)
    if isinstance(game, DoomSpec):
        from doom_a3c.envs.doom.setup import check  # late, like the others: a list needs few kinds

        buttons = " ".join(check(game, observation).flat_names)
    elif isinstance(game, AtariSpec):
        from doom_a3c.envs.atari import list_actions

        buttons = " ".join(list_actions(game))
    else:
        from doom_a3c.envs.registered import make

        try:
            env = make(game, observation)
        except UserError as error:  # a package is missing
            return str(error), "unknown"
        buttons, shape = env.metadata["title"].partition(", ")[2], env.observation_space.shape or ()
        env.close()
    return buttons, f"{'x'.join(map(str, shape))}, core {scenario.network.core}"
