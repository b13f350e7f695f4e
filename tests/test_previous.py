"""The previous action and reward as part of observations: at each step, in the network and in runs."""

import contextlib
import io
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import atari_games
import numpy as np
import pytest
import tensorflow as tf
from counting import GAMMA, CountingEnv, codes, picture, unroll, vector
from fakes import changed, complaint
from scipy.special import log_softmax
from toys import Lively

import doom_a3c as dc
from doom_a3c.agent.core_kinds import list_cores
from doom_a3c.agent.distributions import Categorical
from doom_a3c.agent.graphs import Graphs
from doom_a3c.agent.inputs import Inputs
from doom_a3c.agent.learner import Learner
from doom_a3c.agent.networks import ACNetwork
from doom_a3c.agent.parameters import variable_name
from doom_a3c.agent.player import Player
from doom_a3c.agent.policy import Policy
from doom_a3c.agent.previous import PreviousEncoder, PreviousSteps
from doom_a3c.agent.rewards import RewardScale, RewardScaler, RewardStats
from doom_a3c.agent.rollouts import Actor
from doom_a3c.agent.saliency import Saliency
from doom_a3c.algorithm.running_moments import NO_MOMENTS, RunningMoments
from doom_a3c.engines.cluster.send_buffer import RolloutBuffer
from doom_a3c.engines.cluster.validation import InvalidPushError, PushRules
from doom_a3c.envs.processes.vectors import ProcessVectorEnv
from doom_a3c.run.builder import Builder
from doom_a3c.run.checkpoints.checkpoint import load, save
from doom_a3c.run.checkpoints.run_record import begin_run
from doom_a3c.run.play.export import export
from doom_a3c.run.transfer import transfer
from doom_a3c.settings import catalog
from doom_a3c.settings.config import Config
from doom_a3c.settings.interface import SHAPING
from doom_a3c.settings.network import Network

ACTIONS, GRAPHS = Categorical(3), Graphs()
SCALE = RewardScale(0.5, limit=4.0)


class Shaped(CountingEnv):
    """A counting game with a shaping reward of 0.25 for each step."""

    def step(self, action):
        *outcome, info = super().step(action)
        return *outcome, {**info, SHAPING: 0.25}


def make_network(core="lstm", *, action=True, reward=True, variables=0):
    """Makes a small network that sees the previous action, the reward, or both."""
    sizes = {"convolutions": ((4, 3, 2),), "hidden": (8,), "core_size": 5}
    spec = Network(**sizes, core=core, previous_action=action, previous_reward=reward)
    inputs = Inputs((8, 8, 1), variables, previous=PreviousEncoder(spec, ACTIONS, SCALE).size)
    return ACNetwork(spec, inputs, ACTIONS, 0, "network", graphs=GRAPHS)


def make_games(network, env, *, scale=SCALE, stats=None, rows=1):
    """Adds the previous steps to the observations of games."""
    stats = stats or RewardStats()
    return PreviousSteps(env, network.inputs, PreviousEncoder(network.spec, ACTIONS, scale), lambda: stats.now, rows)


def make_actor(network, env, *, length=7, scale=SCALE, stats=None, kept=False):
    """Makes an actor; with `kept`, its observations stay in the games' own memory."""
    stats = stats or RewardStats()
    games = make_games(network, env, scale=scale, stats=stats, rows=length + 1 if kept else 1)
    return Actor(
        Player.from_seed(games, Policy(network), np.random.SeedSequence(0)),
        rollout_length=length,
        frame_skip=1,
        discount=GAMMA,
        rewards=RewardScaler(scale, stats, GAMMA, games.num_envs),
        history=games.history if kept else None,
    )


def play(network, env, *, rollouts=3, **kind):
    """Plays rollouts, and copies them, since games may overwrite their memory."""
    with closing(make_actor(network, env, **kind)) as actor:
        return [tf.nest.map_structure(np.array, actor.play_rollout().rollout) for _ in range(rollouts)]


def count(lengths=(3, 4, 20), endings=("terminated", "truncated"), **kind):
    """Makes counting games with episodes of these lengths."""
    return vector([Shaped(index, length, endings=endings, **kind) for index, length in enumerate(lengths)])


def find_numbers(rollouts, *, action=True, reward=True):
    """Returns the numbers that the network should see before each step and after the last, [steps + 1, B, P]."""
    actions, rewards, ends = (
        np.concatenate([getattr(rollout, name) for rollout in rollouts]) for name in ("actions", "rewards", "ends")
    )
    parts = [np.eye(3)[actions]] * action + [rewards[..., None]] * reward
    numbers = np.concatenate(parts, axis=-1)
    numbers[ends] = 0
    return np.concatenate([np.zeros_like(numbers[:1]), numbers])


# At each step


@pytest.mark.parametrize(("action", "reward"), [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("variables", [0, 2])
def test_each_step_sees_the_previous_action_and_reward(action, reward, variables):
    network = make_network(action=action, reward=reward, variables=variables)
    assert network.inputs.previous == 3 * action + reward
    rollouts = play(network, count(variables=bool(variables)))
    expected = find_numbers(rollouts, action=action, reward=reward)
    for index, rollout in enumerate(rollouts):
        seen = rollout.observations["previous"]
        assert seen.dtype == np.float32
        np.testing.assert_array_equal(seen, expected[7 * index : 7 * index + 8])
        assert (seen[rollout.resets == 1] == 0).all()
        *_, time, pictured = codes(rollout)
        if action:  # the games show it too
            np.testing.assert_array_equal(np.argmax(seen[time > 0, :3], axis=-1), pictured[time > 0])
    assert {0.625, 1.125, 4.0} <= set(np.concatenate([rollout.rewards for rollout in rollouts]).ravel())
    assert expected[7].any()  # the border between two rollouts


def test_kept_observations_include_the_previous_steps():
    network = make_network()
    made = [lambda index=index: Shaped(index, 3 + index, ("terminated", "truncated")) for index in range(3)]
    copied = play(network, count((3, 4, 5)))
    kept = play(network, ProcessVectorEnv(made, rows=8, copy=False), kept=True)
    for one, other in zip(copied, kept, strict=True):
        tf.nest.map_structure(np.testing.assert_array_equal, one, other)


def test_a_lost_life_keeps_the_previous_step():
    (rollout,) = play(make_network(), count((7, 9), endings=("terminated",), losses=(2,)), rollouts=1)
    assert rollout.ends[1].all()
    assert not rollout.resets[2].any()
    np.testing.assert_array_equal(np.argmax(rollout.observations["previous"][2, :, :3], axis=1), rollout.actions[1])


@pytest.mark.parametrize("core", ["lstm", "none"])
def test_a_truncation_is_valued_with_its_own_last_step(core):
    network, checked = make_network(core), 0
    for rollout in play(network, count(endings=("truncated",))):
        _, episode, time, _ = codes(rollout)
        for t, b in np.argwhere(rollout.ends):
            column = tf.nest.map_structure(lambda array, t=t, b=b: array[: t + 1, b : b + 1], rollout.observations)
            start = tuple(part[b : b + 1] for part in rollout.core_state)
            _, core_state = network.unroll(column, tf.constant(rollout.resets[: t + 1, b : b + 1]), start)
            action = rollout.actions[t, b]
            numbers = np.float32([*np.eye(3)[action], rollout.rewards[t, b]])
            final = {"pixels": picture(b, episode[t, b], time[t, b] + 1, action)[None], "previous": numbers[None]}
            output, _ = network.step(final, tf.zeros(1), core_state)
            assert rollout.next_values[t, b] == pytest.approx(float(output.values[0]), rel=1e-4, abs=1e-6)
            checked += 1
    assert checked >= 10


def test_seen_rewards_use_statistics_from_before_the_rollout():
    stats = RewardStats()
    stats.add(RunningMoments(100, 0.0, 1600.0))  # a standard deviation of 4
    scale = RewardScale(normalized=True, limit=3.0)
    (rollout,) = play(make_network(action=False), count((30, 30)), scale=scale, stats=stats, rollouts=1, length=20)
    seen = np.arange(1, 21) / 4 + 0.25  # of which shaping pays 0.25
    np.testing.assert_allclose(rollout.observations["previous"][1:, 0, 0], np.minimum(seen, 3.0), rtol=1e-6)
    assert rollout.rewards[3, 0] < seen[3]  # the learned reward's statistics include the rollout's own rewards


def test_seen_rewards_have_all_shaping_whatever_its_weight():
    with closing(make_actor(make_network(action=False), count((30, 30)))) as actor:
        actor._rewards.weigh_shaping = lambda: 0.0
        rollout = actor.play_rollout().rollout
    np.testing.assert_allclose(rollout.observations["previous"][1:, :, 0], np.minimum(rollout.rewards + 0.125, 4.0))


@pytest.mark.parametrize("reward", [np.nan, np.inf, -np.inf, 1e300])
def test_unusable_rewards_are_seen_as_zero(reward):
    network = make_network(action=False)
    env = make_games(network, vector([Lively()]))
    env.reset(seed=np.array([1]))
    pixels, infos = np.zeros((1, 8, 8, 1), np.uint8), {SHAPING: np.array([0.25])}
    env.env.step = lambda actions: (pixels, np.array([reward]), *np.zeros((2, 1), bool), infos)
    with closing(env):
        assert env.step(np.array([1]))[0]["previous"].tolist() == [[0.0]]


def test_atari_games_restart_without_a_previous_step():
    spec = Network(previous_action=True, previous_reward=True)
    env = atari_games.games("Breakout", 2, max_frames=40)
    encoder = PreviousEncoder(spec, Categorical(4), SCALE)
    games = PreviousSteps(env, Inputs((84, 84, 4), 0, previous=encoder.size), encoder, lambda: NO_MOMENTS)
    with closing(games):
        games.reset(seed=np.array([1, 2]))
        for _ in range(10):
            observations, *_, truncated, infos = games.step(np.array([2, 3]))
        assert truncated.all()
        assert not observations["previous"].any()
        for game, final in enumerate(infos["final_obs"]):
            assert final["previous"].tolist() == [*np.eye(4)[2 + game], 0.0]
            assert final["pixels"].shape == (84, 84, 4)
        games.step(np.array([2, 3]))
        assert games.begin_again()[0]["previous"].shape == (2, 5)
    with closing(make_games(make_network(), count((2,)))) as others:
        assert not hasattr(others, "begin_again")


def test_the_observation_space_includes_the_previous_step():
    with closing(make_games(make_network(variables=2), count((2, 3), variables=True))) as games:
        observations, _ = games.reset(seed=np.array([1, 2]))
        assert games.observation_space.contains(observations)
        assert games.single_observation_space["previous"].shape == (4,)


# In the network


@pytest.mark.parametrize("core", list_cores())
def test_an_unroll_matches_the_steps_that_were_played(core):
    network = make_network(core)
    for rollout in play(network, count()):
        logits, values = unroll(network, rollout, 7)
        chosen = np.take_along_axis(log_softmax(logits, axis=2), rollout.actions[..., None], axis=2)[..., 0]
        np.testing.assert_allclose(chosen, rollout.log_probs, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(values, rollout.values, rtol=1e-4, atol=1e-6)
        blind = {**rollout.observations, "previous": np.zeros_like(rollout.observations["previous"])}
        assert np.abs(unroll(network, rollout._replace(observations=blind), 7)[1] - values)[1:].max() > 1e-3


@pytest.mark.parametrize("changes", [{"sequence_length": 2}, {}, {"engine": "queue"}])
def test_minibatches_and_sequences_keep_their_previous_steps(changes):
    network = make_network()
    (rollout,) = play(network, count(), rollouts=1, length=6)
    config = changed(Config(), rollout_length=6, envs_per_worker=3, minibatches=3, epochs=2, **changes)
    learner = Learner(network, changed(config, max_grad_norm=1e9, normalize_advantages=False), 0)
    batch = learner.prepare(rollout)
    dealt = [part for (part,), _ in learner.deal_minibatches([batch])][:3]
    gradients = [learner.compute_gradients([part], 0).gradients for part in dealt]
    whole = learner.compute_gradients([batch], 0).gradients
    for parts, expected in zip(zip(*gradients, strict=True), whole, strict=True):
        np.testing.assert_allclose(sum(np.asarray(part) for part in parts) / 3, expected, rtol=1e-3, atol=1e-6)
    kernel = next(gradient for p, gradient in zip(network.parameters, whole, strict=True) if "input_kernel" in p.name)
    assert (np.abs(kernel[-4:]).max(axis=1) > 0).all()  # the weights for action and reward
    for part in dealt:
        rows, steps = len(part.actions), part.observations["previous"][1 : len(part.actions)]
        goes_on = np.asarray(part.resets)[1:rows] == 0
        np.testing.assert_array_equal(np.argmax(steps[..., :3], axis=-1)[goes_on], part.actions[:-1][goes_on])


def test_saliency_leaves_the_previous_step_unchanged():
    network = make_network("none")
    saliency = Saliency(network)
    random = np.random.default_rng(0)
    pixels = random.integers(256, size=(1, 8, 8, 1), dtype=np.uint8)
    maps = [
        saliency({"pixels": pixels, "previous": np.full((1, 4), number, np.float32)}, np.zeros(1, np.float32), ())[1]
        for number in (0.0, 1.0)
    ]
    assert maps[0].max() > 0
    np.testing.assert_allclose(*maps, rtol=1e-3)  # without a core the previous step only adds to the value


# In a run

TOML = """base = "cartpole"
[network]
core = "gru"
core_size = 8
hidden = [8]
previous_action = true
previous_reward = true
[training]
normalize_rewards = true
"""
QUICK = {"envs_per_worker": 2, "rollout_length": 8, "evaluation_episodes": 2, "evaluate_every": 0.0, "seed": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("previous")
    (folder / "mine.toml").write_text(TOML)
    return folder


def train(folder, frames=800, **changes):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return dc.train("mine.toml", frames=frames, **{**QUICK, "workers": 1, "gif_every": 0, **changes})


@pytest.fixture(scope="module")
def agent(folder):
    return train(folder)


def test_a_run_repeats_bit_for_bit_and_resumes_its_weights(agent, folder, monkeypatch):
    monkeypatch.chdir(folder)
    last, again = (load(one.folder / "last.ckpt") for one in (agent, train(folder)))
    assert last.variables.keys() == again.variables.keys()
    for name, value in last.variables.items():
        np.testing.assert_array_equal(value, again.variables[name])
    assert last.record.counters.reward_sums.size == last.record.counters.steps > 0
    resumed = load(dc.resume(agent.folder, frames=1200, learning_rate=1e-30).folder / "last.ckpt")
    assert resumed.record.counters.frames >= 1200
    for parameter in agent.network.parameters:
        name = parameter.name.split(":")[0]
        np.testing.assert_array_equal(resumed.variables[name], last.variables[name])


@pytest.mark.parametrize("changes", [{"workers": 3}, {"engine": "queue", "workers": 2}, {"workers": 2, "accumulate": 2}])
def test_other_engines_and_several_workers_train(folder, changes):
    assert train(folder, **changes).record.counters.frames >= 800


def test_a_cluster_sends_and_checks_the_previous_steps():
    network, buffer = make_network(), RolloutBuffer(1)
    with closing(make_actor(network, count())) as actor:
        buffer.put(actor.play_rollout())
    push = buffer.take_push()
    config = changed(Config(), engine="cluster", transport="rollouts", envs_per_worker=3, rollout_length=7)
    rules = PushRules(config, network)
    rules.check(push)
    del push["rollout"]["observations"]["previous"]
    with pytest.raises(InvalidPushError, match="observations"):
        rules.check(push)


def test_acting_step_by_step_matches_playing(agent):
    played = agent.play(episodes=1, seed=5, policy="greedy", epsilon=0.0).played[0]
    assert len(played.actions) > 8
    with closing(agent.builder.make_evaluation_env(1)) as env:
        observations, _ = env.reset(seed=np.array([5]))
        state, reward, actions, over = None, None, [], False
        while not over:
            action, state = agent.act(observations["variables"][0], state, "greedy", reward=reward)
            actions.append(action)
            observations, rewards, terminated, truncated, _ = env.step(np.array([action]))
            reward, over = rewards[0], terminated[0] or truncated[0]
    assert actions == list(played.actions)
    with pytest.raises(ValueError, match="reward="):
        agent.act(np.zeros(4), state)
    with pytest.raises(ValueError, match="the state must be"):
        agent.act(np.zeros(4), state[:-1], reward=1.0)


@pytest.mark.parametrize("kind", ["onnx", "savedmodel"])
def test_an_exports_example_plays_like_the_agent(agent, kind, tmp_path):
    _, example = export(agent, kind, tmp_path)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(example.read_text(), example, "exec"), {"__file__": str(example)})
    score = agent.play(episodes=1, seed=1, policy="greedy", epsilon=0.0).scores[0]
    assert float(printed.getvalue()) == score


SMALL = """base = "{base}"
[network]
core = "{core}"
core_size = 8
hidden = [8]
shared = true
previous_action = true
previous_reward = true
"""


@pytest.mark.parametrize("core", ["lstm", "skip_lstm", "gru", "min_gru", "none"])
@pytest.mark.parametrize(
    ("game", "fresh"),
    [
        ("cartpole", 0),
        ("pendulum", 2),  # one number and the reward
        ("other", 3),  # as many as cartpole's, but of another game
    ],
)
def test_transfer_to_another_game_resets_previous_step_weights(tmp_path, monkeypatch, core, game, fresh):
    monkeypatch.chdir(tmp_path)
    for name, base in [("cartpole", "cartpole"), ("pendulum", "pendulum"), ("other", "cartpole")]:
        Path(f"{name}.toml").write_text(SMALL.format(base=base, core=core))
    builders = [Builder(catalog.find(f"{name}.toml"), Config()) for name in ("cartpole", game)]
    source, own = (builder.make_network("global", seed) for seed, builder in enumerate(builders))
    theirs, before = ({variable_name(each): each.numpy() for each in one.parameters} for one in (source, own))
    record = begin_run(builders[0].scenario, Config())._replace(actions=builders[0].action_sizes)
    save(tmp_path / "source.ckpt", theirs, record)
    message = transfer(own, tmp_path / "source.ckpt", builders[1], f"{game}.toml")
    assert ("heads" in message, "previous step" in message) == (fresh > 0, fresh > 0 and core != "none"), message
    kernels = [name for name in before if name.endswith(("input_kernel", "min_gru/kernel"))]
    assert len(kernels) == {"min_gru": 2, "none": 0}.get(core, 1)
    for parameter in own.parameters:
        name, weights = variable_name(parameter), parameter.numpy()
        if name in kernels:
            np.testing.assert_array_equal(weights[:8], theirs[name][:8])
            np.testing.assert_array_equal(weights[8:], (before if fresh else theirs)[name][8:])
        elif "lstm/" in name or "gru/" in name:
            np.testing.assert_array_equal(weights, theirs[name])


def test_weights_of_another_core_give_a_one_line_error(agent, tmp_path):
    variables, record = load(agent.folder / "last.ckpt")
    for core in ("lstm", "min_gru", "none"):
        other = replace(record.scenario, network=replace(record.scenario.network, core=core))
        save(tmp_path / "other.ckpt", variables, record._replace(scenario=other))
        message = complaint(dc.load, tmp_path / "other.ckpt")
        assert "other.ckpt" in message
        for words in ["policy/kernel has the shape"] if core == "none" else [f"no actor/{core}/", "another core"]:
            assert words in message


def test_older_networks_see_no_previous_step():
    agent = dc.load("cartpole")
    assert agent.network.inputs == Inputs(None, 4)
    with closing(agent.builder.make_evaluation_env(1)) as env:
        assert not isinstance(env, PreviousSteps)
