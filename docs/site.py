"""The pages that are made from the program, and what the site does with links that lead out of it.

python docs/site.py writes the pages; mkdocs calls `on_page_markdown`, see mkdocs.yml.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from doom_a3c.cli import play, train  # noqa: E402
from doom_a3c.settings import catalog  # noqa: E402
from doom_a3c.settings.config import Config  # noqa: E402
from doom_a3c.settings.fields import settings_of  # noqa: E402
from doom_a3c.settings.games import GameSettings  # noqa: E402
from doom_a3c.settings.playing import PlaySettings  # noqa: E402
from doom_a3c.settings.setting import Setting  # noqa: E402

_OUTWARD = re.compile(r"\[((?:`[^`\n]+`|[^\]`])*)\]\((?:\.\./)+(?!results/)[^)\s]*\)")  # to a file that is no page


def on_page_markdown(markdown: str, **others: Any) -> str:
    """Returns a page whose links into the code are words: the site has no code."""
    return _OUTWARD.sub(r"\1", markdown)


def settings_page() -> str:
    """Returns a page with a table for each part of the help."""
    parts = ["# Settings", "", _ABOUT_SETTINGS]
    for program, records in (
        ("train.py", (Config, GameSettings, train.Options)),
        ("play.py", (play.Options, PlaySettings)),
    ):
        parts += ["", f"## `{program}`"]
        sections: dict[str, list[Setting]] = {}
        known = {name: one for record in records for name, one in settings_of(record).items()}
        for one in (one for name, one in known.items() if not _belongs_to_schedule(name, known)):
            sections.setdefault(one.section, []).append(one)
        for section, settings in sections.items():
            parts += ["", f"### {section[0].upper()}{section[1:]}", "", "flag | meaning", "---|---"]
            parts += [f"`{one.flag}` | {_escaped(_short_help(one))}" for one in settings]
    return "\n".join([*parts, ""])


def scenarios_page() -> str:
    """Returns a page with all tuned scenarios, with the films and curves that there are."""
    parts = ["# Scenarios", "", _ABOUT_SCENARIOS]
    for name in catalog.list_own_names():
        if "/" in name:
            continue
        scenario = catalog.find(name)
        parts += ["", f"## {name}", "", f"{scenario.description}.", "", f"- game: `{scenario.game.title}`"]
        parts += [f"- expected score: {scenario.expected_score}", f"- train: `python train.py --scenario {name}`"]
        pictures = [f"{folder}/{name}.{kind}" for folder, kind in (("scenarios", "gif"), ("results/learned", "png"))]
        parts += ["", *(f"![{name}]({path})" for path in pictures if (ROOT / "docs" / path).exists())]
    return "\n".join([*parts, ""])


def _belongs_to_schedule(name: str, known: Collection[str]) -> bool:
    """Tells whether a setting is the end or the length of a schedule: one sentence above the tables says what those are."""
    return name.startswith("final_") or (name.endswith("_frames") and f"final_{name.removesuffix('_frames')}" in known)


def _short_help(setting: Setting) -> str:
    """Returns the help of a setting with its default, unit and range in as few words as a table needs."""
    facts = replace(setting, goes_with=None).help.removeprefix(setting.text)
    for long, short in (("[default ", "["), (" or more", "+"), (" or ", ", "), ("above ", ">"), (" [unset]", "")):
        facts = facts.replace(long, short)
    return setting.text + re.sub(r"(?<=\d) to (?=\d)", "-", facts)


def _escaped(words: str) -> str:
    return words.replace("|", r"\|").replace("<", "&lt;")


_ABOUT_SETTINGS = """\
Flags, in brackets their default, unit and range. A setting of `train.py` is also a key of `[training]` in a scenario file
(`--learning-rate` is `learning_rate`) and an argument of `doom_a3c.train`. `--learning-rate`, `--entropy-cost` and
`--epsilon` change linearly to `--final-NAME`, if that is set, within `--NAME-frames` or else the whole budget.
`python docs/site.py` makes this page."""

_ABOUT_SCENARIOS = """\
The scenarios with tuned settings. `--scenario` also takes a file of yours, ViZDoom's other scenarios, every Atari game
(`ALE/Pong-v5`) and every registered Gymnasium environment with discrete actions; each is in Gymnasium's registry too, as
`gymnasium.make("doom_a3c/Basic-v0")`. Expected scores are measured: [results](results/learned.md) has commands, curves and
intervals. Where one policy is named it is the better of the two in the same episodes, which is a little too high.
`python docs/site.py` makes this page from the scenario files."""

PAGES = {"settings.md": settings_page, "scenarios.md": scenarios_page}

if __name__ == "__main__":
    for name, made in PAGES.items():
        (ROOT / "docs" / name).write_text(made())
