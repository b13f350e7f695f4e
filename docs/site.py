"""The pages that are made from the program, and the pages of the repository's files that other pages link to.

python docs/site.py writes the former; mkdocs calls `on_files` and `on_page_markdown`, see mkdocs.yml.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from doom_a3c.cli import play, train  # noqa: E402
from doom_a3c.settings import catalog  # noqa: E402
from doom_a3c.settings.config import Config  # noqa: E402
from doom_a3c.settings.fields import settings_of  # noqa: E402
from doom_a3c.settings.games import GameSettings  # noqa: E402
from doom_a3c.settings.playing import PlaySettings  # noqa: E402
from doom_a3c.settings.setting import Setting  # noqa: E402

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import File, Files
    from mkdocs.structure.pages import Page

DOCS = ROOT / "docs"
CODE = "code"  # folder of the site with the files of the repository that its pages link to
_LINK = re.compile(r"\]\(([^)\s:#]+)((?:#[^)\s]*)?)\)")
_PERIPHERAL = ("notes/", "results/")  # found below other pages


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds a page for each file of the repository, and for each folder, that a page links to."""
    from mkdocs.structure.files import File  # late: who only writes pages may not have it

    found = {path for page in files.documentation_pages() for path in _list_outside(page, files)}
    found |= {path / name for path in found if (ROOT / path).is_dir() for name in os.listdir(ROOT / path)}
    for path in sorted(path for path in found if not path.name.startswith("_")):
        files.append(File.generated(config, _place(path), content=_show(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Returns a page with links into the repository that lead to its files on the site."""
    source = page.file.src_uri
    if source.startswith(f"{CODE}/"):
        page.meta = {"search": {"exclude": True}, "hide": ["toc"]}
        return markdown
    if source.startswith(_PERIPHERAL):
        page.meta["search"] = {"boost": 0.1}

    def lead(link: re.Match[str]) -> str:
        path = _find_outside(source, link[1], files)
        return f"]({posixpath.relpath(_place(path), posixpath.dirname(source))})" if path else link[0]

    return _LINK.sub(lead, markdown)


def _list_outside(page: File, files: Files) -> Iterator[PurePosixPath]:
    for link in _LINK.finditer(page.content_string):
        if path := _find_outside(page.src_uri, link[1], files):
            yield path


def _find_outside(source: str, link: str, files: Files) -> PurePosixPath | None:
    """Returns the path in the repository of a file that is no part of the site; None for a link to one that is."""
    path = (DOCS / source).parent.joinpath(link).resolve()
    if not path.is_relative_to(ROOT) or not path.exists():
        return None
    known = files.get_file_from_path(path.relative_to(DOCS).as_posix()) if path.is_relative_to(DOCS) else None
    if known is not None and known.inclusion.is_included():
        return None
    return PurePosixPath(path.relative_to(ROOT))


def _place(path: PurePosixPath) -> str:
    return f"{CODE}/{path}.md"


def _show(path: PurePosixPath) -> str:
    """Returns a page with a file of the repository, or with links to those of a folder."""
    where = ROOT / path
    if where.is_dir():
        names = sorted(name for name in os.listdir(where) if not name.startswith("_"))
        return "\n".join([f"# {path}", "", *(f"- [{name}]({path.name}/{name}.md)" for name in names)])
    return f"# {path}\n\n~~~~~~ {where.suffix[1:]}\n{where.read_text()}\n~~~~~~\n"


def settings_page() -> str:
    """Returns a page with all flags, by the parts of the help."""
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
            parts += ["", f"### {section[0].upper()}{section[1:]}"]
            for one in settings:  # under a heading, where the site's search finds it
                parts += ["", f"#### `{one.flag}`", "", _escape(_short_help(one))]
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
        pictures = [f"{folder}/{name}.{kind}" for folder, kind in (("scenarios", "webp"), ("results/learned", "png"))]
        parts += ["", *(f"![{name}]({path})" for path in pictures if (ROOT / "docs" / path).exists())]
    return "\n".join([*parts, ""])


def _belongs_to_schedule(name: str, known: Collection[str]) -> bool:
    """Tells whether a setting is the end or the length of a schedule: one sentence above the tables says what those are."""
    return name.startswith("final_") or (name.endswith("_frames") and f"final_{name.removesuffix('_frames')}" in known)


def _short_help(setting: Setting) -> str:
    """Returns the help of a setting with its default, unit and range in few words."""
    facts = replace(setting, goes_with=None).help.removeprefix(setting.text)
    for long, short in (("[default ", "["), (" or more", "+"), (" or ", ", "), ("above ", ">"), (" [unset]", "")):
        facts = facts.replace(long, short)
    return setting.text + re.sub(r"(?<=\d) to (?=\d)", "-", facts)


def _escape(words: str) -> str:
    return words.replace("<", "&lt;").replace("*", r"\*").replace("_", r"\_")


_ABOUT_SETTINGS = """\
Flags, in brackets their default, unit and range. A setting of `train.py` is also a key of `[training]` in a scenario file
(`--learning-rate` is `learning_rate`) and an argument of `doom_a3c.train`. `--learning-rate`, `--entropy-cost` and
`--epsilon` change linearly to `--final-NAME`, if that is set, within `--NAME-frames` or else the whole budget.
Counts may be written 1e6, 1M or 2,000,000 and times 90s, 10m or 1h30m (in files and calls as texts). `--print-settings`
shows what a run would use and where each value comes from. `python docs/site.py` makes this page."""

_ABOUT_SCENARIOS = """\
The scenarios with tuned settings. `--scenario` also takes a file of yours, ViZDoom's other scenarios, every Atari game
(`ALE/Pong-v5`) and every registered Gymnasium environment; each is in Gymnasium's registry too, as
`gymnasium.make("doom_a3c/Basic-v0")`. Expected scores are measured: [results](results/learned.md) has commands, curves and
intervals. Where one policy is named it is the better of the two in the same episodes, which is a little too high.
`python docs/site.py` makes this page from the scenario files."""

PAGES = {"settings.md": settings_page, "scenarios.md": scenarios_page}

if __name__ == "__main__":
    for name, made in PAGES.items():
        (ROOT / "docs" / name).write_text(made())
