"""Trains with this program: python train.py --scenario basic.wad; further flags go to train.py.

The frames and the scores are taken where its workers play, at the step that ends an episode.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from report import FrameCounter, Report, runner_flags

from doom_a3c.cli import train
from doom_a3c.run.launch import open_session

if TYPE_CHECKING:  # it imports TensorFlow, which train.py does while its games start
    from doom_a3c.run.session import Session

WORKERS = 2


@contextmanager
def players_reporting(report: Report, frame_skip: int) -> Iterator[None]:
    """Has workers report their frames and episodes, those that are made meanwhile; evaluations have other players."""
    from doom_a3c.agent import player, rollouts  # late, as above

    counter = FrameCounter(report)

    class Reporting(player.Player):
        def step(self, *arguments: Any, **named: Any) -> player.Step:
            step = super().step(*arguments, **named)
            for episode in step.episodes:
                report.episode(episode.score)
            counter.add(frame_skip * len(step.rewards))
            return step

    with mock.patch.object(rollouts, "Player", Reporting):
        yield


def main() -> int:
    """Trains until it is ended from outside, or its budget of frames is used up."""
    options, flags = runner_flags((__doc__ or "").splitlines()[0]).parse_known_args()

    @contextmanager
    def launched_reporting(*arguments: Any, **named: Any) -> Iterator[Session]:
        with (
            open_session(*arguments, **named) as session,
            players_reporting(Report(options.report), options.frame_skip),
        ):
            yield session

    game = ["--scenario=basic.wad", f"--frame-skip={options.frame_skip}", f"--seed={options.seed}"]
    players = [f"--workers={WORKERS}", f"--envs-per-worker={options.games // WORKERS}"]
    with mock.patch.object(train, "open_session", launched_reporting):
        return train.main([*game, *players, "--quiet", *flags])


if __name__ == "__main__":
    sys.exit(main())
