"""The evaluations of a run: select the best weights so far, and their reported score."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from doom_a3c.engines.state import State
from doom_a3c.record.metrics.counters import MAX_SCORE, EvaluationPoint
from doom_a3c.run.checkpoints.checkpoint import all_finite
from doom_a3c.run.checkpoints.run_record import Best, PolicyName, choose_policy
from doom_a3c.run.evaluator import Evaluation, Evaluator, Scores, Stop

# Limits of a re-evaluation or a confirmation: a multiple of the longest evaluation, and at least some seconds.
TIMES, LEAST_SECONDS = 3, 60.0


class Leader(NamedTuple):
    """The best weights so far, and the policy that scored higher with them."""

    state: State
    policy: PolicyName


class EvaluatedState(NamedTuple):
    """Weights and their evaluation."""

    state: State
    evaluation: Evaluation

    @property
    def point(self) -> EvaluationPoint:
        return self.evaluation.point(self.state.counters.frames)

    @property
    def has_finite_scores(self) -> bool:
        """Whether all scores are finite and can be kept."""
        return all(abs(number) <= MAX_SCORE for number in self.point[1:])

    @property
    def leader(self) -> Leader:
        """The weights, with the policy that scored higher."""
        return Leader(self.state, choose_policy(self.point))


class Deadline:
    """A stop that is set after some seconds, or once another stop is set."""

    def __init__(self, stop: Stop | None, seconds: float) -> None:
        self._stop, self._end = stop, time.monotonic() + seconds

    def is_set(self) -> bool:
        return time.monotonic() > self._end or (self._stop is not None and self._stop.is_set())


class EvaluationListener(Protocol):
    """Saves and reports the results of evaluations."""

    def on_evaluation(self, evaluation: Evaluation, state: State, best: Best, is_best: bool) -> None:
        """Receives every evaluation, the evaluated state, the best so far, and whether this evaluation is the best."""

    def on_reevaluation(self, evaluation: Evaluation, state: State, best: Best, stays_best: bool) -> None:
        """Receives the second evaluation of the earlier best, the best state now, and whether it is the same."""

    def on_best_confirmed(self, scores: Scores, state: State, best: Best) -> None:
        """Receives the scores of the best weights in new games."""


class Evaluations:
    """Evaluates the newest weights at intervals, on its own thread. Owns the best result so far."""

    def __init__(
        self,
        evaluator: Evaluator,
        *,
        episodes: int,
        every: float,
        capture: Callable[[], State],
        listener: EvaluationListener,
        best: Best,
        load_earlier_best: Callable[[], Leader | None] = lambda: None,
    ) -> None:
        """Plays `episodes` of each policy at intervals of `every` seconds; 0 for never.

        `load_earlier_best` loads the best weights of an earlier session.
        """
        self.best = best
        self.error: BaseException | None = None
        self._evaluator, self._episodes, self._every = evaluator, episodes, every
        self._capture, self._listener, self._load_earlier_best = capture, listener, load_earlier_best
        self._stop_event = threading.Event()
        self._newest: EvaluatedState | None = None  # of this session
        self._leader: Leader | None = None  # the best of this session
        self._overtaken: Leader | None = None  # the best of an earlier session, beaten by one evaluation of this one
        self._longest = 0.0  # seconds of an evaluation
        self._given_up = False
        self._thread = threading.Thread(target=self._run, name="evaluator", daemon=True)

    def start(self) -> None:
        if self._every:
            self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop_event.wait(self._every):
                self.evaluate(self._stop_event)
        except BaseException as error:
            self.error = error

    def check(self) -> None:
        """Raises the error that ended the thread, if any."""
        if self.error is not None:
            raise self.error

    def evaluate(self, stop: Stop | None = None) -> None:
        """Evaluates the current weights, unless that has been done already, and reports the result."""
        state = self._capture()
        if self._given_up or (self._newest and state.has_weights_of(self._newest.state)):
            return
        if not all_finite(state.variables):
            return  # the next save ends the run
        evaluation = self._evaluate_state(state, stop)
        if evaluation is None:
            return
        self._newest = EvaluatedState(state, evaluation)
        is_finite = self._newest.has_finite_scores
        is_best = is_finite and (self.best.score is None or evaluation.score >= self.best.score)
        if is_best:
            if self._leader is None and self.best.score is not None:
                self._overtaken = self._load_earlier_best()  # its checkpoint is about to be replaced
            self._leader = self._newest.leader
        self.best = self.best.add(self._newest.point, is_best) if is_finite else self.best
        self._listener.on_evaluation(evaluation, state, self.best, is_best)

    def reevaluate_best(self, stop: Stop | None = None) -> bool:
        """Evaluates earlier best weights again; afterwards the better of those and the newest weights are the best.

        Candidates are the best of this session, and the best of an earlier one if an evaluation of this session has beaten
        them, or if their score is not confirmed: the highest of several noisy means is biased upwards and keeps better
        weights out; a new mean is not. Returns whether any weights were evaluated again.
        """
        newest = self._newest
        if self._given_up or newest is None or not newest.has_finite_scores:
            return False
        earlier = self._overtaken
        if self._leader is None and self.best.score is not None and not self.best.confirmed:
            earlier = self._load_earlier_best()
        leaders = [leader for leader in (self._leader, earlier) if leader and leader.state is not newest.state]
        again = []
        for leader in leaders:
            evaluation = self._evaluate_state(leader.state, self._make_deadline(stop))
            if evaluation is None:
                return False
            again.append(EvaluatedState(leader.state, evaluation))
        if not again:
            return False
        rival = max(again, key=lambda one: (one.has_finite_scores, one.evaluation.score))
        stays_best = rival.has_finite_scores and rival.evaluation.score > newest.evaluation.score
        best = rival if stays_best else newest
        self._leader = best.leader
        self.best = self.best._replace(score=best.evaluation.score, confirmed=False)  # its policy stays the newest one's
        kept = self.best.cut_to(best.point.frames, self._leader.policy)
        self._listener.on_reevaluation(rival.evaluation, best.state, kept, stays_best)
        return True

    def confirm(self, stop: Stop | None = None) -> bool:
        """Plays new games with the best weights and their policy; their mean becomes the reported score.

        The score that selected them is the highest of several noisy means, and so biased upwards. The best weights of an
        earlier session that was interrupted before its confirmation are confirmed too. Returns whether a score was
        confirmed.
        """
        if self._given_up or self.best.score is None or self.best.confirmed:
            return False
        leader = self._leader or self._load_earlier_best()
        if leader is None:
            return False
        self._evaluator.network.load(leader.state.variables)
        scores = self._evaluator.play(leader.policy, self._episodes, self._make_deadline(stop))
        if scores is None or not abs(scores.mean) <= MAX_SCORE:
            return False
        self.best = self.best._replace(score=scores.mean, confirmed=True)
        kept = self.best.cut_to(leader.state.counters.frames, leader.policy)
        self._listener.on_best_confirmed(scores, leader.state, kept)
        return True

    def _make_deadline(self, stop: Stop | None) -> Deadline:
        """Returns a stop that keeps a re-evaluation or confirmation from taking much longer than an evaluation."""
        return Deadline(stop, max(LEAST_SECONDS, TIMES * self._longest))

    def _evaluate_state(self, state: State, stop: Stop | None) -> Evaluation | None:
        start = time.monotonic()
        self._evaluator.network.load(state.variables)
        evaluation = self._evaluator.evaluate(self._episodes, stop)
        self._longest = max(self._longest, time.monotonic() - start)
        return evaluation

    def stop(self, seconds: float) -> None:
        """Ends the thread and its evaluation; releases the games after some seconds, as they may hang."""
        self._stop_event.set()
        if self._thread.ident is None:
            return
        self._thread.join(seconds)
        if self._thread.is_alive():  # only one thread at a time may use the games
            self._given_up = True
            self._evaluator.release()
            self._thread.join(seconds)
