"""How certain scores are, and which agent is better."""

import json

import numpy as np
import pytest

from doom_a3c.cli import compare
from doom_a3c.record.metrics import figures
from doom_a3c.record.metrics.statistics import compare_means, describe_certainty, mean_interval, read_interval

SAMPLES = 1500  # so the share of intervals that hold the truth has a standard error of 0.006 at 0.95


def bell(random, games):
    return random.normal(0.0, 100.0, games)


def skewed(random, games):
    """Most games end early and few late, as in take_cover."""
    return random.exponential(1000.0, games) - 1000.0


def two_peaks(random, games):
    """Half of the games are lost early, as in deadly_corridor."""
    return np.where(random.random(games) < 0.5, random.normal(-900.0, 50.0, games), random.normal(900.0, 200.0, games))


def hit_or_miss(random, games):
    """Nothing between the two, as in predict_position."""
    return np.where(random.random(games) < 0.5, 1.0, -1.0)


@pytest.mark.parametrize("games", [10, 50])
@pytest.mark.parametrize(
    ("draw", "least"),  # ten games of a skewed distribution do not show its tail: Student's interval covers 0.90 there
    [(bell, 0.935), (skewed, 0.885), (two_peaks, 0.92), (hit_or_miss, 0.92)],
)
def test_nineteen_of_twenty_intervals_hold_the_truth(draw, games, least):
    random = np.random.default_rng(games)
    intervals = [mean_interval(draw(random, games).tolist()) for _ in range(SAMPLES)]
    held = np.mean([interval is None or interval.low <= 0 <= interval.high for interval in intervals])
    assert least <= held <= 0.99


def test_rounding_errors_are_not_spread():
    assert not compare_means([0.3, 0.2], [0.2, 0.1]).real
    assert mean_interval([0.1 + 0.2, 0.3]) is None


@pytest.mark.parametrize("games", [10, 50])
@pytest.mark.parametrize("draw", [bell, skewed, two_peaks, hit_or_miss])
def test_equal_agents_differ_in_one_of_twenty_comparisons(draw, games):
    random = np.random.default_rng(games)
    apart = [compare_means(draw(random, games).tolist(), draw(random, games).tolist()).real for _ in range(SAMPLES)]
    assert 0.02 <= np.mean(apart) <= 0.067  # three standard errors above 0.05; the percentile bootstrap has 0.09 to 0.11


def test_an_interval_is_students_t():
    scores = [81.0, 81.0, 83.0, 83.0]
    half = 3.182 * np.std(scores, ddof=1) / 2  # for three degrees of freedom, from a t table
    assert mean_interval(scores) == pytest.approx((82.0 - half, 82.0 + half), rel=1e-3)
    assert read_interval(82.0, 1.0, 4) == pytest.approx(mean_interval(scores))


@pytest.mark.parametrize("scores", [[3.0], [2.0, 2.0], [2100.0] * 50])
def test_scores_without_spread_have_no_interval(scores):
    assert mean_interval(scores) is None
    assert read_interval(scores[0], 0.0, len(scores)) is None
    figures.draw_distributions("scores", {"greedy policy": scores})


def test_equal_scores_are_described_by_the_rule_of_three():
    assert "all 50 games" in (said := describe_certainty(None, 50))
    assert "3 in 50" in said
    assert "2 in 2" in describe_certainty(None, 2)
    assert "one game" in describe_certainty(None, 1)
    assert "95% interval 1.00 to 12.0" in describe_certainty(read_interval(6.5, 5.5 / 12.706, 2), 2)


def test_non_finite_scores_are_not_an_error():
    assert not compare_means([float("inf"), 1.0], [0.0, 0.0]).real


def test_means_are_compared_pair_by_pair():
    luck = np.random.default_rng(2).normal(0.0, 100.0, size=30)  # due to the seed
    better = luck + np.linspace(0.5, 1.5, 30)
    found = compare_means(better.tolist(), luck.tolist())
    assert found.mean == pytest.approx(1.0)
    assert found.real
    assert compare_means(luck.tolist(), better.tolist()).interval.high < 0


@pytest.mark.parametrize(("games", "apart", "real"), [(5, 1.0, False), (6, 1.0, True), (50, 0.0, False), (1, 1.0, False)])
def test_a_constant_difference_is_judged_by_a_sign_test(games, apart, real):
    found = compare_means([5.0 + apart] * games, [5.0] * games)
    assert (found.mean, found.interval, found.real) == (apart, None, real)


def test_a_comparison_prints_unsigned_and_saves_signed_intervals(tmp_path):
    scores = {"one": [1.0, 2.0, 3.0], "other": [11.0, 13.0, 12.0], "twin": [1.0, 2.0, 3.0]}
    found = {name: compare_means(scores["one"], scores[name]) for name in ("other", "twin")}
    low, high = found["other"].interval
    assert low < high < 0
    assert f"interval {-high:.2f} to {-low:.1f}" in (said := compare._format_verdict("one", "other", found["other"]))
    assert "one is worse than other by 10.0" in said
    assert "one and twin score the same: the same in all 3 games" in (
        said := compare._format_verdict("one", "twin", found["twin"])
    )
    assert "3 in 3" in said
    compare._write(tmp_path, compare.PlaySettings(), scores, found)
    written = json.loads((tmp_path / "comparison.json").read_text())
    assert written["differences"]["other"] == {"mean": -10.0, "low": low, "high": high, "real": True}
    assert written["differences"]["twin"] == {"mean": 0.0, "low": None, "high": None, "real": False}
