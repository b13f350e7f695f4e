"""The doctor: its findings on real games, and its advice when something is wrong."""

import itertools
import re
import time
from contextlib import closing
from types import SimpleNamespace

import gymnasium
import imageio.v3 as imageio
import numpy as np
import pytest
import registered_toys  # noqa: F401  # registers toys
from commands import RunningAnew, call
from gymnasium.spaces import Box, Dict, Discrete

from doom_a3c.envs.games import make_game_factory
from doom_a3c.run.launch import make_new_run
from doom_a3c.run.play import doctor, trial_games
from doom_a3c.run.play.doctor import examine


class Sick(gymnasium.Env):
    """Pays a million, in its last step only; its second and third actions do nothing."""

    observation_space = Box(0, 255, (84, 84), np.uint8)
    action_space = Discrete(4)
    length = 600

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = self.position = 0
        return self.see(), {}

    def see(self):
        return np.full((84, 84), self.position % 4, np.uint8)

    def step(self, action):
        self.time += 1
        self.position += {0: 1, 3: 2}.get(int(action), 0)
        ended = self.time >= self.length
        return self.see(), 1e6 * ended, ended, False, {}


class Poor(Sick):
    """Never pays."""

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, 0.0, *rest


class Endless(Sick):
    """Pays an infinite reward."""

    length = 5

    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, reward * np.inf if reward else 0.0, *rest


class Numbers(gymnasium.Env):
    """Shows `see` of the time for 20 steps, and pays 1 a step."""

    action_space, pay = Discrete(2), 1.0
    see = staticmethod(lambda time: np.array([time / 20, 0], np.float32))

    @property
    def observation_space(self):
        return Box(-np.inf, np.inf, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.see(0), {}

    def step(self, action):
        self.time += 1
        return self.see(self.time), self.pay, self.time >= 20, False, {}


class Grid(Numbers):
    """Encodes cells as small numbers, like MiniGrid."""

    observation_space = None

    def __init__(self, side=7):
        self.observation_space = Box(0, 255, (side, side, 3), np.uint8)
        cells = np.random.default_rng(0).integers(11, size=(side, side, 3)).astype(np.uint8)
        self.see = lambda time: cells


class Slow(Numbers):
    """Sleeps in every step."""

    def step(self, action):
        time.sleep(0.002)
        return super().step(action)


def numbers(see, actions=2, pay=1.0):
    """Registers a Numbers game with its own `see`, actions and pay; returns its id."""
    members = {"see": staticmethod(see), "action_space": Discrete(actions), "pay": pay}
    gymnasium.register("tests/These-v0", type("These", (Numbers,), members))
    return "tests/These-v0"


gymnasium.register("tests/Grid-v0", Grid)
gymnasium.register("tests/LargeGrid-v0", Grid, kwargs={"side": 40})
gymnasium.register("tests/Sluggish-v0", Slow)


class Mixed(Sick):
    """Ends early in half of its episodes and late in the others."""

    def reset(self, **options):
        observation = super().reset(**options)
        self.length = 5 if self.np_random.random() < 0.5 else 300
        return observation


gymnasium.register("tests/Mixed-v0", Mixed)
gymnasium.register("tests/Endless-v0", Endless)
gymnasium.register("tests/Sick-v0", Sick)
gymnasium.register("tests/Poor-v0", Poor)


def diagnose(scenario, tmp_path, processes=0, **settings):
    record = make_new_run(
        {"scenario": scenario, "frames_dir": str(tmp_path), "models_dir": str(tmp_path / "new"), **settings}
    )
    with closing(make_game_factory(record.scenario.game, record.scenario.observation, processes)) as games:
        return {finding.subject: finding for finding in examine(record, games)}


class Locked(Sick):
    """Allows only the first two of four actions at its start."""

    action_space = Discrete(4)

    def action_masks(self):
        return np.array([1, 1, 0, 0], np.int8)


gymnasium.register("tests/Locked-v0", Locked)


def test_actions_that_were_never_allowed_are_not_called_the_same(tmp_path):
    finding = diagnose("tests/Locked-v0", tmp_path)["actions"]
    assert finding.result.startswith("4 of 4 tried")
    assert "action 2" not in finding.advice
    assert "action 3" not in finding.advice


def test_a_bad_game_gets_advice_on_each_problem(tmp_path):
    findings = diagnose("tests/Sick-v0", tmp_path, discount=0.9, normalize_rewards=False)
    advice = {name: finding.advice for name, finding in findings.items() if finding.advice}
    assert "--normalize-rewards" in advice["rewards"]
    assert "--reward-scale 1e-06" in advice["rewards"]
    normalized = diagnose("tests/Sick-v0", tmp_path)["rewards"]  # the default for a game without a file
    assert (normalized.result.rpartition("; ")[2], normalized.advice) == (
        "divided by the spread of their discounted sums",
        "",
    )
    assert "single colour" in advice["network sees"]
    assert advice["actions"].startswith("action 1, action 2 do the same in the first 8 steps")
    assert "--discount 0.998" in advice["episodes"]
    assert findings["random play"].result == "mean 1000000.0, 1000000.0 to 1000000.0, 32 episodes"
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("length", "discount"), [(60, "0.98"), (500, "0.998"), (2100, "0.9995"), (20_000, "0.99995")])
def test_the_advised_discount_is_below_1_however_long_the_episodes_are(length, discount):
    rare = np.zeros(1000)
    play = trial_games.RandomPlay([0.0] * 32, [length] * 32, 32, 0, rare, [], np.zeros(0), 1.0)
    record = make_new_run({"scenario": "basic", "discount": 0.5})
    advice = doctor._check_lengths(record, SimpleNamespace(steps_per_second=35.0), play).advice
    assert advice.endswith(f"--discount {discount}")


@pytest.mark.parametrize(("step_seconds", "whole"), [(0.001, True), (0.05, False)])
def test_random_play_does_not_overcount_short_episodes(monkeypatch, step_seconds, whole):
    clock = itertools.count()
    monkeypatch.setattr(trial_games, "time", SimpleNamespace(monotonic=lambda: step_seconds * next(clock)))
    record = make_new_run({"scenario": "tests/Mixed-v0"})
    with closing(make_game_factory(record.scenario.game, record.scenario.observation, 0)) as games:
        play = trial_games.play_at_random(games, seed=3)
        episodes = doctor._check_lengths(record, games, play)
    assert play.missing == trial_games.GAMES * trial_games.EPISODES - len(play.lengths)
    assert (play.missing == 0) == whole
    if whole:
        assert 0.25 <= np.mean(np.array(play.lengths) == 5) <= 0.75  # three standard errors
    assert ("shorter ones" in doctor._check_scores(record, play).result) == ("or more" in episodes.result) == (not whole)


def test_a_game_that_never_pays_is_reported(tmp_path):
    assert diagnose("tests/Poor-v0", tmp_path)["rewards"].result == "random play is never paid"


def test_non_finite_rewards_are_reported(tmp_path):
    assert diagnose("tests/Endless-v0", tmp_path)["rewards"].result == "some are not finite"


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
@pytest.mark.parametrize("when", [0, 7, 20])  # the first, a middle and the last observation
def test_non_finite_observations_are_reported_at_any_time(tmp_path, monkeypatch, value, when):
    monkeypatch.setattr(trial_games, "EPISODES", 1)
    game = numbers(lambda time: np.array([0, value if time == when else 1]))
    try:
        finding = diagnose(game, tmp_path)["numbers seen"]
    finally:
        gymnasium.registry.pop(game)
    assert finding.result.startswith("some are NaN or infinite: [1] in ")
    assert "NaN" in finding.advice


def test_the_unusable_share_is_relative_to_all_observations(tmp_path, monkeypatch):
    monkeypatch.setattr(trial_games, "EPISODES", 1)
    game = numbers(lambda time: np.array([0, np.nan if time == 20 else 1]))  # one observation in 21
    try:
        result = diagnose(game, tmp_path)["numbers seen"].result
    finally:
        gymnasium.registry.pop(game)
    assert f"[1] in {100 * 8 / (8 * 22):.3g}%" in result  # counting the next episode's first observation


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("pay", [1.7e308, np.inf, np.nan])
def test_overflowing_reward_sums_print_no_warning(tmp_path, monkeypatch, pay):
    monkeypatch.setattr(trial_games, "EPISODES", 1)
    game = numbers(Numbers.see, pay=pay)
    try:
        finding = diagnose(game, tmp_path)["rewards"]
    finally:
        gymnasium.registry.pop(game)
    expected = "1.7e+308 typically, 1.7e+308 at most" if np.isfinite(pay) else "some are not finite"
    assert expected in finding.result


def test_a_one_action_game_of_numbers_gets_fitting_advice(tmp_path, monkeypatch):
    monkeypatch.setattr(trial_games, "EPISODES", 1)
    game = numbers(lambda time: np.array([300.0, 0]), actions=1)
    try:
        findings = diagnose(game, tmp_path)
    finally:
        gymnasium.registry.pop(game)
    advice = {name: finding.advice for name, finding in findings.items() if finding.advice}
    assert findings["game"].result.endswith(", 1 action")
    assert "[0] 300 in the environment" in advice["numbers seen"]
    assert "single action" in advice["actions"]
    assert advice.keys() == {"numbers seen", "actions"}


def test_an_endless_game_is_advised_its_own_timeout_setting(tmp_path):
    for game, setting in (("CartPole-v1", "max_episode_steps"), ("basic", "episode_timeout"), ("pong", "max_frames")):
        record = make_new_run({"scenario": game, "models_dir": str(tmp_path / "new")})
        nothing = np.zeros(0)
        assert (
            setting in doctor._check_scores(record, trial_games.RandomPlay([], [], 0, 32, nothing, [], nothing, 1.0)).advice
        )


def test_a_match_that_outlasts_the_doctor_is_no_mistake(tmp_path):
    record = make_new_run({"scenario": "duel", "models_dir": str(tmp_path / "new")})
    nothing = np.zeros(0)
    finding = doctor._check_scores(record, trial_games.RandomPlay([], [], 0, 32, nothing, [], nothing, 1.0))
    assert "4 minutes" in finding.result
    assert finding.advice == ""


@pytest.mark.parametrize(("game", "words"), [("tests/Grid-v0", "147 numbers"), ("tests/LargeGrid-v0", "than 9 of 255")])
def test_a_grid_of_small_numbers_gets_no_advice(tmp_path, monkeypatch, game, words):
    monkeypatch.setattr(trial_games, "EPISODES", 1)
    seen = diagnose(game, tmp_path)["network sees"]
    assert seen.advice == ""
    assert words in seen.result


def test_the_parts_of_a_dict_observation_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(trial_games, "EPISODES", 1)
    findings = diagnose("tests/Rover-v0", tmp_path)
    assert "84x84 pixels, 1 channel and 6 numbers" in findings["network sees"].result
    assert findings["left out"].result == "task (Text)"
    assert "scale speed[1] " in findings["numbers seen"].advice


def test_a_slow_game_is_advised_to_use_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(trial_games, "EPISODES", 1)
    assert diagnose("tests/Sluggish-v0", tmp_path)["speed"].advice.startswith("--game-processes ")
    assert diagnose("tests/Sluggish-v0", tmp_path, game_processes=1)["speed"].advice == ""


def test_continuous_actions_are_tried_at_both_bounds(tmp_path):
    actions = diagnose("Pendulum-v1", tmp_path)["actions"]
    assert actions.result.startswith("3 of 3 tried")
    assert actions.advice == ""


def test_choices_and_bounds_without_an_effect_are_named(tmp_path):
    actions = {"mode": Discrete(2), "look": Box(np.float32([0, -5]), np.float32([1, 5]))}
    gymnasium.register("tests/Still-v0", type("Still", (Numbers,), {"action_space": Dict(actions)}))
    advice = diagnose("tests/Still-v0", tmp_path)["actions"].advice
    ends = "look[0] lowest, look[0] highest, look[1] lowest, look[1] highest"
    assert advice.startswith(f"mode=0, mode=1, {ends} do the same")


@pytest.mark.process
def test_a_good_game_gets_a_single_piece_of_advice(tmp_path):
    result = call("train", "--doctor", "--scenario", "basic", cwd=tmp_path, start=RunningAnew)
    assert (result.returncode, result.stderr) == (0, "")  # not even TensorFlow's messages
    (advice,) = [line for line in result.stdout.splitlines() if line.startswith("  -> advice")]
    assert "no action presses nothing" in advice
    (sheet,) = tmp_path.glob("frames/*-seen.png")
    assert imageio.imread(sheet).std() > 10
    assert {path.name for path in tmp_path.iterdir()} == {"frames"}


def test_parallel_matches_are_measured(tmp_path, monkeypatch):
    for name in ("PLAY_SECONDS", "TRIAL_SECONDS", "MATCH_SECONDS"):
        monkeypatch.setattr(trial_games, name, 0.5)
    monkeypatch.setattr(doctor, "MATCHES", (1, 3))
    finding = diagnose("duel", tmp_path, None)["matches"]
    assert re.findall(r"(\d): [\d,]+ frames/s", finding.result) == ["1", "3"]
    monkeypatch.setattr(doctor, "measure_matches", lambda games, matches: {1: 99.0, 3: 50.0}[matches])
    advice = diagnose("duel", tmp_path, None)["matches"].advice
    assert "1 play faster" in advice
    assert advice.endswith("--envs-per-worker 2")


@pytest.mark.parametrize(
    ("scenario", "advice"), [("CartPole-v1", {}), ("ALE/Breakout-v5", {"actions": "FIRE does nothing"})]
)
def test_actions_that_do_nothing_are_reported(scenario, advice, tmp_path, monkeypatch):
    monkeypatch.setattr(trial_games, "EPISODES", 1)
    given = {name: finding.advice for name, finding in diagnose(scenario, tmp_path).items() if finding.advice}
    assert given.keys() == advice.keys()
    assert all(given[name].startswith(words) for name, words in advice.items())


def test_an_unknown_scenario_gives_a_one_line_error(tmp_path):
    result = call("train", "--doctor", "--scenario", "basik", cwd=tmp_path)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
