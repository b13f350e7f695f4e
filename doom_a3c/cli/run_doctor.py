"""train.py --doctor: prints the findings about a game before training."""

from __future__ import annotations

from contextlib import closing

from doom_a3c.cli.layout import wrap
from doom_a3c.cli.streams import print_result
from doom_a3c.envs.games import make_game_factory
from doom_a3c.run.checkpoints.run_record import RunRecord
from doom_a3c.run.play.doctor import examine

_COLUMN = 15


def run_doctor(record: RunRecord) -> int:
    """Prints each finding as soon as it is available; returns the exit status."""
    print(f"checking {record.scenario.name}; this takes up to a minute", flush=True)
    advised = 0
    with closing(
        make_game_factory(record.scenario.game, record.scenario.observation, record.config.game_processes)
    ) as games:
        for finding in examine(record, games):
            print(_format(finding.subject, finding.result), flush=True)
            if finding.advice:
                advised += 1
                print(_format("  -> advice", finding.advice), flush=True)
    print_result(f"{advised} suggestion{'s' * (advised != 1)}" if advised else "no suggestions")
    return 0


def _format(subject: str, text: str) -> str:
    """Formats one line, or several with a hanging indent."""
    return wrap(text, first=f"{subject:{_COLUMN}}", indent=" " * _COLUMN)
