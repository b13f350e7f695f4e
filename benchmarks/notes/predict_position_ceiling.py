"""Estimates the ceiling of ViZDoom's predict_position: the score of a player that sees all, and turns by given angles.

    python -m benchmarks.notes.predict_position_ceiling --episodes 2000

The monster wanders, so its position when the rocket arrives can only be guessed. This records its paths in many
episodes without shooting. For each path, its nearest neighbours up to a frame give the angle that would have hit most of
them, and a rocket that leaves at that angle a few frames later hits or misses. Some rooms stay empty: there the rocket's
frames are lost. More episodes make better guesses; a hit by the blast alone is not counted.

The engine ignores ATTACK in the first frame of an episode, even if it is held from then on: in steps of four frames no
rocket leaves before frame 12, though both tables include earlier rockets.

The first table is for a player that can turn to any angle at once. The second is for one that plays in steps and turns by
one of a few angles in each: it fires so that the rocket leaves in a given frame, turning towards its best guess until then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np
import numpy.typing as npt
import vizdoom

from benchmarks.common.command import make_parser, run_command
from benchmarks.notes.engines import start_engine

Floats = npt.NDArray[np.float64]

PLAYER_X = -544.0  # and y is 0
SPEED = 20.0  # of a rocket, in map units a frame
REACH = 42.0  # radii of monster and rocket together, along either axis
ANGLES = np.radians(np.arange(-60.0, 60.5, 1.0))  # one degree apart: an offset of the index is one in degrees
MISSED = 50  # frames of a rocket's flight to the wall
FRAME_COST = 0.001
AFTER = 4  # frames from the last observation until the rocket leaves: the step that presses or turns last
STEP = 4  # frames per decision
PRESSED = 2  # steps from pressing ATTACK to the one in which the rocket leaves
TURNS = ((4, 16), (4, 16, 44), (2, 8, 24), (2, 6, 16, 40))  # degrees per step, to either side
LEAVES = (8, 12, 16, 20, 24)  # frames in which the rocket of the second table leaves
PAST = (4, 8, 16, 24)  # frames ago; the displacements since then are features
NEIGHBOURS = 25
SEEN = (0, 4, 8, 12, 16, 20, 24, 32, 48, 64, 96)  # frames of the player's last observation
RECORDED = max(SEEN) + AFTER + MISSED  # frames


def record_path(game: vizdoom.DoomGame, seed: int) -> list[tuple[float, float]] | None:
    """Returns the monster's path in an episode's first frames, None in an empty room."""
    game.set_seed(seed)
    game.new_episode()
    found = []
    for _ in range(RECORDED):
        state = game.get_state()
        assert state is not None
        at = next((one for one in state.objects if one.name == "Cacodemon"), None)
        if at is None:
            return None
        found.append((at.position_x, at.position_y))
        game.make_action([], 1)
    return found


def find_hits(paths: Floats, leaves: int) -> tuple[npt.NDArray[np.bool_], Floats]:
    """Returns the hits of a rocket leaving in a frame.

    Args:
        paths: the monsters' positions, [episodes, frames, 2].
        leaves: the frame.

    Returns:
        whether each path would be hit at each of ANGLES, [episodes, angles], and the frame of the hit, same shape.
    """
    hit = np.zeros((len(paths), len(ANGLES)), bool)
    when = np.full(hit.shape, np.inf)
    for frame in range(leaves, leaves + MISSED):
        flown = SPEED * (frame - leaves + 1)
        beside = np.abs(PLAYER_X + flown * np.cos(ANGLES) - paths[:, frame, :1])
        along = np.abs(flown * np.sin(ANGLES) - paths[:, frame, 1:])
        now = (beside < REACH) & (along < REACH) & ~hit
        when[now] = frame
        hit |= now
    return hit, when


def estimate_chances(paths: Floats, seen: int, hit: npt.NDArray[np.bool_]) -> Floats:
    """Returns the share of each path's nearest neighbours up to a frame hit at each of ANGLES: [episodes, angles]."""
    parts = [paths[:, seen]] + [3.0 * (paths[:, seen] - paths[:, seen - ago]) for ago in PAST if ago <= seen]
    features = np.concatenate(parts, axis=1)
    squares = (features**2).sum(axis=1)
    distances = squares[:, None] + squares - 2.0 * features @ features.T
    np.fill_diagonal(distances, np.inf)
    alike = np.argpartition(distances, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
    share: Floats = hit[alike].mean(axis=1)
    return share


def choose_angles(known: Sequence[Floats], turns: Sequence[int], together: bool) -> npt.NDArray[np.intp]:
    """Returns the index in ANGLES of each rocket's angle, turning once per step.

    Args:
        known: the estimated chances at each step until the rocket leaves.
        turns: degrees per step, to either side.
        together: whether to turn in the firing step, too.
    """
    steps, episodes = len(known), len(known[0])
    each = np.arange(episodes)
    at = np.full(episodes, len(ANGLES) // 2)
    by = np.array([0, *turns, *(-turn for turn in turns)])
    for step, chance in enumerate(known):
        if step == steps - PRESSED and not together:
            continue
        reached = np.clip(at[:, None] + by, 0, len(ANGLES) - 1)
        if step == steps - 1:
            at = reached[each, chance[each[:, None], reached].argmax(axis=1)]
        else:
            at = reached[each, np.abs(reached - chance.argmax(axis=1)[:, None]).argmin(axis=1)]
    return at


def compute_scores(
    hit: npt.NDArray[np.bool_], when: Floats, at: npt.NDArray[np.intp], leaves: int, empty: float
) -> tuple[float, float, float]:
    """Returns the hit rate and mean score in rooms with a monster, and the mean score of all rooms."""
    each = np.arange(len(hit))
    missed = -FRAME_COST * (leaves + MISSED)
    mean = float(np.where(hit[each, at], 1.0 - FRAME_COST * when[each, at], missed).mean())
    return float(hit[each, at].mean()), mean, (1 - empty) * mean + empty * missed


def list_seen_rows(paths: Floats, empty: float) -> Iterator[str]:
    """Yields the lines of the first table, for a share of empty rooms."""
    yield "| last observation in frame | hits | score with a monster | score |"
    yield "|---|---|---|---|"
    for seen in SEEN:
        leaves = seen + AFTER
        hit, when = find_hits(paths, leaves)
        hitting, mean, score = compute_scores(hit, when, estimate_chances(paths, seen, hit).argmax(axis=1), leaves, empty)
        yield f"| {seen} | {hitting:.2f} | {mean:.2f} | {score:.2f} |"


def list_turned_rows(paths: Floats, empty: float) -> Iterator[str]:
    """Yields the lines of the second table: the score of all rooms, per set of turns."""
    yield (
        "| degrees per step | turns while firing | " + " | ".join(f"leaves in frame {leaves}" for leaves in LEAVES) + " |"
    )
    yield "|---" * (2 + len(LEAVES)) + "|"
    found = {leaves: find_hits(paths, leaves) for leaves in LEAVES}
    known = {
        leaves: [estimate_chances(paths, step * STEP, hit) for step in range(leaves // STEP)]
        for leaves, (hit, _) in found.items()
    }
    for turns in TURNS:
        for together in (False, True):
            at = {leaves: choose_angles(known[leaves], turns, together) for leaves in LEAVES}
            scores = (compute_scores(*found[leaves], at[leaves], leaves, empty)[2] for leaves in LEAVES)
            yield (
                f"| {', '.join(map(str, turns))} | {'yes' if together else 'no'} | "
                + " | ".join(f"{one:.2f}" for one in scores)
                + " |"
            )


def main() -> None:
    """Prints both tables."""
    parser = make_parser("notes.predict_position_ceiling", __doc__)
    parser.add_argument("--episodes", type=int, default=2000, help="episodes to record (default 2000)")
    options = parser.parse_args()
    with closing(start_engine("predict_position", objects=True)) as engine:
        found = [record_path(engine.game, seed) for seed in range(options.episodes)]
    there = np.array([one for one in found if one is not None])
    empty = 1.0 - len(there) / len(found)
    print(f"{empty:.1%} of {len(found)} rooms are empty.\n")
    print("\n".join(list_seen_rows(there, empty)))
    print()
    print("\n".join(list_turned_rows(there, empty)))


if __name__ == "__main__":
    run_command("predict_position_ceiling", main)
