"""The run around an engine: what ends it, which evaluation is the best, how often things are written."""

import threading
from functools import partial

import imageio.v3 as imageio
import numpy as np
import pytest
from gymnasium.vector import VectorEnv

from doom_a3c import recording, summaries, training
from doom_a3c.checkpoint import CheckpointFolder, load
from doom_a3c.config import Config
from doom_a3c.evaluation import Evaluation, scores
from doom_a3c.model import GlobalModel, captured
from doom_a3c.networks import ACNetwork, Inputs
from doom_a3c.optimizers import Adam
from doom_a3c.progress import Progress
from doom_a3c.recording import FilmedVectorEnv, Gate
from doom_a3c.scenarios import Network
from doom_a3c.summaries import Summaries
from doom_a3c.training import Training


class ScriptedEvaluator:
    """Reports given mean scores one after the other."""

    def __init__(self, means, network):
        self.means, self.network = list(means), network

    def evaluate(self, episodes, stop=None):
        mean = self.means.pop(0)
        return Evaluation(scores([mean]), scores([mean - 1 if mean == 70.0 else mean + 1]))


class ScriptedEngine:
    """Adds a batch of episodes of the next score to the progress whenever it is looked at."""

    def __init__(self, progress, episode_scores=(), error=None):
        self.progress, self.scores, self.error, self.stops = progress, iter(episode_scores), error, 0

    def start(self):
        pass

    def check(self):
        if self.error:
            raise self.error
        if not self.stops:
            self.progress.add_steps(10, 40, [next(self.scores, 0.0)] * 100, [])

    def stop(self):
        self.stops += 1

    def metrics(self):
        return {}

    def describe(self):
        return ""


def network():
    return ACNetwork(Network(convolutions=((4, 3, 3),), hidden=(8,), core_size=4), Inputs((6, 6, 1), 0), 3, 1, "global")


@pytest.fixture
def make_run(tmp_path):
    def make(config, means=(0.0,)):
        shared = network()
        model, progress = GlobalModel(shared, Adam(shared.parameters)), Progress()
        run = Training(
            config,
            capture=partial(captured, model, progress),
            progress=progress,
            evaluator=ScriptedEvaluator(means, network()),
            summaries=Summaries(tmp_path / "logs"),
            folder=CheckpointFolder(tmp_path),
            record={"scenario": {}},
            show=lambda status: None,
            say=lambda message: None,
            best_evaluation=None,
        )
        return run, progress, model

    return make


def test_the_target_score_ends_a_run(make_run):
    run, progress, _ = make_run(Config(target_score=50.0, evaluate_every=0))
    engine = ScriptedEngine(progress, [10.0, 49.0, 60.0, 99.0])
    assert run.run(engine).stopped_by == "target_score"
    assert progress.mean_score == 60.0
    assert engine.stops


def test_a_budget_the_clock_and_a_signal_end_a_run(make_run):
    run, progress, _ = make_run(Config(frames=120, evaluate_every=0))
    assert run.run(ScriptedEngine(progress)).stopped_by == "frames"
    assert progress.frames == 120
    run, progress, _ = make_run(Config(episodes=250, evaluate_every=0))
    assert run.run(ScriptedEngine(progress)).stopped_by == "episodes"
    assert progress.episodes == 300  # the engine plays a hundred at a time
    run, progress, _ = make_run(Config(minutes=0.005, evaluate_every=0))
    assert run.run(ScriptedEngine(progress)).stopped_by == "minutes"
    run, progress, _ = make_run(Config(evaluate_every=0))
    run.interrupt("SIGTERM")
    assert run.run(ScriptedEngine(progress)).stopped_by == "SIGTERM"


def test_a_signal_gives_the_final_evaluation_up(make_run):
    class Endless:
        network, began = network(), threading.Event()

        def evaluate(self, episodes, stop):
            self.began.set()
            assert stop.wait(30)

    run, progress, model = make_run(Config(frames=40, evaluate_every=0))
    model.apply([np.zeros(p.shape, np.float32) for p in model.network.parameters], 1e-2)
    progress.add_update(1.0, 0)
    run._evaluations._evaluator = Endless()
    signal = threading.Thread(target=lambda: Endless.began.wait(30) and run.interrupt("SIGINT"))
    signal.start()
    result = run.run(ScriptedEngine(progress))
    assert (result.stopped_by, result.best_evaluation) == ("frames", None)
    signal.join()


def test_an_evaluation_whose_games_hang_is_given_up_at_the_end(make_run, monkeypatch):
    monkeypatch.setattr(training, "PATIENCE_SECONDS", 0.1)

    class Hung:
        network, began, released, calls = network(), threading.Event(), threading.Event(), 0

        def evaluate(self, episodes, stop):
            self.calls += 1
            self.began.set()
            assert self.released.wait(30)

        def release(self):
            self.released.set()

    run, progress, model = make_run(Config(frames=400, evaluate_every=0.01))
    model.apply([np.zeros(p.shape, np.float32) for p in model.network.parameters], 1e-2)
    progress.add_update(1.0, 0)
    hung = run._evaluations._evaluator = Hung()
    result = run.run(ScriptedEngine(progress))
    assert hung.began.is_set()
    assert hung.released.is_set()
    assert (result.stopped_by, result.best_evaluation, hung.calls) == ("frames", None, 1)


def test_an_error_is_raised_after_the_engine_is_stopped_and_the_model_saved(make_run, tmp_path):
    run, progress, _ = make_run(Config(evaluate_every=0))
    engine = ScriptedEngine(progress, error=RuntimeError("worker 3 broke"))
    with pytest.raises(RuntimeError, match="worker 3 broke"):
        run.run(engine)
    assert engine.stops
    assert load(tmp_path / "last.ckpt").record["progress"]["frames"] == 0


def test_only_a_better_evaluation_replaces_the_best_checkpoint(make_run, tmp_path):
    run, progress, model = make_run(Config(evaluate_every=0), means=[10.0, 70.0, -300.0, 70.0])
    policies = []
    kept = []
    for version in range(1, 5):
        model.apply([np.full(p.shape, 0.1, np.float32) for p in model.network.parameters], 1e-2)
        progress.add_update(1.0, 0)
        run._evaluations.evaluate()
        assert model.version == version
        run.save()
        kept.append(load(tmp_path / "best.ckpt").variables["policy/kernel"])
        policies.append([load(tmp_path / name).record["policy"] for name in ("best.ckpt", "last.ckpt")])
    assert not np.array_equal(kept[0], kept[1])
    assert np.array_equal(kept[1], kept[2])  # a collapse leaves the best alone
    assert not np.array_equal(kept[2], kept[3])  # as good and newer
    assert load(tmp_path / "best.ckpt").record["best_evaluation"] == 70.0
    assert policies == [["sample", "sample"], ["greedy", "greedy"], ["greedy", "sample"], ["greedy", "greedy"]]


def test_unchanged_weights_are_not_evaluated_twice(make_run):
    run, _, _ = make_run(Config(evaluate_every=0), means=[10.0])
    run._evaluations.evaluate()
    run._evaluations.evaluate()  # a second evaluation would find no score left
    assert run._evaluations.best == 11.0  # of the sampled policy


def test_points_come_once_a_second_and_more_rarely_in_a_long_run(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(summaries.time, "monotonic", lambda: clock[0])
    log = Summaries(tmp_path)
    first_minute = sum(log.due() for clock[0] in np.arange(0, 60, 0.25))
    assert first_minute == 60
    day = sum(log.due() for clock[0] in range(60, 86_400))
    assert 5_000 < day < 15_000


def test_films_pass_the_gate_once_a_minute(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(recording.time, "monotonic", lambda: clock[0])
    gate = Gate(60)
    entered = [gate.enter() for clock[0] in range(100, 281, 20)]
    assert entered == [True, False, False, True, False, False, True, False, False, True]


class Slides(VectorEnv):
    """Two games that show their decision's number and end after three and four decisions."""

    num_envs, render_mode = 2, "rgb_array"

    def __init__(self):
        self.times = [0, 0]

    def picture(self, final=False):
        return np.full((2, 2, 3), 99 if final else self.times[0], np.uint8)

    def reset(self, *, seed=None, options=None):
        self.times = [0, 0]
        return None, {}

    def step(self, actions):
        self.times = [time + 1 for time in self.times]
        ended = np.array([time == limit for time, limit in zip(self.times, (3, 4), strict=True)])
        self.times = [0 if end else time for time, end in zip(self.times, ended, strict=True)]
        return None, np.array([1.0, 5.0]), ended, np.zeros(2, bool), {}


def test_every_nth_episode_of_the_first_game_is_filmed_from_first_to_last_frame():
    films = []
    env = FilmedVectorEnv(Slides(), worker=7, every=2, gate=Gate(0), finished=films.append)
    env.reset()
    for _ in range(12):
        env.step(np.zeros(2, int))
    assert [(film.episode, film.score, film.worker) for film in films] == [(0, 3.0, 7), (2, 3.0, 7)]
    assert [frame[0, 0, 0] for frame in films[1].frames] == [0, 1, 2, 99]


def test_only_the_newest_gifs_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "KEPT_GIFS", 3)
    maker = recording.GifMaker(10.0, recording.GifFolder(tmp_path).add)
    for episode in range(6):
        frames = [np.full((4, 4, 3), value, np.uint8) for value in (0, 255)]
        maker._films.put(recording.Film(frames, 1.0, episode, 0))
    maker.close()
    assert sorted(path.name[:24] for path in tmp_path.iterdir()) == [f"worker_0-episode_000000{n}" for n in (3, 4, 5)]


def test_a_film_is_a_whole_video_and_a_gif_of_its_first_frames(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "MAX_FRAMES", 4)
    with recording.FilmWriter(tmp_path / "film", 10.0) as film:
        for value in range(0, 250, 25):
            film.add(np.full((32, 48, 3), value, np.uint8))
    video, gif = (imageio.imread(tmp_path / f"film.{kind}", index=None) for kind in ("mp4", "gif"))
    assert (len(video), len(gif)) == (10, 4)
    np.testing.assert_allclose(video[:, 16, 24, 0], range(0, 250, 25), atol=6)
    np.testing.assert_allclose(gif[:, 16, 24, 0], range(0, 100, 25), atol=2)
    assert len(list(tmp_path.iterdir())) == 2


def test_no_frames_make_no_film(tmp_path):
    with recording.FilmWriter(tmp_path / "film", 10.0):
        pass
    assert list(tmp_path.iterdir()) == []
