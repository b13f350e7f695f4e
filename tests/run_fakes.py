"""Fakes for tests of a run: a scripted engine and evaluator, a run record, and objects that receive the results."""

import dataclasses
import functools

from fakes import model, network

from doom_a3c.engines.local import capture_state
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.run.checkpoints.run_record import Best, RunRecord
from doom_a3c.run.evaluator import Evaluation, summarize
from doom_a3c.settings import catalog
from doom_a3c.settings.network import Network
from doom_a3c.settings.scenarios import apply_overrides


@functools.cache
def settings(scenario):
    """Returns a scenario by its name, and the settings of a run of it."""
    found = catalog.find(scenario)
    return apply_overrides(found, found.training, "test")


def run_record(scenario="cartpole", *, updates=0, frames=0, **parts):
    """Returns the record of a run after this many updates and frames."""
    counters = Progress().counters()._replace(updates=updates, frames=frames)
    return RunRecord("run-1", 0, *settings(scenario), counters, Best())._replace(**parts)


def tiny_record(**parts):
    """Returns a record whose network needs no particular weights: any variables will do."""
    record = run_record("basic", **parts)
    network = Network(convolutions=(), hidden=(), core="none")
    return record._replace(scenario=dataclasses.replace(record.scenario, network=network))


class ScriptedEvaluator:
    """Reports the given mean scores one after the other; the sampled policy scores one more, or 69 if the greedy has 70.

    A single policy gets the scores in `alone` one after the other, then None; `played` lists the policies and weights.
    """

    def __init__(self, means=(0.0,), alone=()):
        self.means, self.alone, self.played, self.network = list(means), list(alone), [], network("evaluator")

    def evaluate(self, episodes, stop=None):
        mean = self.means.pop(0)
        return Evaluation(summarize([mean]), summarize([mean - 1 if mean == 70.0 else mean + 1]))

    def play(self, policy, episodes, stop=None):
        self.played.append((policy, self.network.parameters[0].numpy().copy()))
        return summarize([self.alone.pop(0)]) if self.alone and not stop.is_set() else None


class ScriptedEngine:
    """Adds a hundred episodes with the next score to the progress at every check."""

    def __init__(self, episode_scores=(), error=None):
        self.progress, self.model = Progress(), model()
        self.scores, self.error, self.stops = iter(episode_scores), error, 0

    @property
    def reward_sums(self):
        return self.model.reward_stats.now

    def start(self):
        pass

    def check(self):
        if self.error:
            raise self.error
        if not self.stops:
            self.progress.add_steps(10, 40, [next(self.scores, 0.0)] * 100, [])

    def update(self, gradient=0.0):
        """Applies an update in which every gradient is the same number."""
        self.model.apply([gradient + 0 * parameter for parameter in self.model.network.parameters], 1e-2)
        self.progress.add_update(1.0, 0)

    def capture(self):
        return capture_state(self.model, self.progress)

    def stop(self):
        self.stops += 1

    def metrics(self):
        return {"hosts": 3}

    def describe(self):
        return "3 hosts"

    def add_fault(self, kind):
        self.progress.add_fault(kind)


class Listener:
    """Passes the results of evaluations to the given callbacks and ignores those without one."""

    def __init__(self, **callbacks):
        ignore = lambda *result: None  # noqa: E731
        for name in ("on_evaluation", "on_reevaluation", "on_best_confirmed"):
            setattr(self, name, callbacks.get(name, ignore))


class Audience:
    """A view and a log that keep everything they receive."""

    def __init__(self):
        self.statuses, self.phases, self.lines, self.points = [], [], [], []

    def set_phase(self, what):
        self.phases.append(what())

    def show(self, status):
        self.statuses.append(status)

    def log(self, message):
        self.lines.append(message)

    def metrics(self, metrics, count):
        self.points.append((metrics, count))
