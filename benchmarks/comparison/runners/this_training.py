"""Trains with this program: python train.py --scenario basic.wad; other flags go to train.py.

Frames and scores are recorded where its workers play, at the step that ends an episode.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

from benchmarks.comparison.runners.report import FrameCounter, Report, make_runner_parser
from doom_a3c.cli import train
from doom_a3c.run.launch import open_session

if TYPE_CHECKING:  # it imports TensorFlow, which train.py does while its games start
    from doom_a3c.run.session import Session

WORKERS = 2


@contextmanager
def report_training_games(report: Report, frame_skip: int) -> Iterator[None]:
    """Makes actors created in this block report frames and episodes; evaluations have no actors and report nothing."""
    from doom_a3c.agent.player import Player, Step  # late, as above
    from doom_a3c.agent.rollouts import Actor
    from doom_a3c.run import actors

    counter = FrameCounter(report)

    def make_reporting_actor(player: Player, **settings: Any) -> Actor:
        step = player.step

        def step_and_report(*arguments: Any, **named: Any) -> Step:
            played = step(*arguments, **named)
            for episode in played.episodes:
                report.episode(episode.score)
            counter.add(frame_skip * len(played.rewards))
            return played

        player.step = step_and_report  # type: ignore[method-assign]  # a filmed player steps too
        return Actor(player, **settings)

    with mock.patch.object(actors, "Actor", make_reporting_actor):
        yield


def main() -> int:
    """Trains until it is killed, or its frame budget is used up."""
    options, flags = make_runner_parser((__doc__ or "").splitlines()[0]).parse_known_args()

    @contextmanager
    def open_reporting_session(*arguments: Any, **named: Any) -> Iterator[Session]:
        with (
            open_session(*arguments, **named) as session,
            report_training_games(Report(options.report), options.frame_skip),
        ):
            yield session

    game = ["--scenario=basic.wad", f"--frame-skip={options.frame_skip}", f"--seed={options.seed}"]
    players = [f"--workers={WORKERS}", f"--envs-per-worker={options.games // WORKERS}"]
    with mock.patch.object(train, "open_session", open_reporting_session):
        return train.main([*game, *players, "--quiet", *flags])


if __name__ == "__main__":
    sys.exit(main())
