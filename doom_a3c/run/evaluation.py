"""Evaluation: fresh episodes, apart from training, with the greedy and the sampled policy."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.player import Player, Step, split_seed
from doom_a3c.agent.policy import Policy
from doom_a3c.engines.engine import State
from doom_a3c.record.progress import MAX_SCORE, EvaluationPoint
from doom_a3c.run.run_record import Best, PolicyName, better_policy
from doom_a3c.settings.fields import UserError
from doom_a3c.settings.tree import all_finite

MAX_LOST = 5  # episodes of each game, in a row, that faults may cut short
TIMES, LEAST_SECONDS = 3, 60.0  # that a rematch or a confirmation may take: of the longest evaluation, and at least


class Scores(NamedTuple):
    """Statistics of the scores of some episodes, in the game's units."""

    mean: float
    std: float
    min: float
    max: float
    episodes: int


class Evaluation(NamedTuple):
    """Scores of one network under both policies."""

    greedy: Scores
    sampled: Scores

    def point(self, frames: int) -> EvaluationPoint:
        """Returns what is kept of it, made after so many frames."""
        return EvaluationPoint(frames, *self.greedy[:2], *self.sampled[:2])

    @property
    def score(self) -> float:
        """The score that chooses the best: the mean of the better policy, biased upwards by taking the higher of two."""
        return max(self.greedy.mean, self.sampled.mean)


class Evaluated(NamedTuple):
    """Weights, and how they did."""

    state: State
    evaluation: Evaluation

    @property
    def point(self) -> EvaluationPoint:
        """What is kept of it."""
        return self.evaluation.point(self.state.counters.frames)

    @property
    def scored(self) -> bool:
        """Whether all scores are finite and can be kept."""
        return all(abs(number) <= MAX_SCORE for number in self.point[1:])

    @property
    def leader(self) -> Leader:
        """The weights, with the policy that was better."""
        return Leader(self.state, better_policy(self.point))


class Leader(NamedTuple):
    """The best weights so far, and the policy that scored higher with them."""

    state: State
    policy: PolicyName


class Stop(Protocol):
    """A request to end an evaluation early, such as `threading.Event`."""

    def is_set(self) -> bool:
        """Tells whether the evaluation is to end."""


class Deadline:
    """A stop that is set after a time, or once another stop is set."""

    def __init__(self, stop: Stop | None, seconds: float) -> None:
        self._stop, self._end = stop, time.monotonic() + seconds

    def is_set(self) -> bool:
        """Tells whether the time is over or the other stop is set."""
        return time.monotonic() > self._end or (self._stop is not None and self._stop.is_set())


def scores(values: list[float]) -> Scores:
    """Returns the statistics of a list of scores."""
    array = np.asarray(values)
    with np.errstate(over="ignore", invalid="ignore"):  # a game may pay what is not finite
        return Scores(float(array.mean()), float(array.std()), float(array.min()), float(array.max()), len(values))


def shares(episodes: int, games: int) -> list[int]:
    """Returns how many of some episodes each game plays."""
    return [episodes // games + (game < episodes % games) for game in range(games)]


def first_scores(play: Callable[[], Step], quotas: Sequence[int], going_on: Callable[[], bool]) -> list[list[float]]:
    """Returns the scores of the first episodes of each game, as many as its quota, or fewer where that does not go on.

    To take the episodes that finish first, of whichever game, would favour short ones.
    """
    finished: list[list[float]] = [[] for _ in quotas]
    while any(len(done) < quota for done, quota in zip(finished, quotas, strict=True)) and going_on():
        for episode in play().episodes:
            if len(finished[episode.game]) < quotas[episode.game]:
                finished[episode.game].append(episode.score)
    return finished


def games_for(episodes: int) -> int:
    """Returns how many games an evaluation of that many episodes per policy is spread over."""
    return 2 * min(episodes, 5)


class Evaluator:
    """Plays evaluation episodes. Owns its games, its copy of the network and its random stream.

    The first half of the games plays greedily, but for a random action with probability `epsilon`; the second half
    samples. Every game plays a fixed share of the episodes.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        network: ACNetwork,
        seed: np.random.SeedSequence,
        epsilon: float = 0.0,
        add_fault: Callable[[str], None] = lambda kind: None,
    ) -> None:
        """`add_fault` is told the kind of each fault that the games meet."""
        self._env, self.network, self._policy = env, network, Policy(network)
        self._random, self._seeds = split_seed(seed, env.num_envs)
        self._epsilon, self._add_fault = epsilon, add_fault

    def evaluate(self, episodes: int, stop: Stop | None = None) -> Evaluation | None:
        """Plays `episodes` of each policy; returns None if `stop` is set meanwhile.

        Raises:
            UserError: if faults cut short one episode after the other.
        """
        half = self._env.num_envs // 2
        finished = self._finished(np.arange(2 * half) < half, 2 * shares(episodes, half), stop)
        parts = [list(itertools.chain(*part)) for part in (finished[:half], finished[half:])]
        return Evaluation(*map(scores, parts)) if all(len(part) == episodes for part in parts) else None

    def play(self, policy: PolicyName, episodes: int, stop: Stop | None = None) -> Scores | None:
        """Plays `episodes` of one policy, in all games; returns None and raises as `evaluate` does."""
        games = self._env.num_envs
        finished = self._finished(np.full(games, policy == "greedy"), shares(episodes, games), stop)
        played = list(itertools.chain(*finished))
        return scores(played) if len(played) == episodes else None

    def _finished(self, greedy: NDArray[np.bool_], quotas: Sequence[int], stop: Stop | None) -> list[list[float]]:
        """Returns the scores of each game's first episodes, as many as its quota, or fewer where `stop` is set."""
        epsilons = np.where(greedy, self._epsilon, 0.0).astype(np.float32)
        player = Player(self._env, self._policy, self._random, self._seeds)
        self._seeds = None  # later evaluations play on with the games' own streams: their episodes are new
        self._count(player.faults)
        lost_in_a_row = 0

        def play() -> Step:
            nonlocal lost_in_a_row
            step = player.step(epsilons, greedy)
            self._count(step.faults)
            if np.any(step.terminated | step.truncated):
                lost_in_a_row = lost_in_a_row + int(np.sum(step.cut_short)) if np.any(step.cut_short) else 0
            if lost_in_a_row > MAX_LOST * self._env.num_envs:
                raise UserError(f"evaluation: {lost_in_a_row} episodes in a row were cut short; the games fail in each")
            return step

        return first_scores(play, quotas, lambda: stop is None or not stop.is_set())

    def _count(self, faults: Iterable[str]) -> None:
        for kind in faults:
            self._add_fault(kind)

    def release(self) -> None:
        """Frees a thread that waits for the games; none can be played any more."""
        games: Any = self._env  # which has more methods than Gymnasium's vectors
        games.release()

    def close(self) -> None:
        """Closes the games."""
        self._env.close()


class Evaluations:
    """Evaluates the newest weights again and again on a thread of its own. Owns what the best is so far."""

    def __init__(
        self,
        evaluator: Evaluator,
        *,
        episodes: int,
        every: float,
        capture: Callable[[], State],
        report: Callable[[Evaluation, State, Best, bool], None],
        settle: Callable[[Evaluation, State, Best, bool], None],
        confirmed: Callable[[Scores, State, Best], None],
        best: Best,
        earlier: Callable[[], Leader | None] = lambda: None,
    ) -> None:
        """Evaluates every so many seconds; 0 is never.

        `report` receives every evaluation, the evaluated state, the best, and whether this is it. `settle` receives the
        second evaluation of the previous best, the state that is now the best, the best, and whether it stayed the same.
        `confirmed` receives the scores of the best weights in new games, their state, and the best. `earlier` loads the
        best weights of an earlier session.
        """
        self.best = best
        self.error: BaseException | None = None
        self._evaluator, self._episodes, self._every = evaluator, episodes, every
        self._capture, self._report, self._settle, self._confirmed = capture, report, settle, confirmed
        self._earlier = earlier
        self._stop_event = threading.Event()
        self._newest: Evaluated | None = None  # of this session
        self._leader: Leader | None = None  # the best of this session
        self._overtaken: Leader | None = None  # the best of an earlier session, which one look of this one has beaten
        self._longest = 0.0  # seconds of an evaluation
        self._given_up = False
        self._thread = threading.Thread(target=self._run, name="evaluator", daemon=True)

    def start(self) -> None:
        """Starts evaluating at intervals."""
        if self._every:
            self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop_event.wait(self._every):
                self.evaluate(self._stop_event)
        except BaseException as error:
            self.error = error

    def check(self) -> None:
        """Raises the error that has ended the thread, if one has."""
        if self.error is not None:
            raise self.error

    def evaluate(self, stop: Stop | None = None) -> None:
        """Evaluates the weights as they are now, unless they have been already, and reports it."""
        state = self._capture()
        if self._given_up or (self._newest and state.has_weights_of(self._newest.state)):
            return
        if not all_finite(state.variables):
            return  # whoever saves the run ends it
        evaluation = self._played(state, stop)
        if evaluation is None:
            return
        self._newest = Evaluated(state, evaluation)
        scored = self._newest.scored
        is_best = scored and (self.best.score is None or evaluation.score >= self.best.score)
        if is_best:
            if self._leader is None and self.best.score is not None:
                self._overtaken = self._earlier()  # its checkpoint is about to be replaced
            self._leader = self._newest.leader
        self.best = self.best.after(self._newest.point, is_best) if scored else self.best
        self._report(evaluation, state, self.best, is_best)

    def rematch(self, stop: Stop | None = None) -> bool:
        """Has earlier weights that were the best play again; whichever are better, these or the newest, are the best.

        These are the best of this session, and the best of an earlier one if this session's looks have beaten them: the
        highest of several noisy means is too high by chance, and keeps better weights out; another one is not.
        Returns whether any have played.
        """
        newest = self._newest
        if self._given_up or newest is None or not newest.scored:
            return False
        leaders = [leader for leader in (self._leader, self._overtaken) if leader and leader.state is not newest.state]
        again = []
        for leader in leaders:
            evaluation = self._played(leader.state, self._limited(stop))
            if evaluation is None:
                return False
            again.append(Evaluated(leader.state, evaluation))
        if not again:
            return False
        rival = max(again, key=lambda one: (one.scored, one.evaluation.score))
        stays = rival.scored and rival.evaluation.score > newest.evaluation.score
        best = rival if stays else newest
        self._leader = best.leader
        self.best = self.best._replace(score=best.evaluation.score, confirmed=False)  # the policy is of the newest
        self._settle(rival.evaluation, best.state, self.best.of(best.point.frames, self._leader.policy), stays)
        return True

    def confirm(self, stop: Stop | None = None) -> bool:
        """Plays new games with the best weights and their policy, and makes the mean their score.

        The score that chose them is the highest of several noisy means, and so biased upwards. The best weights of an
        earlier session, which was interrupted before this, are confirmed too. Returns whether a score was confirmed.
        """
        if self._given_up or self.best.score is None or self.best.confirmed:
            return False
        leader = self._leader or self._earlier()
        if leader is None:
            return False
        self._evaluator.network.load(leader.state.variables)
        found = self._evaluator.play(leader.policy, self._episodes, self._limited(stop))
        if found is None or not abs(found.mean) <= MAX_SCORE:
            return False
        self.best = self.best._replace(score=found.mean, confirmed=True)
        self._confirmed(found, leader.state, self.best.of(leader.state.counters.frames, leader.policy))
        return True

    def _limited(self, stop: Stop | None) -> Deadline:
        """Returns a stop for a rematch or a confirmation: they must not take much longer than an evaluation."""
        return Deadline(stop, max(LEAST_SECONDS, TIMES * self._longest))

    def _played(self, state: State, stop: Stop | None) -> Evaluation | None:
        start = time.monotonic()
        self._evaluator.network.load(state.variables)
        evaluation = self._evaluator.evaluate(self._episodes, stop)
        self._longest = max(self._longest, time.monotonic() - start)
        return evaluation

    def stop(self, seconds: float) -> None:
        """Ends the thread, giving an evaluation in progress up, and after so many seconds its games, which may hang."""
        self._stop_event.set()
        if self._thread.ident is None:
            return
        self._thread.join(seconds)
        if self._thread.is_alive():  # one thread at a time may use the games
            self._given_up = True
            self._evaluator.release()
            self._thread.join(seconds)
