"""Trains on three levels without any tuning, each from its wad and cfg alone.

    python -m benchmarks.own_wads                # all, seeds 1 and 2, 15 minutes each
    python -m benchmarks.own_wads arena --seeds 1 --minutes 5

The orchard is from docs/own-scenario.md: thirty flasks in a room, ten seconds to gather them. The arena is its opposite:
a room of shooting monsters, a pistol, half a minute; a hit pays 1. In the vault, ten flasks lie behind a locked door whose
key is two rooms away. Each run is `train.py --scenario FILE.wad` with a seed and minutes; its best checkpoint plays 50
episodes with each policy, beside 50 of random play. A finished run is a line of docs/results/own_wads.jsonl; the page,
docs/results/own_wads.md, shows the newest per seed.
Levels are built with omgifol, from requirements-test.txt.
"""

from __future__ import annotations

import random
import runpy
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from omg import WAD
from omg.mapedit import MapEditor, Sector, Sidedef, Thing

from benchmarks.common import results
from benchmarks.common.command import make_parser, run_command
from benchmarks.common.paths import PAGES, ROOT
from benchmarks.common.trainings import INTERVALS, POLICIES, format_mean, play, read_commit, read_counters, read_policy, run

LEARNED = PAGES / "own_wads.jsonl"
EPISODES = 50

HALF = 896  # half the arena's side, in map units
PLAYER_START, ZOMBIEMAN, IMP, CLIP, MEDIKIT = 1, 3004, 3001, 2007, 2012
# Monsters hit each other too: an agent paid for kills got five per episode for doing nothing.
THINGS = {ZOMBIEMAN: 10, IMP: 5, CLIP: 6, MEDIKIT: 4}


def make_config(name: str, button: str, reward: str) -> str:
    """Returns the cfg of a level that lasts half a minute: moves, turns and a `button`, and 1 for a `reward`."""
    return f"""\
doom_scenario_path = {name}.wad
doom_map = map01
available_buttons = {{ MOVE_FORWARD TURN_LEFT TURN_RIGHT {button} }}
episode_timeout = 1050
{reward} = 1
render_hud = false
"""


def make_wad(editor: MapEditor) -> WAD:
    """Returns a wad with one map."""
    wad = WAD()
    wad.maps["MAP01"] = editor.to_lumps()
    return wad


def make_arena(seed: int) -> WAD:
    """Returns the level: one lit room with monsters around a player in the middle."""
    editor = MapEditor()
    corners = [(-HALF, -HALF), (-HALF, HALF), (HALF, HALF), (HALF, -HALF)]
    room = Sector(z_floor=0, z_ceil=160, tx_floor="FLOOR4_8", tx_ceil="CEIL3_5", light=192)
    editor.draw_sector(corners, room, Sidedef(tx_mid="BROWN1"))
    places = random.Random(seed)
    for kind, count in THINGS.items():
        for _ in range(count):
            x = y = 0
            while max(abs(x), abs(y)) < HALF // 3:
                x, y = (places.randrange(-HALF + 64, HALF - 64) for _ in range(2))
            editor.things.append(Thing(x=x, y=y, type=kind, angle=places.randrange(0, 360, 45), flags=7))
    editor.things.append(Thing(x=0, y=0, type=PLAYER_START, angle=90, flags=7))
    return make_wad(editor)


KEY, FLASK, LOCKED_DOOR = 5, 2014, 32  # of the blue key: the door's linedefs open it for good
FLASKS = 10


def make_vault(seed: int) -> WAD:
    """Returns the level: the player's room, two more with a key in the second, and a locked one."""
    editor = MapEditor()
    lit, wall = Sector(z_floor=0, z_ceil=128, tx_floor="FLOOR4_8", tx_ceil="CEIL3_5", light=192), Sidedef(tx_mid="BROWN1")
    shut = Sector(z_floor=0, z_ceil=0, tx_floor="FLOOR4_8", tx_ceil="CEIL3_5", light=192)
    editor.draw_sector([(0, 0), (256, 0), (256, 64), (256, 192), (256, 256), (0, 256)], lit, wall)
    editor.draw_sector([(0, 256), (256, 256), (256, 512), (0, 512)], lit, wall)
    editor.draw_sector([(-256, 256), (0, 256), (0, 512), (-256, 512)], lit, wall)
    editor.draw_sector([(256, 64), (288, 64), (288, 192), (256, 192)], shut, Sidedef(tx_mid="BIGDOOR2"))
    editor.draw_sector([(288, 0), (544, 0), (544, 256), (288, 256), (288, 192), (288, 64)], lit, wall)
    for line in editor.linedefs:
        ends = {(editor.vertexes[end].x, editor.vertexes[end].y) for end in (line.vx_a, line.vx_b)}
        if ends == {(256, 64), (256, 192)}:
            line.action = LOCKED_DOOR
    places = random.Random(seed)
    editor.things.append(Thing(x=128, y=128, type=PLAYER_START, angle=0, flags=7))
    editor.things.append(Thing(x=-192, y=384, type=KEY, angle=0, flags=7))
    for _ in range(FLASKS):
        editor.things.append(Thing(x=places.randrange(336, 512), y=places.randrange(48, 208), type=FLASK, angle=0, flags=7))
    return make_wad(editor)


ORCHARD = runpy.run_path(str(ROOT / "docs" / "own_scenario" / "make_orchard.py"))
WADS = {
    "orchard": (ORCHARD["orchard"], ORCHARD["CONFIG"]),
    "arena": (make_arena, make_config("arena", "ATTACK", "hit_reward")),
    "vault": (make_vault, make_config("vault", "USE", "item_reward")),
}


class Learned(NamedTuple):
    """A finished training: a line of the results file."""

    wad: str
    seed: int
    minutes: float
    frames: int
    commit: str
    greedy: list[float]  # scores of the best checkpoint
    sample: list[float]
    random: list[float]  # scores of random play
    policy: str | None = None  # named by the best checkpoint; None in older lines


def learn(wad: str, seed: int, minutes: float, folder: Path) -> Learned:
    """Makes a level in a new folder, trains on it and plays it."""
    folder.mkdir(parents=True)
    make, config = WADS[wad]
    made_by = read_commit()
    make(7).to_file(str(folder / f"{wad}.wad"))
    (folder / f"{wad}.cfg").write_text(config)
    run(folder, "train.py", "--scenario", f"{wad}.wad", "--seed", seed, "--minutes", minutes, "--evaluate-every", 120)
    flags = ("--episodes", EPISODES, "--random-episodes", EPISODES, "--record-episodes", 0, "--wad", folder / f"{wad}.wad")
    best = folder / "models" / "best.ckpt"
    played = play(best, folder, {policy: ("--policy", policy, *flags) for policy in POLICIES})
    scores = {policy: summary["scores"] for policy, summary in played.items()}
    random_scores = played[POLICIES[0]]["random_scores"]
    frames = read_counters(folder)["frames"]
    return Learned(wad, seed, minutes, frames, made_by, **scores, random=random_scores, policy=read_policy(best))


def read_learned() -> list[Learned]:
    """Returns all finished trainings."""
    return [Learned(**line) for line in results.read_results(LEARNED)]


def list_page_lines(found: Sequence[Learned]) -> Iterator[str]:
    """Yields the lines of the page."""
    yield "# Levels without a scenario file"
    yield ""
    yield "| wad | seed | minutes | frames | greedy | sampled | random play | times random | commit |"
    yield "|---|---|---|---|---|---|---|---|---|"
    newest = {(one.wad, one.seed): one for one in found}.values()
    for one in sorted(newest, key=lambda one: (list(WADS).index(one.wad), one.seed)):
        played = " | ".join(format_mean(scores) if scores else "-" for scores in (one.greedy, one.sample, one.random))
        trained = f"{one.wad} | {one.seed} | {one.minutes:g} | {one.frames:,}"
        yield f"| {trained} | {played} | {format_times_random(one)} | {one.commit} |"
    yield ""
    yield (
        "`python -m benchmarks.own_wads` trains on a wad and its cfg alone, with no tuned settings, for some minutes, and "
        "plays 50 episodes with each policy; own_wads.jsonl has earlier settings too. The orchard is the level of "
        "[own-scenario.md](../own-scenario.md): thirty flasks, ten seconds. The arena is a room of monsters that shoot: a "
        "pistol, half a minute, a hit pays 1. In the vault ten flasks lie behind a locked door, half a minute. *Times "
        "random* uses the policy that the checkpoint names; where that is unknown, greedy and sampled. "
        f"{INTERVALS}"
    )


def format_times_random(one: Learned) -> str:
    """Returns the mean score as a multiple of random play's."""
    least = statistics.mean(one.random) if one.random else 0.0  # no scores if random play timed out
    if least <= 0:
        return "random play is not above 0" if one.random else "-"
    scores = {"greedy": one.greedy, "sample": one.sample}
    counting = [scores[one.policy]] if one.policy else list(scores.values())
    return " and ".join(f"{statistics.mean(each) / least:.1f}" for each in counting)


def main() -> int:
    """Runs the requested trainings; returns 0, or 1 if any failed."""
    parser = make_parser("own_wads", __doc__)
    parser.add_argument("wads", nargs="*", metavar="WAD", help=f"levels to train on (default all): {', '.join(WADS)}")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2], help="seeds (default 1 2)")
    parser.add_argument("--minutes", type=float, default=15.0, help="minutes of each training (default 15)")
    parser.add_argument("--work", type=Path, default=Path("own_wads"), help="folder of the trainings (default own_wads)")
    options = parser.parse_args()
    failed = False
    if unknown := set(options.wads) - set(WADS):
        parser.error(f"unknown level {', '.join(sorted(unknown))}; choose from {', '.join(WADS)}")
    for seed in options.seeds:
        for wad in options.wads or WADS:
            if (wad, seed, options.minutes) in {(one.wad, one.seed, one.minutes) for one in read_learned()}:
                continue
            print(f"{wad}, seed {seed}", flush=True)
            folder = options.work.resolve() / f"{wad}-seed{seed}-{time.strftime('%Y%m%d-%H%M%S')}"
            try:
                one = learn(wad, seed, options.minutes, folder)
            except subprocess.CalledProcessError as error:
                print(f"{wad}, seed {seed} has failed: {error}; see {folder / 'output.txt'}", file=sys.stderr, flush=True)
                failed = True
                continue
            results.append_result(LEARNED, one._asdict())
            (PAGES / "own_wads.md").write_text("\n".join(list_page_lines(read_learned())) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    run_command("own_wads", main)
