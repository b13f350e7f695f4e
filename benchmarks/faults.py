"""Injects faults into runs, hundreds of times, and prints how many they survive.

    python -m benchmarks.faults --results faults.jsonl

Five campaigns: kill -9 of train.py, each followed by --resume; game faults in one run; faults in matches of two agents; a
disk that fills up and is freed again (as root); an hour of basic, and one of pong. Every event is a line of the results
file, so the same command resumes an interrupted campaign. No processes, folders or mounts remain. docs/reliability.md
lists the promises, and how long each campaign takes.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections import Counter
from pathlib import Path

from benchmarks.common.command import make_parser, run_command
from benchmarks.stress.campaigns import disk, games, kills, soak
from benchmarks.stress.campaigns.runs import Event, Results

NAMES = {"kills": kills.CAMPAIGN, "games": games.GAMES.name, "matches": games.MATCHES.name, "disk": disk.CAMPAIGN}
CAMPAIGNS = (*NAMES, "soak")
UNITS = {
    kills.CAMPAIGN: kills.UNIT,
    games.GAMES.name: games.UNIT,
    games.MATCHES.name: games.UNIT,
    disk.CAMPAIGN: disk.UNIT,
}


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Parses the flags."""
    parser = make_parser("faults", __doc__)
    parser.add_argument(
        "--only", nargs="+", choices=CAMPAIGNS, default=list(CAMPAIGNS), help="campaigns to run (default all)"
    )
    parser.add_argument("--results", type=Path, default=Path("faults.jsonl"), help="file of events (default faults.jsonl)")
    parser.add_argument("--kills", type=int, default=200, help="kills of train.py (default 200)")
    parser.add_argument("--faults", type=int, default=1000, help="game faults (default 1000)")
    parser.add_argument("--match-faults", type=int, default=200, help="faults in matches (default 200)")
    parser.add_argument("--full", type=int, default=20, help="number of times to fill the disk (default 20)")
    parser.add_argument("--minutes", type=float, default=60.0, help="minutes of each soak (default 60)")
    parser.add_argument(
        "--episodes", type=int, default=300_000, help="episodes that basic's soak keeps running for (default 300000)"
    )
    parser.add_argument(
        "--games", nargs="+", choices=soak.GAMES, default=list(soak.GAMES), help="games to soak (default all)"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed for times and victims (default 0)")
    parser.add_argument("--table-only", action="store_true", help="only print the tables of past results")
    return parser.parse_args(arguments)


def make_table(events: list[Event]) -> str:
    """Returns a row per kind of fault."""
    lines = ["| fault | times | survived | lost, median (most) | s to recover, median (longest) |", "|---|---|---|---|---|"]
    for campaign, unit in UNITS.items():
        for fault in sorted({event.fault for event in events if event.campaign == campaign}):
            own = [event for event in events if (event.campaign, event.fault) == (campaign, fault)]
            lost = format_spread([event.lost for event in own if event.lost is not None], unit)
            seconds = format_spread([event.seconds for event in own if event.seconds is not None])
            survived = sum(event.survived for event in own)
            lines.append(f"| {campaign}: {fault} | {len(own)} | {survived} | {lost} | {seconds} |")
    counts = Counter(f"{event.campaign}: {event.fault}: {event.why}" for event in events if not event.survived)
    failures = [f"- {count} times {failure}" for failure, count in counts.most_common()]
    return "\n".join([*lines, *(["", *failures] if failures else [])]) + "\n"


def format_spread(values: list[float], unit: str = "") -> str:
    """Returns the median and the maximum of values."""
    return f"{statistics.median(values):.1f} ({max(values):.1f}) {unit}".rstrip() if values else "-"


def make_soak_table(game: str, minutes: float, rows: list[soak.Row]) -> str:
    """Returns the table of a soak."""
    title = f"{game}, {minutes:g} minutes"
    lines = [f"| {title} | first window | last window | change | limit |", "|---|---|---|---|---|"]
    for row in rows:
        limit = "-" if row.limit is None else f"{row.limit:.0%}: {'held' if row.held else 'NOT HELD'}"
        change = f"{row.change:+.1%}" if row.first else "-"
        lines.append(f"| {row.what} | {row.first:,.1f} | {row.last:,.1f} | {change} | {limit} |")
    return "\n".join(lines) + "\n"


def run(options: argparse.Namespace) -> bool:
    """Runs the campaigns and prints their tables; returns whether all promises held."""
    results, held = Results(options.results), True
    if not options.table_only:
        if "kills" in options.only:
            kills.run_campaign(results, options.kills, options.seed)
        if "games" in options.only:
            games.run_campaign(results, games.GAMES, options.faults, options.seed)
        if "matches" in options.only:
            games.run_campaign(results, games.MATCHES, options.match_faults, options.seed)
        if "disk" in options.only:
            try:
                disk.run_campaign(results, options.full)
            except disk.NoDiskError as error:
                print(f"faults: skipping the disk campaign: {error}", file=sys.stderr)
                held = False
    events = [event for name in NAMES if name in options.only for event in results.of(NAMES[name])]
    print(make_table(events), flush=True)
    for game in options.games if "soak" in options.only else ():
        if options.table_only and soak.find_finished(options.results, game, options.minutes) is None:
            continue
        rows = soak.run_campaign(options.results, game, options.minutes, options.episodes if game == "basic" else 0)
        print(make_soak_table(game, options.minutes, rows), flush=True)
        held = held and all(row.held for row in rows)
    return held and all(event.survived for event in events)


def main(arguments: list[str] | None = None) -> int:
    """Runs the campaigns; returns 0 if all promises held, else 1, or 2 if a run does not even start."""
    try:
        return 0 if run(parse(arguments)) else 1
    except (RuntimeError, TimeoutError) as error:
        print(f"faults: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    run_command("faults", main, resumes=True)
