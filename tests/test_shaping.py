"""Reward shaping: its rewards are for learning and not part of the score."""

import itertools
import json
import os
import signal
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import vizdoom
from commands import call, train
from doom_games import BASIC
from fakes import complaint
from registered_toys import Plain
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from doom_a3c.agent.distributions import Categorical
from doom_a3c.agent.player import Player
from doom_a3c.agent.policy import Decision, Policy
from doom_a3c.agent.rewards import RewardScale, RewardScaler, RewardStats
from doom_a3c.agent.rollouts import Actor
from doom_a3c.engines.update_log import average_episodes
from doom_a3c.envs.doom.engine_process import DoomProcess
from doom_a3c.envs.doom.env import DoomEnv
from doom_a3c.envs.doom.setup import check, configure
from doom_a3c.envs.processes.local_vectors import LocalVectorEnv
from doom_a3c.envs.processes.vectors import ProcessVectorEnv
from doom_a3c.run.actors import ActorFactory
from doom_a3c.run.builder import Builder
from doom_a3c.run.checkpoints.checkpoint import load
from doom_a3c.run.launch import make_new_run
from doom_a3c.settings import catalog
from doom_a3c.settings.config import Config
from doom_a3c.settings.fields import Schedule
from doom_a3c.settings.interface import SHAPING
from doom_a3c.settings.scenarios import from_plain, to_plain
from doom_a3c.settings.shaping import Weight, parse_shaping, parse_weights

HEALTH = catalog.find("health_gathering")
TABLE = {"HEALTH": {"gain": 0.05, "loss": 0.01}, "HITS_TAKEN": -0.5, "DEATHCOUNT": {"gain": -2.0, "most": 1.5}}


@pytest.mark.parametrize(
    ("weight", "change", "worth"),
    [
        (Weight(gain=2.0, loss=0.5), 3.0, 6.0),
        (Weight(gain=2.0, loss=0.5), -3.0, -1.5),
        (Weight(gain=2.0), -3.0, 0.0),
        (Weight(gain=1.0, most=1.0), 25.0, 1.0),
        (Weight(loss=1.0, most=1.0), -25.0, -1.0),
        (Weight(gain=2.0), 0.0, 0.0),
    ],
)
def test_gains_and_losses_have_separate_weights_and_a_limit(weight, change, worth):
    assert weight.worth(change) == worth


def test_the_weight_of_shaping_follows_its_schedule(closing):
    config = Config(envs_per_worker=2, rollout_length=40, frames=1000, shaping_weight=Schedule(2.0, 0.0))
    builder = Builder(replace(HEALTH, game=replace(HEALTH.game, shaping={"HEALTH": {"loss": 0.3}})), config)

    def play(frames):
        counts = SimpleNamespace(frames=frames)
        make_actor = ActorFactory(config, builder, counts, RewardStats(), lambda recording: None, restarts=0)
        return closing(make_actor(0, Policy(builder.make_network("worker", 0)))).play_rollout().rollout.rewards

    early, half, late = (play(frames) for frames in (0, 500, 1000))
    closing(builder)
    assert (late == 4).all()  # the game's own: 1 a frame
    assert early.min() < 0  # acid takes 4 or more at once
    np.testing.assert_allclose(half, (early + late) / 2, rtol=1e-6)


def by_hand(spec, seed, actions, variables, close):
    """Returns some variables after each step of an episode, and its score, read from a separate engine."""
    process = close(DoomProcess(partial(configure, spec=spec, observation=HEALTH.observation)))
    game, buttons, rows = process.game, check(spec, HEALTH.observation), []
    game.set_seed(seed)
    game.new_episode()
    for action in [None, *actions]:
        if action is not None:
            game.make_action(buttons.press(action), spec.frame_skip)
        rows.append([game.get_game_variable(getattr(vizdoom.GameVariable, name)) for name in variables])
        if game.is_episode_finished():
            break
    return np.array(rows), game.get_total_reward()


def test_shaping_pays_variable_changes_and_keeps_the_score(closing):
    shaped = closing(DoomEnv(replace(HEALTH.game, shaping=TABLE), HEALTH.observation))
    actions = np.random.default_rng(0).integers(1, shaped.action_space.n, size=600)  # action 0 does nothing
    for seed in (3, 4):  # the second episode starts with a death already counted
        _, info = shaped.reset(seed=seed)
        rewards, bonuses, over = [], [], False
        for action in actions:
            _, reward, terminated, truncated, step_info = shaped.step(action)
            rewards.append(reward)
            bonuses.append(step_info.get(SHAPING, 0.0))
            if over := terminated or truncated:
                break
        assert over
        seen, score = by_hand(HEALTH.game, info["seed"], actions, TABLE, closing)
        assert len(seen) == len(rewards) + 1
        assert sum(rewards) == score
        health, hits, deaths = np.diff(seen, axis=0).T
        assert deaths[-1] == 1  # the last decision is paid for too
        expected = np.where(health > 0, 0.05, 0.01) * health - 0.5 * hits + np.maximum(-2.0 * deaths, -1.5)
        np.testing.assert_allclose(bonuses, expected, atol=1e-9)
        assert (health > 0).any()


def test_every_place_is_paid_once_an_episode(closing):
    maze = replace(catalog.find("my_way_home").game, shaping={"PLACES": 0.5})
    env = closing(DoomEnv(maze, HEALTH.observation))
    actions = np.random.default_rng(0).integers(env.action_space.n, size=40).repeat(8)  # walks instead of jittering
    for seed in (3, 4):  # the second episode may revisit places of the first
        _, info = env.reset(seed=seed)
        bonuses = [env.step(action)[4].get(SHAPING, 0.0) for action in actions]
        seen, _ = by_hand(maze, info["seed"], actions, ["POSITION_X", "POSITION_Y"], closing)
        squares = [tuple(square) for square in (seen // 128).astype(int)]
        expected = [0.0 if square in squares[:at] else 0.5 for at, square in enumerate(squares)][1:]
        assert bonuses == expected
        assert len(set(squares)) < len(list(itertools.groupby(squares)))  # it has returned to one of them
        assert sum(bonuses) > 1


def test_ammunition_is_paid_for_but_not_a_change_of_weapon(closing):
    arena = catalog.find("deathmatch").game
    weights = {"gain": 1.0, "loss": 1.0}
    buttons = [[], "SELECT_WEAPON1", "SELECT_WEAPON2", "ATTACK"]  # fist and pistol
    env = closing(DoomEnv(replace(arena, buttons=buttons, shaping={"SELECTED_WEAPON_AMMO": weights}), HEALTH.observation))
    _, info = env.reset(seed=3)
    actions = [0] * 5 + ([1] + [0] * 8 + [2] + [0] * 8) * 2 + [3] * 10 + [0] * 5
    bonuses = [env.step(action)[4].get(SHAPING, 0.0) for action in actions]
    names = ["SELECTED_WEAPON", "SELECTED_WEAPON_AMMO", "AMMO2"]
    weapons, held, bullets = by_hand(env._spec, info["seed"], actions, names, closing)[0].T
    assert set(weapons) == {1, 2}
    assert np.ptp(held) > 40  # the fist has none
    assert bonuses == list(np.diff(bullets))
    assert sum(bonuses) < -2


def test_an_episode_after_a_fault_pays_only_its_own_changes(closing):
    env = closing(DoomEnv(replace(HEALTH.game, shaping={"HITS_TAKEN": 1.0}), HEALTH.observation))
    env.reset(seed=3)
    paid = sum(env.step(0)[4].get(SHAPING, 0.0) for _ in range(40))
    assert paid > 0
    os.kill(env._process.pid, signal.SIGKILL)
    *_, truncated, info = env.step(0)
    assert truncated
    assert SHAPING not in info
    env.reset()
    assert sum(env.step(0)[4].get(SHAPING, 0.0) for _ in range(40)) == paid  # acid hurts at the same times


class Paid(Plain):
    """Pays 1 a step, and 10 times the step's number as shaping from the second on; an episode has three."""

    def step(self, action):
        self.time += 1
        return np.zeros(2, np.float32), 1.0, self.time == 3, False, {SHAPING: 10.0 * self.time} if self.time > 1 else {}


class Indifferent:
    """A policy without preferences."""

    distribution = Categorical(2)

    def initial_state(self, batch_size):
        return ()

    def __call__(self, observations, resets, core_state):
        return Decision(np.zeros((len(resets), 2), np.float32), np.zeros(len(resets), np.float32), (), 0)


@pytest.mark.parametrize("vector", [LocalVectorEnv, partial(ProcessVectorEnv, processes=2)])
def test_rollouts_include_shaping_and_episodes_keep_both_sums(vector, closing):
    env = closing(vector([Paid] * 2))
    player = Player.from_seed(env, Indifferent(), np.random.SeedSequence(0))
    rewards = RewardScaler(RewardScale(0.5), RewardStats(), 0.9, 2)
    actor = Actor(player, rollout_length=4, frame_skip=1, discount=0.9, rewards=rewards)
    rollout, _, stats = actor.play_rollout()
    np.testing.assert_allclose(rollout.rewards, np.array([[1, 21, 31, 1]]).T.repeat(2, axis=1) / 2)
    assert [(episode.score, episode.shaped) for episode in stats.episodes] == [(3.0, 53.0)] * 2
    metrics = average_episodes(stats.episodes)
    assert (metrics.reward, metrics.shaped_reward) == (3.0, 53.0)
    assert average_episodes([episode._replace(shaped=3.0) for episode in stats.episodes]).shaped_reward is None


def test_a_shaping_table_and_the_flag_are_equivalent(tmp_path):
    (tmp_path / "mine.toml").write_text(
        'base = "take_cover"\n[shaping]\nKILLCOUNT = 1\nHEALTH = { gain = 0.05, loss = 0.01, most = 2 }\n'
    )
    scenario = catalog.find(str(tmp_path / "mine.toml"))
    table = {"KILLCOUNT": Weight(gain=1.0), "HEALTH": Weight(gain=0.05, loss=0.01, most=2.0)}
    assert parse_weights(scenario.game.shaping) == table
    assert parse_weights(from_plain(to_plain(scenario), "x").game.shaping) == table
    flags = ("KILLCOUNT=1", "HEALTH=0.05,0.01,2")
    record = make_new_run({"scenario": "take_cover", "shaping": flags, "models_dir": str(tmp_path)})
    assert parse_weights(record.scenario.game.shaping) == table


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"HELTH": 1}, "'HELTH' (did you mean HEALTH"),
        ({"HEALTH": "much"}, "HEALTH: gain is much"),
        ({"HEALTH": {"win": 1}}, "gain, loss and most"),
        ({"HEALTH": float("nan")}, "gain is nan"),
        ({"HEALTH": 1e9}, "gain is 1000000000.0, 1,000,000 at most"),
        ({"HEALTH": {"gain": 1, "most": 0}}, "most is 0"),
        ({"PLACES": {"loss": 1}}, "[shaping] PLACES"),
    ],
)
def test_mistakes_in_the_table_are_named(table, words):
    assert words in complaint(check, replace(BASIC[0], shaping=table), BASIC[1])


@pytest.mark.parametrize("words", ["HEALTH", "=1", "HEALTH=", "HEALTH=1,2,3,4", "HEALTH=x"])
def test_a_malformed_flag_is_refused(words):
    said = complaint(parse_shaping, [words])
    assert all(part in said for part in (f"--shaping {words}", "VARIABLE=GAIN"))


def test_shaping_is_refused_for_games_other_than_doom():
    settings = {"scenario": "cartpole", "shaping": ("HEALTH=1",)}
    said = complaint(make_new_run, settings)
    assert all(word in said for word in ("--shaping", "Doom"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('base = "basic"\nshaping = 3', ("[shaping]", "table")),
        ('base = "basic"\n[shaping]\nHEALTH = 1\n[game.shaping]\nHEALTH = 2', ("[shaping]", "twice")),
        ('[game]\nid = "CartPole-v1"\n[shaping]\nHEALTH = 1', ("[shaping]", "Doom", "CartPole-v1")),
        ('base = "pong"\n[shaping]\nHEALTH = 1', ("[shaping]", "Doom", "ALE/Pong-v5")),
    ],
)
def test_misplaced_shaping_tables_are_named_as_written(tmp_path, text, words):
    (tmp_path / "mine.toml").write_text(text)
    said = complaint(catalog.find, str(tmp_path / "mine.toml"))
    assert all(word in said for word in words)


def test_a_variable_given_twice_is_refused():
    said = complaint(parse_shaping, ["HEALTH=1", "HEALTH=2"])
    assert all(word in said for word in ("--shaping", "HEALTH", "twice"))


@pytest.mark.process
def test_the_flag_shapes_new_and_resumed_runs(tmp_path):
    flags = ("--frames", "100", "--shaping", "HEALTH=0.05,0.01", "AMMO2=0,0.1,0.2")
    result = train(tmp_path, *flags)
    assert result.returncode == 0, result.stderr
    shaped = load(tmp_path / "models" / "last.ckpt").record.scenario.game.shaping
    assert shaped == {"HEALTH": {"gain": 0.05, "loss": 0.01}, "AMMO2": {"gain": 0.0, "loss": 0.1, "most": 0.2}}
    resumed = call("train", "--resume", "--frames", "200", "--shaping", "KILLCOUNT=1", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert load(tmp_path / "models" / "last.ckpt").record.scenario.game.shaping == {"KILLCOUNT": {"gain": 1.0}}


@pytest.mark.process
def test_a_shaped_run_reports_unshaped_scores(tmp_path):
    # Every shot costs 1000 for learning; the worst game of basic scores some -400.
    flags = ("--frames", "12000", "--seed", "3", "--shaping", "AMMO2=0,1000", "--summary", "summary.json")
    result = train(tmp_path, *flags)
    assert result.returncode == 0, result.stderr
    counters = load(tmp_path / "models" / "last.ckpt").record.counters
    summary = json.loads((tmp_path / "summary.json").read_text())
    logged = {"Perf/Reward": [], "Perf/Shaped Reward": []}
    for run in (tmp_path / "logs").glob("*/train_*"):
        events = EventAccumulator(str(run), size_guidance={"tensors": 0}).Reload()
        for tag in logged.keys() & events.Tags()["tensors"]:  # under load a worker's games may not have ended yet
            logged[tag].extend(float(make_ndarray(event.tensor_proto)) for event in events.Tensors(tag))
    gifs = [float(path.stem.split("score_")[1].rsplit("-", 2)[0]) for path in (tmp_path / "frames").glob("*/*.gif")]
    scored = [*counters.scores, summary["best_evaluation"], *logged["Perf/Reward"], *gifs]
    assert all([counters.scores, logged["Perf/Reward"], gifs])
    assert all(-600.0 < score < 200.0 for score in scored)
    assert min(logged["Perf/Shaped Reward"]) < -1000.0


@pytest.mark.parametrize(
    ("scenario", "words", "token"),
    [
        ("basic", "HEALTH", "--shaping HEALTH: it takes VARIABLE=GAIN"),
        ("basic", "HEALTH=nan", "gain"),
        ("basic", "HEALTH=1e300", "1,000,000 at most"),
        ("basic", "FOO=1", "FOO"),
        ("CartPole-v1", "HEALTH=1", "cartpole"),
        ("ALE/Pong-v5", "HEALTH=1", "pong"),
    ],
)
def test_a_mistake_in_the_flag_gives_a_one_line_error(tmp_path, scenario, words, token):
    result = call("train", "--scenario", scenario, "--shaping", words, cwd=tmp_path)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
    assert token in result.stderr
    assert list(tmp_path.iterdir()) == []
