"""What a run prints once it has learned what is expected, or no longer improves."""

import pytest

from doom_a3c.record.metrics.counters import WINDOW, EvaluationPoint
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.run.learning_watch import HELD, LearningWatch
from doom_a3c.settings.config import Config

BUDGET = 100_000


class Watched:
    """A watch, with what it has printed and ended."""

    def __init__(self, expected=80.0, earlier=(), scores=(), **settings):
        """`earlier` evaluations and `scores` come from sessions before this one."""
        self.progress, self.said, self.ended = Progress(), [], []
        self.progress.add_steps(len(scores), len(scores), scores, [])
        config = Config(frames=BUDGET, **settings)
        self.watch = LearningWatch(config, expected, self.progress, earlier, self.said.append, self.ended.append)
        self.evaluations = [*earlier]

    def play(self, score, frames=1000, episodes=WINDOW):
        self.progress.add_steps(frames, frames, [score] * episodes, [])
        self.watch.check(self.evaluations)

    def evaluate(self, *scores):
        for score in scores:
            self.evaluations.append(EvaluationPoint(len(self.evaluations), score, 1.0, score - 5, 1.0))
            self.watch.check(self.evaluations)


@pytest.mark.parametrize("ends", [True, False])
def test_learned_is_reported_once_and_ends_until_learned_runs(ends):
    watched = Watched(until_learned=ends)
    watched.evaluate(90.0, 80.0, 79.9, 80.0, 81.0)
    assert (watched.said, watched.ended) == ([], [])
    watched.evaluate(82.0, 83.0)
    (line,) = watched.said
    cure = "--no-until-learned" if ends else "Ctrl-C saves and ends"
    assert all(token in line for token in ("learned", "81.0 of 80.0 expected", cure))
    assert set(watched.ended) == ({"until_learned"} if ends else set())


def test_evaluations_of_earlier_sessions_do_not_count():
    watched = Watched(earlier=[EvaluationPoint(frames, 90.0, 1.0, 90.0, 1.0) for frames in range(HELD)], until_learned=True)
    watched.evaluate(90.0, 90.0)
    assert not watched.ended
    watched.evaluate(90.0)
    assert watched.ended


def test_a_training_mean_at_the_expected_score_ends_nothing():
    watched = Watched(until_learned=True)
    for score in (0.0, *[85.0] * HELD):
        watched.play(score)
    assert watched.said == []  # the means of the first hundred mix both scores
    watched.play(85.0)
    watched.play(85.0)
    (line,) = watched.said
    assert all(token in line for token in ("learned", "85.0 of 80.0 expected", "evaluations in a row"))
    assert not watched.ended


@pytest.mark.parametrize("expected", [80.0, None])
def test_a_mean_flat_for_a_quarter_of_the_budget_reports_once(expected):
    watched = Watched(expected)
    for score in (10.0, 20.0, *[15.0] * 24):
        watched.play(score)
    assert watched.said == []
    for _ in range(5):
        watched.play(15.0)
    (line,) = watched.said
    assert all(token in line for token in ("20.0", "2,000 frames", "quarter", "Ctrl-C saves and ends"))
    assert ("80.0 expected" in line) == (expected is not None)
    watched.evaluate(90.0, 90.0, 90.0)
    assert len(watched.said) == (2 if expected else 1)


def test_a_mean_without_new_episodes_is_not_called_stagnant():
    watched = Watched(scores=[20.0] * WINDOW)
    for _ in range(60):  # long episodes, or short ones that wait for them
        watched.progress.add_steps(1000, 1000, [15.0], [], counted=[])
        watched.watch.check([])
    watched.play(15.0, episodes=WINDOW - 1)
    assert watched.said == []
    watched.play(15.0, episodes=WINDOW // 4)
    (line,) = watched.said
    assert "no longer rising" in line


def test_means_of_earlier_sessions_do_not_count_as_learned():
    watched = Watched(scores=[85.0] * (5 * WINDOW))
    for _ in range(HELD - 1):
        watched.play(85.0)
    assert watched.said == []
    watched.play(85.0)
    (line,) = watched.said
    assert "learned" in line


def test_a_rising_mean_reports_nothing():
    watched = Watched()
    for score in range(70):
        watched.play(float(score))
    assert watched.said == []


def test_too_few_episodes_report_nothing():
    watched = Watched()
    watched.play(90.0, frames=BUDGET, episodes=WINDOW - 1)
    assert watched.said == []
