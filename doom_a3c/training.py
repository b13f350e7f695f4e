"""A training run: an engine that learns, and beside it everything that must go on whatever a worker does.

`Training` owns the run's outputs. Its one loop, on the main thread, looks at the shared progress a few times a second
and saves, evaluates, logs, shows, and decides when to stop; so no duty hangs on a particular worker, and a worker's error
surfaces within moments.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from doom_a3c.checkpoint import CheckpointFolder
from doom_a3c.config import Config, spent
from doom_a3c.evaluation import Evaluation, Evaluator
from doom_a3c.model import State
from doom_a3c.progress import WINDOW, Progress, shown
from doom_a3c.settings import plain
from doom_a3c.summaries import Summaries

TICK_SECONDS = 0.1
PATIENCE_SECONDS, HURRY_SECONDS = 30.0, 5.0  # for an evaluation to end, at the end of a run and after Ctrl-C


class Engine(Protocol):
    """What a run needs of an engine: workers that add to the shared model and progress until they are stopped."""

    def start(self) -> None:
        """Starts the workers."""

    def check(self) -> None:
        """Raises a worker's error."""

    def stop(self) -> None:
        """Ends the workers; may be called twice."""

    def metrics(self) -> Mapping[str, float]:
        """Returns what TensorBoard shows of the engine itself, by tag."""

    def describe(self) -> str:
        """Returns what the live line shows of the engine itself."""


class Status(NamedTuple):
    """What the live line shows."""

    frames: int
    frame_budget: int
    frames_per_second: float
    episodes: int
    mean_score: float | None
    best_evaluation: float | None
    entropy: float
    seconds_left: float
    engine: str  # what it says of itself
    faults: Mapping[str, int]  # survived so far, by kind


class Result(NamedTuple):
    """How a run ended."""

    stopped_by: str  # 'frames', 'episodes', 'minutes', 'target_score' or the name of a signal
    seconds: float  # this session's training time, without the final evaluation
    frames_per_second: float  # mean over that time
    best_evaluation: float | None


class Evaluations:
    """Evaluates the global network again and again on a thread of its own. Owns the best score so far."""

    def __init__(
        self,
        config: Config,
        capture: Callable[[], State],
        evaluator: Evaluator,
        report: Callable[[Evaluation, State, bool], None],
    ) -> None:
        self.best: float | None = None
        self.policy = "greedy"  # the better one in the newest evaluation
        self.error: BaseException | None = None
        self._config, self._capture = config, capture
        self._evaluator, self._report = evaluator, report
        self._stop_event = threading.Event()
        self._evaluated = -1  # updates that had made the weights
        self._given_up = False
        self._thread = threading.Thread(target=self._run, name="evaluator", daemon=True)

    def start(self) -> None:
        """Starts evaluating at intervals."""
        if self._config.evaluate_every:
            self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stop_event.wait(self._config.evaluate_every):
                self.evaluate(self._stop_event)
        except BaseException as error:
            self.error = error

    def evaluate(self, stop: threading.Event | None = None) -> None:
        """Evaluates the weights as they are now, and reports scores, weights and whether they are the best."""
        state = self._capture()
        if self._given_up or state.progress["updates"] == self._evaluated:
            return
        self._evaluator.network.load(state.variables)
        evaluation = self._evaluator.evaluate(self._config.evaluation_episodes, stop)
        if evaluation is None:
            return
        self._evaluated = state.progress["updates"]
        self.policy = evaluation.better
        is_best = self.best is None or evaluation.score >= self.best
        if is_best:
            self.best = evaluation.score
        self._report(evaluation, state, is_best)

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


class Training:
    """One session of a run, from its start or from a resumed checkpoint to its end."""

    def __init__(
        self,
        config: Config,
        *,
        capture: Callable[[], State],
        progress: Progress,
        evaluator: Evaluator,
        summaries: Summaries,
        folder: CheckpointFolder,
        record: Mapping[str, Any],
        show: Callable[[Status], None],
        say: Callable[[str], None],
        best_evaluation: float | None,
        policy: str = "greedy",
    ) -> None:
        """`record` is what checkpoints hold besides variables and progress; `show` gets a status several times a second.

        `best_evaluation` and `policy` are what earlier sessions of the run have found.
        """
        self._config, self._capture, self._progress = config, capture, progress
        self._summaries, self._folder, self._record, self._show, self._say = summaries, folder, record, show, say
        self._evaluations = Evaluations(config, capture, evaluator, self._evaluated)
        self._evaluations.best, self._evaluations.policy = best_evaluation, policy
        self._interrupted: str | None = None
        self._interrupt_event = threading.Event()
        self._start = self._last_save = time.monotonic()
        self._start_frames = progress.frames
        self._rate = 0.0
        self._rate_since = (self._start, progress.frames)

    def interrupt(self, name: str) -> None:
        """Asks the run to save and end; a signal handler may call it."""
        self._interrupted = name
        self._interrupt_event.set()

    def run(self, engine: Engine) -> Result:
        """Trains until a limit is reached; saves on the way, at the end, and when an error ends it."""
        self._start = self._last_save = time.monotonic()
        self._rate_since = (self._start, self._progress.frames)
        try:
            engine.start()
            self._evaluations.start()
            stopped_by = self._loop(engine)
        finally:
            engine.stop()
            self._evaluations.stop(HURRY_SECONDS if self._interrupted else PATIENCE_SECONDS)
            seconds = time.monotonic() - self._start
            self.save()
        engine.check()
        if self._interrupted is None:
            self._evaluations.evaluate(self._interrupt_event)
            self.save()  # with the final evaluation as best, if it is
        rate = (self._progress.frames - self._start_frames) / max(seconds, 1e-9)
        return Result(stopped_by, seconds, rate, self._evaluations.best)

    def _loop(self, engine: Engine) -> str:
        while (stopped_by := self._limit()) is None:
            time.sleep(TICK_SECONDS)
            engine.check()
            if self._evaluations.error is not None:
                raise self._evaluations.error
            if time.monotonic() - self._last_save >= self._config.checkpoint_every:
                self.save()
            self._measure_rate()
            self._write_point(engine)
            self._show(self.status(engine))
        return stopped_by

    def _limit(self) -> str | None:
        """Returns why the run ends now, None while it goes on."""
        config, progress = self._config, self._progress
        mean = progress.mean_score
        if self._interrupted:
            return self._interrupted
        if config.target_score is not None and mean is not None and mean >= config.target_score:
            return "target_score"
        if budget := spent(config, progress):
            return budget
        if config.minutes is not None and time.monotonic() - self._start >= 60 * config.minutes:
            return "minutes"
        return None

    def _measure_rate(self) -> None:
        since, frames = self._rate_since
        now = time.monotonic()
        if now - since >= 2.0:
            self._rate = (self._progress.frames - frames) / (now - since)
            self._rate_since = (now, self._progress.frames)

    def status(self, engine: Engine) -> Status:
        """Returns what the live line shows."""
        progress, config = self._progress, self._config
        left = (config.frames - progress.frames) / self._rate if self._rate else float("inf")
        if config.minutes is not None:
            left = min(left, 60 * config.minutes - (time.monotonic() - self._start))
        return Status(
            progress.frames,
            config.frames,
            self._rate,
            progress.episodes,
            progress.mean_score,
            self._evaluations.best,
            progress.entropy,
            max(0.0, left),
            engine.describe(),
            dict(progress.faults),
        )

    def _write_point(self, engine: Engine) -> None:
        if self._progress.updates == 0 or not self._summaries.due():
            return
        progress = self._progress
        values = {
            "Perf/Frames per Second": self._rate,
            "Perf/Episodes": float(progress.episodes),
            "Perf/Updates": float(progress.updates),
            "Schedules/Learning Rate": self._config.learning_rate.at(progress.frames, self._config.frames),
            "Schedules/Entropy Cost": self._config.entropy_cost.at(progress.frames, self._config.frames),
            "Schedules/Epsilon": self._config.epsilon.at(progress.frames, self._config.frames),
            "Perf/Policy Lag": float(progress.lag),
            "Losses/Entropy": progress.entropy,
        }
        scores = progress.newest_scores()
        if len(scores) == WINDOW:
            mean, best = sum(scores) / WINDOW, max(scores)
            values |= {"Perf/Reward": mean, "Perf/Maximum Reward": best}
            by_episode = {"By Episode/Reward": mean, "By Episode/Maximum Reward": best}
            self._summaries.scalars(by_episode, progress.episodes)
        values |= engine.metrics()
        values |= {f"Faults/{kind}": float(count) for kind, count in progress.faults.items()}
        self._summaries.scalars(values, progress.frames)

    def _evaluated(self, evaluation: Evaluation, state: State, is_best: bool) -> None:
        frames = state.progress["frames"]
        values = {
            f"Evaluation/{policy.capitalize()} {key.capitalize()}": float(value)
            for policy, numbers in evaluation._asdict().items()
            for key, value in numbers._asdict().items()
        }
        self._summaries.scalars(values, frames)
        if is_best:
            self._folder.save_best(state.variables, self._whole_record(state))
        greedy, sampled = evaluation
        self._say(
            f"evaluation at {frames:,} frames: greedy {shown(greedy.mean)} +- {shown(greedy.std)}, "
            f"sampled {shown(sampled.mean)} +- {shown(sampled.std)}, {greedy.episodes} episodes each"
            + (", the best so far" if is_best else "")
        )

    def _whole_record(self, state: State) -> dict[str, Any]:
        return {
            **self._record,
            "config": plain(self._config),
            "progress": state.progress,
            "best_evaluation": self._evaluations.best,
            "policy": self._evaluations.policy,
        }

    def save(self) -> None:
        """Writes the newest checkpoint."""
        state = self._capture()
        self._folder.save(state.variables, self._whole_record(state), state.progress["frames"])
        self._last_save = time.monotonic()
