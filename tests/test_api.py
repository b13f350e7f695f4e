"""The Python API, `import doom_a3c`: training, loading, acting and playing."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import vizdoom
from commands import ROOT
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Tuple
from registered_toys import Numbers, Plain, Rover, Toy

import doom_a3c as dc
from doom_a3c import api
from doom_a3c.envs.games import make_game_factory
from doom_a3c.run.checkpoints.run_record import begin_run
from doom_a3c.run.launch import make_new_run
from doom_a3c.run.play import playback
from doom_a3c.run.play.random_play import play_random_episodes
from doom_a3c.settings.config import Config

QUICK = {
    "workers": 2,
    "envs_per_worker": 2,
    "rollout_length": 8,
    "evaluation_episodes": 2,
    "evaluate_every": 0.0,
    "seed": 3,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("api")


@pytest.fixture(scope="module")
def agent(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield dc.train("basic", frames=4500, **QUICK)  # 11 episodes of 300 frames, and one unfinished in each of four games


def test_train_returns_an_agent_with_a_curve_and_saves_the_run(agent, folder):
    assert (folder / agent.folder / "last.ckpt").exists()
    assert agent.folder.name.startswith("basic-seed3-")
    assert {path.name for path in folder.iterdir()} == {"models", "frames", "logs"}
    assert len(agent.curve) > 10
    assert agent.curve[-1].frames > 1000
    (evaluation,) = agent.evaluations
    assert agent.record.best.confirmed
    assert agent.record.best.policy == ("sample" if evaluation.sampled > evaluation.greedy else "greedy")
    assert agent.actions == ["MOVE_LEFT", "MOVE_RIGHT", "ATTACK"]


def test_act_step_by_step_matches_play(agent):
    played = agent.play(episodes=1, seed=5, policy="greedy", epsilon=0.0)
    assert played.played[0].actions
    game = agent.record.scenario.game
    env = make_game_factory(game, agent.record.scenario.observation, 0).make_vector(1, limited=True)
    observations, _ = env.reset(seed=np.array([5]))
    state, actions, over = None, [], False
    while not over:
        action, state = agent.act(observations[0], state, "greedy")
        actions.append(action)
        observations, _, terminated, truncated, _ = env.step(np.array([action]))
        over = terminated[0] or truncated[0]
    env.close()
    assert actions == played.played[0].actions


def test_act_samples_or_takes_the_likeliest_action(agent):
    seen = np.zeros(agent.network.inputs.pixels, np.uint8)
    assert {agent.act(seen, policy="sample")[0] for _ in range(100)} == {0, 1, 2}
    assert len({agent.act(seen, policy="greedy")[0] for _ in range(20)}) == 1


def test_an_observation_of_the_wrong_shape_is_an_error(agent):
    with pytest.raises(ValueError, match=r"\(3, 3\).*\(84, 84, 1\)"):
        agent.act(np.zeros((3, 3), np.uint8))


def test_play_writes_the_same_files_as_play_py(agent, tmp_path):
    results = agent.play(tmp_path / "out", episodes=2, record_episodes=1, random_episodes=2)
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["scores"] == results.scores
    assert {"index.html", "episode_000.mp4", "scores.png"} <= {path.name for path in (tmp_path / "out").iterdir()}
    assert [len(each.values) for each in results.played] == [each.episode.length for each in results.played]


def test_random_play_that_times_out_is_left_out_with_a_warning(agent, tmp_path, monkeypatch):
    monkeypatch.setattr(playback, "play_random_episodes", partial(play_random_episodes, seconds=0.0))
    with pytest.warns(RuntimeWarning, match="0 of 4 random episodes"):
        results = agent.play(tmp_path / "out", episodes=1, record_episodes=0, random_episodes=4)
    assert list(results.random) == []
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["random_scores"] == []
    assert "random play" not in (tmp_path / "out" / "index.html").read_text().partition("</svg>")[0]


def test_an_interrupted_play_reports_the_missing_episodes(agent, tmp_path):
    out, settings = tmp_path / "out", dc.api.PlaySettings(episodes=5, record_episodes=0, random_episodes=0)
    with dc.api.Playback(agent, settings, out) as played:
        out.mkdir()
        with pytest.raises(KeyboardInterrupt):
            played.run("test", lambda index, _: played.interrupt() if index == 1 else None)
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["episodes"], summary["asked"]) == (2, 5)
    assert "episode 3 of 5" in played.shortfall
    assert played.shortfall in (out / "index.html").read_text()


def test_a_loaded_agent_plays_like_the_trained_one(agent, folder):
    loaded = dc.load(folder / agent.source)
    assert loaded.play(episodes=2, seed=9).scores == agent.play(episodes=2, seed=9).scores


def test_a_callback_sees_the_status_and_can_stop_the_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = []

    def stop(status):
        seen.append(status)
        return status.frames > 500

    agent = dc.train("CartPole-v1", callback=stop, frames=10_000_000, name="mine", **QUICK)
    assert len(agent.evaluations) == 1  # the one at the end of every run
    assert 500 < agent.record.counters.frames < 10_000_000
    assert all(isinstance(status, dc.Status) for status in seen)
    assert agent.folder.name.startswith("mine-seed3-")
    again = dc.resume(agent.folder, callback=stop)
    assert again.source.endswith(".ckpt")
    assert dc.load(agent.folder / "last.ckpt").record.restarts == 1


def make_cart():
    """An unregistered environment with two wrappers: rewards are doubled, and episodes end after 30 steps."""
    env = gymnasium.wrappers.TransformReward(gymnasium.make("CartPole-v1").unwrapped, lambda reward: 2 * reward)
    return gymnasium.wrappers.TimeLimit(env, 30)


@pytest.fixture(scope="module")
def cart(folder):
    """An agent trained on environments from a function, with what the run passed to its hooks."""
    evaluations, saved = [], []
    hooks = {"on_evaluation": evaluations.append, "on_checkpoint": saved.append}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return dc.train(make_cart, frames=3000, **hooks, **QUICK), evaluations, saved


def test_a_function_can_supply_the_environment(cart):
    agent, _, _ = cart
    assert agent.folder.name.startswith("CartPoleEnv-seed3-")
    assert max(point.score for point in agent.curve) <= 60
    loaded = dc.load(agent.source, env=make_cart)
    assert loaded.play(episodes=2).scores == agent.play(episodes=2).scores
    again = dc.resume(agent.folder, env=make_cart, frames=4000)
    newest = dc.load(again.folder / "last.ckpt", env=make_cart).record
    assert (newest.config.frames, newest.restarts) == (4000, 1)
    other = dc.load(agent.source, scenario="CartPole-v1")  # the same spaces, but 500 steps
    assert other.record.scenario.name == "cartpole"


def test_hooks_receive_evaluations_and_checkpoints(cart):
    agent, evaluations, saved = cart
    assert evaluations == agent.evaluations
    assert {checkpoint.path for checkpoint in saved} == {agent.folder / "last.ckpt", agent.folder / "best.ckpt"}
    assert max(checkpoint.frames for checkpoint in saved) == agent.record.counters.frames


def test_the_repr_of_an_agent_describes_it(cart, folder):
    agent, _, _ = cart
    shown = repr(agent)
    for part in ("CartPoleEnv", agent.record.name, f"{agent.record.counters.frames:,} frames", "score", agent.source):
        assert part in shown
    assert Path(agent.source).is_absolute()  # valid from any folder
    assert "not evaluated" in repr(
        dc.api.Agent(agent.builder, agent.network, begin_run(agent.record.scenario, Config()), "x")
    )


def test_environments_from_a_function_run_in_game_processes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    steps = 7  # captured by the function that is sent
    make = lambda: gymnasium.wrappers.TimeLimit(gymnasium.make("CartPole-v1"), steps)  # noqa: E731  # has no name to import
    agent = dc.train(make, frames=500, game_processes=1, **QUICK)
    assert agent.play(episodes=1).scores == [7.0]


ONE, COUNT = Plain(), itertools.count(2)


class Wide(Toy):
    """Has larger observation and action spaces than most environments."""

    def __init__(self):
        super().__init__(space=Box(-1, 1, (30_000,)), actions=4000)

    def see(self):
        return np.zeros(30_000, np.float32)


class Choosing(Numbers):
    """Takes any action space; different spaces can need equally many outputs."""

    def __init__(self, space):
        super().__init__()
        self.action_space = space


FIVE = [Discrete(5), MultiDiscrete([2, 3]), MultiDiscrete([3, 2]), Tuple((Discrete(2), Box(-1, 1, (3,))))]


def test_another_action_space_with_as_many_outputs_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = {**QUICK, "frames": 300}
    kinds = [partial(Choosing, space) for space in FIVE]
    agent = dc.train(kinds[0], **settings)
    assert agent.record.actions == ((5,), 0)
    for kind in kinds[1:]:
        for call in (partial(dc.load, agent.source), partial(dc.resume, agent.folder, frames=600)):
            with pytest.raises(dc.UserError, match=r"trained on other actions than .*Choosing") as raised:
                call(env=kind)
            assert "\n" not in str(raised.value)
    assert dc.resume(agent.folder, env=kinds[0], frames=600).record.actions == ((5,), 0)


def test_a_run_with_large_spaces_can_be_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    agent = dc.train(Wide, frames=64, **{**QUICK, "workers": 1, "rollout_length": 2})
    assert len(dc.load(agent.source, env=Wide).actions) == 4000


class Sealed(Plain):
    """Has an action space that cannot be read, and cannot be closed."""

    @property
    def action_space(self):
        raise RuntimeError("sealed")

    close = action_space


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (dc.load, ("CartPoleEnv()", "env=")),
        (lambda path: dc.resume(path.parent, frames=9000), ("CartPoleEnv()", "env=")),
        (lambda path: dc.load(path, env=3), ("env", "3")),
        (lambda path: dc.load(path, env=Plain), ("best.ckpt", "(2, 128)")),
        (lambda path: dc.load(path, env=make_cart, scenario="CartPole-v1"), ("env", "scenario")),
        (lambda path: dc.load("basic", env=make_cart), ("env", "basic.ckpt")),
        (lambda path: dc.train(ONE), ("Plain", "function")),
        (lambda path: dc.train(lambda: ONE), ("same environment",)),
        (lambda path: dc.train(lambda: gymnasium.wrappers.TimeLimit(ONE, 3)), ("same environment",)),
        (lambda path: dc.train(lambda: Toy(actions=next(COUNT))), ("different action_space",)),
        (lambda path: dc.train(Sealed), ("Sealed", "RuntimeError", "sealed")),
        (lambda path: dc.train(lambda: 3), ("int", "gymnasium.Env")),
        (lambda path: dc.train(lambda: gymnasium.make_vec("CartPole-v1", 2)), ("single", "envs_per_worker")),
        (lambda path: dc.train(lambda: 1 / 0), ("ZeroDivisionError",)),
        (lambda path: dc.train(lambda env: env), ("TypeError", "env")),
        (lambda path: dc.train(make_cart, engine="cluster"), ("engine", "CartPoleEnv()")),
        (lambda path: dc.train("CartPoleEnv()"), ("CartPoleEnv()", "function")),
        (lambda path: dc.train("basic", on_evaluation=3), ("on_evaluation", "3")),
        (lambda path: dc.train("basic", on_checkpoint="print"), ("on_checkpoint", "print")),
    ],
)
def test_function_mistakes_are_one_line_and_leave_no_files(cart, tmp_path, monkeypatch, call, words):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(dc.UserError) as raised:
        call(Path(cart[0].source))
    assert all(word in str(raised.value) for word in words)
    assert "\n" not in str(raised.value)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_function_that_cannot_be_pickled_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lock = threading.Lock()
    with pytest.raises(dc.UserError, match=r"game_processes.*Plain\(\).*lock"):
        dc.train(lambda: Plain() if lock else None, game_processes=1, **QUICK)


@pytest.mark.parametrize("name", ["callback", "on_evaluation", "on_checkpoint"])
def test_an_exception_in_a_hook_ends_the_run_and_saves_it(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def fail(event):
        if event.frames > 200:
            raise KeyError("mine")

    often = {**QUICK, "evaluate_every": 0.1, "checkpoint_every": 0.1}
    with pytest.raises(KeyError, match="mine") as raised:
        dc.train("CartPole-v1", frames=1_000_000, **{name: fail}, **often)
    assert raised.traceback[-1].name == "fail"
    assert dc.load("models/last.ckpt").record.counters.frames > 200


def test_an_interrupted_run_names_the_call_that_continues_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(Path(vizdoom.scenarios_path) / "basic.wad", "mine.wad")
    shutil.copy(Path(vizdoom.scenarios_path) / "basic.cfg", "mine.cfg")
    calls = []
    for scenario in (make_cart, "cartpole", "mine.wad"):
        name = "Cart()" if callable(scenario) else scenario
        record = make_new_run({"scenario": name})
        calls.append(api._format_resume(record, Path("models/r 1"), scenario if callable(scenario) else None))
    assert calls == [
        "doom_a3c.resume('models/r 1', env=...)",
        "doom_a3c.resume('models/r 1')",
        f"doom_a3c.resume('models/r 1', wad={str(tmp_path / 'mine.wad')!r})",
    ]


@pytest.mark.parametrize("name", ["on_evaluation", "on_checkpoint"])
def test_each_hook_can_end_the_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    often = {**QUICK, "evaluate_every": 0.1, "checkpoint_every": 0.1}
    dc.train("CartPole-v1", frames=1_000_000, **{name: lambda event: event.frames > 200}, **often)
    assert 200 < dc.load("models/last.ckpt").record.counters.frames < 1_000_000


@pytest.mark.parametrize(("progress", "shown"), [(True, True), (None, False), (False, False)])
def test_progress_in_a_pipe_is_shown_only_on_request(progress, shown, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    dc.train("CartPole-v1", frames=300, progress=progress, **QUICK)
    assert ("frames 3" in capfd.readouterr().out) == shown


def test_a_dict_space_trains_and_unused_parts_are_printed_once(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    agent = dc.train(Rover, frames=300, progress=True, gif_overlay="plain", **QUICK)
    assert capfd.readouterr().out.count("left out: task (Text)") == 1
    env = make_game_factory(agent.record.scenario.game, agent.record.scenario.observation, make_env=Rover).make_single(None)
    observation, _ = env.reset(seed=1)
    assert observation.keys() == {"pixels", "variables"}
    assert agent.act(observation)[0] in range(3)
    env.close()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dc.train("basik"), "unknown scenario 'basik' (did you mean basic?)"),
        (lambda: dc.train("basic", rollout_lenght=3), "unknown setting 'rollout_lenght' (did you mean rollout_length?)"),
        (lambda: dc.train("basic", envs_per_worker=0), "envs_per_worker: 0 is out of range"),
        (lambda: dc.train("basic", envs_per_worker={(1, 2): 3}), "envs_per_worker: {(1, 2): 3} is not a whole number"),
        (lambda: dc.train("basic", envs_per_worker="\x9b31m"), r"envs_per_worker: '\x9b31m' is not a whole number"),
        (lambda: dc.train("basic", models_dir=5), "models_dir: 5 is not a text"),
        (lambda: dc.load("nothing.ckpt"), "there is no checkpoint nothing.ckpt"),
        (lambda: dc.resume("nothing"), "there is no such run in models"),
    ],
)
def test_mistakes_are_one_line_and_leave_no_files(tmp_path, monkeypatch, call, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(dc.UserError) as raised:
        call()
    assert message in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_run_names_the_newest_whole_checkpoint(agent, tmp_path):
    whole = agent.folder / "last.ckpt"
    (tmp_path / "frames-000000000001.ckpt").write_bytes(whole.read_bytes())
    (tmp_path / "last.ckpt").write_bytes(whole.read_bytes()[:5_000])
    with pytest.raises(dc.UserError, match=r"frames-000000000001.ckpt: cp "):
        dc.resume(tmp_path)


def test_an_unknown_play_setting_is_an_error(agent):
    with pytest.raises(dc.UserError, match="unknown setting 'episode'"):
        agent.play(episode=3)


def test_the_import_is_light_and_lists_its_names():
    code = "import doom_a3c, sys; print('tensorflow' in sys.modules, 'vizdoom' in sys.modules, *dir(doom_a3c))"
    output = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert output.split() == ["False", "False", *sorted([*dc.__all__, "parallel_env"])]
    with pytest.raises(AttributeError, match="'doom_a3c' has no attribute 'trian'"):
        dc.trian  # noqa: B018


@pytest.mark.process
@pytest.mark.parametrize("page", ["README.md", "docs/api.md"])
def test_the_python_code_on_a_page_runs_in_any_folder(page, tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    runnable = [block for block in blocks if "stable_baselines3" not in block]  # tests/test_peers.py has that one
    code = "".join(runnable).replace("minutes=1", "minutes=0.006, evaluation_episodes=1, workers=2, envs_per_worker=4")
    assert "dc.train(" in code
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "result" / "index.html").exists()


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: dc.train(""), "scenario"),
        (lambda: dc.load(""), "model"),
        (lambda: dc.load("basic", scenario=" "), "scenario"),
        (lambda: dc.load("basic", wad=""), "wad"),
        (lambda: dc.resume(""), "run"),
    ],
)
def test_an_empty_name_is_refused(call, named):
    with pytest.raises(dc.UserError, match=f"{named}.* is empty"):
        call()


def test_an_empty_output_folder_name_is_refused(agent, folder, monkeypatch):
    monkeypatch.chdir(folder)
    before = sorted(os.listdir())
    with pytest.raises(dc.UserError, match="out: it is empty"):
        agent.play("", episodes=1)
    assert sorted(os.listdir()) == before


def test_stable_baselines3_names_get_a_hint(agent):
    with pytest.raises(AttributeError, match=r"'predict': use agent\.act\("):
        agent.predict(None)
    with pytest.raises(AttributeError, match=r"'PPO': use doom_a3c\.train\("):
        _ = dc.PPO
    assert not hasattr(agent, "nonsense")


def test_folders_can_be_path_objects(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = {f"{name}_dir": tmp_path / name for name in ("models", "frames", "logs")}
    agent = dc.train(Path("cartpole"), frames=300, **folders, **{**QUICK, "evaluation_episodes": 1})
    assert agent.folder.parent == tmp_path / "models"
    assert dc.resume(agent.folder.name, frames=600, models_dir=tmp_path / "models").folder == agent.folder
    assert dc.load(agent.folder, scenario=Path("cartpole")).source == agent.source
