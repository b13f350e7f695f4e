"""The page about an agent's episodes: films, scores, actions and value estimates, all in one file."""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import numpy as np

from doom_a3c.agent.rewards import RewardScale
from doom_a3c.algorithm.returns import Array, discounted_sums
from doom_a3c.record.metrics import figures
from doom_a3c.record.metrics.standings import Standing, find_standing
from doom_a3c.record.metrics.statistics import CAVEAT, describe_certainty, format_score, mean_interval
from doom_a3c.run.checkpoints.run_record import RunRecord, record_to_plain
from doom_a3c.run.play.episode_player import PlayedEpisode
from doom_a3c.run.play.recordings import Film

MAX_ROWS = 1000  # of the table


class Results(NamedTuple):
    """The results of playing an agent's episodes."""

    model: str  # where its checkpoint is
    run: str  # its name
    scenario: str
    policy: str
    epsilon: float
    actions: Sequence[str]  # the names of each choice and number of an action
    taken: Sequence[float]  # the share of each choice, the mean of each number; empty unless an episode was played
    played: Sequence[PlayedEpisode]
    random: Sequence[float]  # scores of the random baseline; empty unless all its episodes ended
    asked: int  # requested episodes
    folder: Path | None  # of the films, scores and the page

    def __repr__(self) -> str:
        """Returns a line about the scores; `played` has the steps."""
        mean = f"mean score {format_score(float(np.mean(self.scores)))}, " if self.played else ""
        return f"<Results of {len(self.played)} episodes of {self.scenario}, {self.policy} policy: {mean}in {self.folder}>"

    @property
    def groups(self) -> dict[str, Sequence[float]]:
        """The scores by policy: the agent's, and the random one's if it played."""
        return {f"{self.policy} policy": self.scores} | ({"random play": self.random} if self.random else {})

    @property
    def scores(self) -> list[float]:
        """The scores of the episodes."""
        return [each.episode.score for each in self.played]

    @property
    def standing(self) -> Standing | None:
        """The agent's standing among the players of its matches; None for other games."""
        return find_standing(self.scores, [each.episode.rivals for each in self.played])

    def list_rows(self) -> tuple[Sequence[str], Sequence[Sequence[object]]]:
        """Returns the header and the rows of a table of the episodes, with a column for each rival in a match.

        They are empty in a match whose rivals' frags are unknown.
        """
        rivals = self.standing.players - 1 if self.standing else 0
        header = ("episode", "seed", "score", "steps", *(f"rival_{number}" for number in range(1, rivals + 1)))
        unknown = ("",) * rivals
        rows = [
            (each.seed, each.episode.score, each.episode.length, *(each.episode.rivals or unknown)) for each in self.played
        ]
        return header, [(index, *row) for index, row in enumerate(rows)]

    @property
    def shortfall(self) -> str:
        """A warning that fewer episodes were finished than asked for, '' if none is missing."""
        if len(self.played) >= self.asked:
            return ""
        return f"stopped in episode {len(self.played) + 1} of {self.asked}, which is left out: this favours short ones"


def render_page(results: Results, films: Sequence[Film], command: str, record: RunRecord) -> str:
    """Renders the page as HTML, which needs no other file."""
    plain = record_to_plain(record)  # without the folders of the user's files
    settings = {name: plain[name] for name in ("scenario", "config")}
    count = len(results.played)
    certainty = f" ({describe_certainty(mean_interval(results.scores), count)})" + f" over {count} episodes" * (count > 1)
    beside = f", random play {format_score(float(np.mean(results.random)))}" if results.random else ""
    mean = format_score(float(np.mean(results.scores)))
    lead = f"{results.run}, {results.policy} policy: mean score {mean}{certainty}{beside}."
    lead += f" Matches: {results.standing.describe()}." if results.standing else ""
    lead += f" Playing was {results.shortfall}." if results.shortfall else ""
    lead += f" {CAVEAT.capitalize()}." * (count > 1)
    template = Template((files("doom_a3c.run.play") / "page.html").read_text())
    return template.substitute(
        title=html.escape(f"{results.scenario}: episodes of the agent"),
        lead=html.escape(lead),
        films=_render_films(results.played, films),
        plots="\n".join(f"<figure>{figures.to_svg(figure)}</figure>" for figure in _make_plots(results, record)),
        rows="\n".join(_render_row(index, each) for index, each in enumerate(results.played[:MAX_ROWS])),
        command=html.escape(command),
        settings=html.escape(json.dumps(settings, indent=2)),
    )


def _render_films(played: Sequence[PlayedEpisode], films: Sequence[Film]) -> str:
    """Renders the films, each with a link to its file if it shows only the first seconds."""
    parts = []
    for film in films:
        caption = f"{film.title}: score {format_score(played[film.episode].episode.score)}"
        if film.clip.is_cut:
            caption += f', {film.clip.extent}; whole: <a href="{film.path.name}">{film.path.name}</a>'
        source = f"data:video/mp4;base64,{base64.b64encode(film.clip.data).decode()}"
        video = f'<video controls loop muted autoplay playsinline src="{source}"></video>'
        parts.append(f"<figure><figcaption>{caption}</figcaption>{video}</figure>")
    return f'<div class="films">{"".join(parts)}</div>' if parts else ""


def _make_plots(results: Results, record: RunRecord) -> list[Any]:
    """Returns the figures."""
    made = [
        figures.draw_distributions("score of an episode, and the mean", results.groups),
        figures.draw_action_shares("actions taken, and the means of numbers", results.actions, results.taken),
    ]
    # The returns of truncated episodes are unknown.
    whole = [each for each in results.played if each.terminated]
    if whole:
        values = np.concatenate([each.values for each in whole])
        returns = np.concatenate([compute_returns(each, record) for each in whole])
        made.append(figures.draw_values_and_returns("value estimates and returns", values.tolist(), returns.tolist()))
    return made


def compute_returns(played: PlayedEpisode, record: RunRecord) -> Array:
    """Returns the discounted sums of the scaled rewards from each step on, [T], as training defines them."""
    config, counters = record.config, record.counters
    bonuses = config.shaping_weight.at(counters.frames, config.frames) * np.array(played.bonuses)
    learned = RewardScale.from_config(config).scale(np.array(played.rewards), bonuses, counters.reward_sums)[:, None]
    ends = np.zeros(learned.shape, np.bool_)
    ends[list(played.lives_lost)] = True
    return discounted_sums(learned, ends, config.discount)[:, 0]


def _render_row(index: int, each: PlayedEpisode) -> str:
    end = "the game" if each.terminated else "time-out"
    cells = (index, each.seed, format_score(each.episode.score), each.episode.length, end)
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
