"""How sure scores are, and which agent is better."""

import numpy as np
import pytest

from doom_a3c.record.statistics import difference, mean_interval


def test_the_interval_of_many_scores_is_that_of_their_mean():
    scores = np.random.default_rng(0).normal(5.0, 2.0, size=400)
    low, high = mean_interval(scores.tolist())
    error = 1.96 * scores.std() / np.sqrt(400)
    assert (low, high) == pytest.approx((scores.mean() - error, scores.mean() + error), abs=0.03)


def test_few_scores_have_an_interval_too():
    assert mean_interval([3.0]) == (3.0, 3.0)
    assert mean_interval([2.0, 2.0]) == (2.0, 2.0)
    assert mean_interval([0.0, 1.0]) == (0.0, 1.0)


def test_nineteen_of_twenty_intervals_hold_the_truth():
    random = np.random.default_rng(1)
    held = [low <= 0 <= high for low, high in (mean_interval(random.normal(size=30).tolist()) for _ in range(200))]
    assert 0.88 <= np.mean(held) <= 0.99


def test_a_difference_is_seen_pair_by_pair():
    luck = np.random.default_rng(2).normal(0.0, 100.0, size=30)  # what a seed brings
    found = difference((luck + 1.0).tolist(), luck.tolist())
    assert found.mean == pytest.approx(1.0)
    assert found.real
    assert difference(luck.tolist(), (luck + 1.0).tolist()).high < 0


def test_what_chance_may_have_made_is_no_difference():
    random = np.random.default_rng(3)
    assert not difference(random.normal(size=20).tolist(), random.normal(size=20).tolist()).real
    assert not difference([1.0, 2.0], [1.0, 2.0]).real
