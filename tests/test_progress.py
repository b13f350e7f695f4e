"""Progress: the score curve and its picture, counters and their plain form."""

import json
import math
import os

import imageio.v3 as imageio
import numpy as np
import pytest

from doom_a3c.algorithm.running_moments import RunningMoments
from doom_a3c.record.files import write_table
from doom_a3c.record.metrics import figures
from doom_a3c.record.metrics.counters import MAX_POINTS, WINDOW, Counters, EvaluationPoint, Point, from_plain, to_plain
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.record.metrics.statistics import format_score

SIZE = (495, 880)  # height and width in pixels


def scores(count):
    return np.random.default_rng(0).normal(10, 30, count).round(2).tolist()


def play(progress, played, each=1):
    """Adds finished episodes, `each` of them per rollout of 30 steps and 120 frames."""
    for start in range(0, len(played), each):
        progress.add_steps(30, 120, played[start : start + each], [])


def means(played):
    """Returns the mean of the last 100 scores after every episode, None before there are 100."""
    return [np.mean(played[end - 100 : end]) if end >= 100 else None for end in range(1, len(played) + 1)]


def numbers(means):
    """Returns means as an array, NaN for None."""
    return np.array(means, float)


def test_episodes_waiting_for_older_ones_are_uncounted():
    progress = Progress()
    progress.add_steps(30, 120, [1.0, 3.0, math.nan], [], counted=[1.0])
    assert (progress.episodes, progress.uncounted) == (3, 2)
    progress.add_steps(30, 120, [], [], counted=[3.0, math.nan])
    assert (progress.episodes, progress.uncounted) == (3, 0)


def test_the_window_is_100_episodes():
    assert WINDOW == 100


def test_few_episodes_are_all_on_the_curve():
    progress = Progress()
    progress.add_steps(30, 120, [1.0, 3.0], [])
    progress.add_steps(30, 120, [], [])
    progress.add_steps(30, 120, [-1.0], ["engine died"])
    assert progress.curve == [Point(1, 120, 1.0, None), Point(2, 120, 3.0, None), Point(3, 360, -1.0, None)]
    assert progress.means(24) == []


@pytest.mark.parametrize("each", [1, 7])
def test_the_running_mean_covers_the_last_100(each):
    played = scores(350)
    progress = Progress()
    play(progress, played, each)
    assert [point.episode for point in progress.curve] == list(range(1, 351))
    assert [point.score for point in progress.curve] == played
    assert [point.frames for point in progress.curve] == [120 * (i // each + 1) for i in range(350)]
    np.testing.assert_allclose(numbers([point.mean for point in progress.curve]), numbers(means(played)), atol=1e-9)
    assert progress.mean_score == pytest.approx(means(played)[-1])


def test_the_curve_follows_the_counted_episodes():
    progress = Progress()
    progress.add_steps(30, 120, [9.0, 8.0], [], [])
    assert (progress.scored, progress.count_finished()) == (0, 2)
    progress.add_steps(30, 120, [1.0], [], [1.0, math.nan, 8.0])
    assert (progress.episodes, progress.scored) == (3, 2)
    assert (progress.newest_scores(), progress.curve) == ([1.0, 8.0], [Point(1, 240, 1.0, None), Point(3, 240, 8.0, None)])


def test_waiting_episodes_are_saved_on_the_curve_without_a_mean():
    """And after resuming, no episode number is missing."""
    session, resumed = Progress(), Progress()
    session.add_steps(30, 120, [9.0, 1.0, 8.0, 8.0], [], counted=[1.0, 8.0])
    waiting = [Point(3, 120, 9.0, None), Point(4, 120, 8.0, None)]
    assert session.counters().curve == [*session.curve, *waiting]
    session.add_steps(30, 120, [], [], counted=[9.0])
    assert session.counters().curve == [*session.curve, Point(4, 240, 8.0, None)]
    resumed.restore(from_plain(json.loads(json.dumps(to_plain(session.counters())))))
    resumed.add_steps(30, 120, [5.0], [])
    assert [(point.episode, point.score) for point in resumed.counters().curve] == [
        *enumerate([1.0, 8.0, 9.0, 8.0, 5.0], 1)
    ]
    assert resumed.newest_scores() == [1.0, 8.0, 9.0, 5.0]  # the short ones would bias it


@pytest.mark.parametrize("counted", [MAX_POINTS - 1, MAX_POINTS, 2 * MAX_POINTS + 5])
def test_a_curve_with_waiting_episodes_is_thinned_too(counted):
    progress = Progress()
    progress.add_steps(30, 120, scores(counted), [])
    progress.add_steps(30, 120, [7.0] * 3, [], counted=[])
    counters = progress.counters()
    assert counters.curve[-1].score == 7.0
    assert from_plain(to_plain(counters)) == counters  # from_plain refuses too many points
    assert {point.episode % counters.stride for point in counters.curve} == {0}


def test_scores_of_this_session_are_counted_separately():
    progress = Progress()
    progress.add_steps(30, 120, [1.0] * 120, [])
    assert [progress.count_new_scores(before) for before in (0, 100, 120)] == [100, 20, 0]
    progress.add_steps(30, 120, [1.0, 2.0], [], counted=[])
    assert progress.count_new_scores(120) == 0


def test_the_curve_is_thinned_only_when_full():
    progress = Progress()
    play(progress, [0.0] * MAX_POINTS)
    assert [point.episode for point in progress.curve] == list(range(1, MAX_POINTS + 1))
    play(progress, [0.0])
    assert [point.episode for point in progress.curve] == list(range(2, MAX_POINTS + 1, 2))


@pytest.mark.parametrize("each", [1, 3])
def test_a_long_curve_is_thinned_evenly(each):
    count = 3 * MAX_POINTS + 6
    played = scores(count)
    progress = Progress()
    for start in range(0, count, 60):
        play(progress, played[start : start + 60], each)
        assert len(progress.curve) <= MAX_POINTS
    # Thinned twice, beyond MAX_POINTS and twice that many episodes: every fourth is left.
    assert [point.episode for point in progress.curve] == list(range(4, count + 1, 4))
    assert [point.score for point in progress.curve] == played[3::4]
    found = numbers([point.mean for point in progress.curve])
    np.testing.assert_allclose(found, numbers(means(played)[3::4]), atol=1e-9)
    assert progress.episodes == count


def test_the_first_full_mean_survives_thinning():
    progress = Progress()
    play(progress, [0.0] * WINDOW + [1.0] * (3 * MAX_POINTS))
    assert progress.curve[0].episode == 4
    assert next(progress.full_means()) == 0.0


@pytest.mark.parametrize("seam", [50, MAX_POINTS - 1, MAX_POINTS + 5, 2 * MAX_POINTS + 7])
def test_a_restored_curve_continues_seamlessly(seam):
    played = scores(2 * MAX_POINTS + 100)
    whole, before, after = Progress(), Progress(), Progress()
    play(whole, played)
    play(before, played[:seam])
    after.restore(from_plain(json.loads(json.dumps(to_plain(before.counters())))))
    assert after.curve == before.curve
    assert all(isinstance(point, Point) for point in after.curve)
    play(after, played[seam:])
    assert after.counters() == whole.counters()
    assert [point.episode for point in after.curve] == list(range(4, len(played) + 1, 4))


def test_counters_are_a_snapshot():
    progress = Progress()
    play(progress, [1.0, 2.0])
    counters = progress.counters()
    copy = json.loads(json.dumps(to_plain(counters)))
    play(progress, [3.0])
    progress.add_fault("engine_died")
    progress.add_update(0.5, 1)
    assert to_plain(counters) == copy
    other = Progress()
    other.restore(counters)
    play(other, [4.0])
    other.add_fault("engine died")
    assert to_plain(counters) == copy


def test_counters_survive_json():
    progress = Progress()
    play(progress, scores(120))
    progress.add_steps(0, 0, [], [], lengths=[*range(120)])
    progress.add_fault("engine_died")
    progress.add_update(0.5, 3)
    counters = progress.counters()._replace(reward_sums=RunningMoments(7, 0.1, 2.5))
    restored = from_plain(json.loads(json.dumps(to_plain(counters))))
    assert restored == counters
    assert restored.lengths == [*range(20, 120)]
    assert counters[:5] == (120 * 120, 120 * 30, 1, 120, {"engine_died": 1})


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"frames": "many"}, ValueError),
        ({"steps": None}, ValueError),
        ({"stride": 0}, ValueError),
        ({"frames": -1}, ValueError),
        ({"scores": [math.nan]}, ValueError),
        ({"scores": "many"}, ValueError),
        ({"lengths": [-1]}, ValueError),
        ({"lengths": [1] * 101}, ValueError),
        ({"faults": {"died": -1}}, ValueError),
        ({"faults": {"\x1b[2J": 1}}, ValueError),
        ({"faults": {f"a{n}": 1 for n in range(5000)}}, ValueError),
        ({"updates": True}, ValueError),
        ({"reward_sums": [1, math.nan, 1.0]}, ValueError),
        ({"reward_sums": [-1, 0.0, 1.0]}, ValueError),
        ({"reward_sums": [1, 0.0, -1.0]}, ValueError),
        ({"reward_sums": [1, 0.0]}, ValueError),
        ({"reward_sums": [1, 0.0, 1.0]}, ValueError),  # moments without a step
        ({"steps": 1, "reward_sums": [1, 1e21, 1.0]}, ValueError),
        ({"reward_sums": 1}, TypeError),
        ({"curve": [[1, 2, 3]]}, TypeError),
        ({}, KeyError),
    ],
)
def test_invalid_counters_are_refused(changes, error):
    data = {**to_plain(Progress().counters()), **changes}
    if not changes:
        del data["stride"]
    with pytest.raises(error):
        from_plain(data)


def test_counters_of_older_checkpoints_load_without_lengths():
    data = to_plain(Progress().counters())
    del data["lengths"]
    assert from_plain(data).lengths == []


def test_a_follower_takes_the_counters_and_keeps_its_curve():
    leader, follower = Progress(), Progress()
    play(leader, [1.0, 3.0])
    leader.add_fault("host_lost")
    leader.add_update(0.5, 1)
    play(follower, [7.0])
    curve = list(follower.curve)
    follower.follow(leader.counters()._replace(curve=()), 0.25, 4)
    assert follower.counters() == leader.counters()._replace(curve=curve)
    assert (follower.entropy, follower.lag) == (0.25, 4)
    leader.add_steps(1, 4, [5.0], [], counted=[])
    follower.follow(leader.counters(), 0.25, 4)
    assert (follower.counters(), follower.uncounted) == (leader.counters(), 1)


def test_there_is_no_mean_before_100_episodes():
    progress = Progress()
    assert progress.counters() == Counters(0, 0, 0, 0, {}, [], [], 1, lengths=[])
    play(progress, [1.0] * (WINDOW - 1))
    assert progress.mean_score is None
    assert progress.newest_scores() == [1.0] * (WINDOW - 1)
    play(progress, [2.0] * WINDOW)
    assert progress.mean_score == 2.0
    assert progress.newest_scores() == [2.0] * WINDOW


# The picture of the curve


def points(played):
    return [Point(i + 1, 40 * i, score, mean) for i, (score, mean) in enumerate(zip(played, means(played), strict=True))]


def write_curve(path, title, points, evaluations=()):
    figures.save_png(figures.draw_training_curve(title, points, evaluations), path)


@pytest.mark.parametrize("count", [0, 1, 250])
def test_the_curve_is_saved_as_a_png(tmp_path, count):
    path = tmp_path / "new" / "folder" / "scores.png"
    played = scores(count)
    write_curve(path, "basic, 1,000 frames", points(played))
    picture = imageio.imread(path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert picture.shape[:2] == SIZE
    assert picture.dtype == np.uint8
    assert [entry.name for entry in path.parent.iterdir()] == ["scores.png"]


def test_the_picture_shows_scores_and_means(tmp_path):
    def drawn(**changes):
        lines = {"frames": range(50), "score": scores(50), "mean": scores(50), "evaluations": (), **changes}
        rows = zip(lines["frames"], lines["score"], lines["mean"], strict=True)
        curve = [Point(1, frames, score, mean) for frames, score, mean in rows]
        write_curve(tmp_path / "scores.png", "title", curve, lines["evaluations"])
        return imageio.imread(tmp_path / "scores.png")

    base = drawn()
    assert (base == drawn()).all()
    higher = np.add(scores(50), np.linspace(0, 9, 50)).tolist()
    others = [drawn(score=higher), drawn(mean=higher), drawn(frames=range(101, 151))]
    others.append(drawn(evaluations=[EvaluationPoint(25, 3.0, 1.0, 2.0, 0.5)]))
    assert all((other != base).any() for other in others)
    assert len(np.unique(base.reshape(-1, base.shape[-1]), axis=0)) > 10  # not blank


def test_the_picture_is_replaced_atomically(tmp_path):
    path, kept = tmp_path / "scores.png", tmp_path / "kept"
    write_curve(path, "old", points([1.0, 2.0]))
    old = path.read_bytes()
    os.link(path, kept)  # stands for an open old picture, which stays readable: the new one is another file
    (tmp_path / ".scores.png.part").write_bytes(b"left behind by a run that was killed")
    (tmp_path / "scores.part").write_bytes(b"the user's")
    write_curve(path, "new", points([1.0, 2.0, 9.0]))
    assert kept.read_bytes() == old
    assert path.read_bytes() != old
    assert imageio.imread(path).shape[:2] == SIZE
    assert {entry.name for entry in tmp_path.iterdir()} == {"scores.png", "kept", "scores.part"}
    assert (tmp_path / "scores.part").read_bytes() == b"the user's"


def test_a_failed_write_keeps_the_old_picture(tmp_path):
    path = tmp_path / "scores.png"
    write_curve(path, "old", points([1.0, 2.0]))
    old = path.read_bytes()
    (tmp_path / ".scores.png.part").mkdir()  # in the way
    with pytest.raises(OSError, match=r"scores\.png"):
        write_curve(path, "new", points([1.0, 2.0, 9.0]))
    assert path.read_bytes() == old


@pytest.mark.parametrize(
    ("score", "text"),
    [
        *[(None, "-"), (0.196, "0.20"), (-0.07, "-0.07"), (9.99, "9.99"), (10, "10.0"), (-342.25, "-342.2")],
        *[(999_999_999_999_999, "999999999999999.0"), (1e15, "1e+15"), (-1.7e308, "-1.7e+308")],
    ],
)
def test_format_score_gives_small_scores_more_digits(score, text):
    assert format_score(score) == text


def test_a_non_finite_score_is_a_fault_and_is_left_out():
    progress = Progress()
    progress.add_steps(3, 12, [1.0, math.nan, math.inf, 3.0], [])
    assert (progress.episodes, progress.newest_scores()) == (4, [1.0, 3.0])
    assert progress.faults == {"score_not_finite": 2}
    assert [point.score for point in progress.curve] == [1.0, 3.0]


def test_the_table_has_every_point_of_the_curve(tmp_path):
    progress = Progress()
    play(progress, [1.0, 3.5])
    write_table(tmp_path / "gifs" / "scores.csv", Point._fields, progress.curve)
    text = (tmp_path / "gifs" / "scores.csv").read_text()
    assert text == "episode,frames,score,mean\n1,120,1.0,\n2,240,3.5,\n"
