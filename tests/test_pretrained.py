"""Models that ship with the project, and runs that start from a model's weights."""

import json
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from commands import SMALL, call, train
from fakes import complaint

import doom_a3c as dc
from doom_a3c.agent.opponents import PolicyOpponent
from doom_a3c.agent.player import Player
from doom_a3c.agent.policy import Policy
from doom_a3c.cli import listing
from doom_a3c.run.builder import Builder
from doom_a3c.run.checkpoints import pretrained
from doom_a3c.run.checkpoints.checkpoint import load, save
from doom_a3c.run.evaluator import play_first_episodes
from doom_a3c.run.play.agent import TrainedAgent
from doom_a3c.run.transfer import transfer
from doom_a3c.settings import catalog
from doom_a3c.settings.config import Config
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.trust import GameOverride


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A barely trained checkpoint of basic."""
    folder = tmp_path_factory.mktemp("model")
    result = call("train", "--scenario", "basic", *SMALL, "--frames", "2000", cwd=folder)
    assert result.returncode == 0, result.stderr
    return folder / "models" / "best.ckpt"


# Models whose episodes take seconds of CPU: Atari's best, Doom games that are won by staying alive, and matches.
LONG = dict.fromkeys(
    [
        *("breakout", "breakout_lstm", "pong", "pong_lstm", "take_cover", "deathmatch"),
        *("cig_bots", "deathmatch_bots", "duel", "duel_bots"),
    ],
    pytest.mark.process,
)


def scores_side_by_side(agent, greedy, episodes):
    """Plays one episode in each of several games at once, with one network call a step for all of them."""
    epsilons = np.full(episodes, agent.record.config.evaluation_epsilon if greedy else 0.0, np.float32)
    random = np.random.default_rng(2)

    def play_itself(players):
        return PolicyOpponent(Policy(agent.network), players, random)

    with closing(agent.builder.make_evaluation_env(episodes, play_itself)) as env:
        player = Player(env, Policy(agent.network), np.random.default_rng(1), range(episodes))
        policies = np.full(episodes, greedy)
        finished = play_first_episodes(lambda: player.step(epsilons, policies), [1] * episodes, lambda: True)
    return finished


@pytest.mark.parametrize("name", [pytest.param(name, marks=LONG.get(name, ())) for name in pretrained.list_models()])
def test_a_model_scores_what_its_card_says(name):
    card = pretrained.read_cards()[name]
    assert (pretrained.find_folder() / f"{name}.ckpt").stat().st_size <= 3_100_000
    policy, (mean, std) = max({"greedy": card.greedy, "sample": card.sample}.items(), key=lambda each: each[1][0])
    gained = mean - card.random[0]

    def tolerance(episodes):
        return 3 * std * (1 / episodes + 1 / card.episodes) ** 0.5 + 0.01 * abs(mean)

    # One to three if they expose a model that lost two thirds of its gain, else four or more, to expose random play.
    episodes = next(number for number in range(1, 30) if tolerance(number) < (gained if number >= 4 else gained * 2 / 3))
    played = np.mean(scores_side_by_side(dc.load(name), policy == "greedy", episodes))
    assert abs(played - mean) <= tolerance(episodes)


@pytest.mark.process
def test_play_py_finds_a_model_by_its_name(tmp_path):
    result = call(
        "play", "--model", "basic", "--episodes", "2", "--record-episodes", 0, "--random-episodes", 0, cwd=tmp_path
    )
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "result" / "summary.json").read_text())["model"] == str(pretrained.list_models()["basic"])


def test_every_model_has_a_card_and_is_listed():
    assert pretrained.list_models().keys() == pretrained.read_cards().keys()
    assert all(f"\n{name} " in f"\n{listing.list_models()}" for name in pretrained.list_models())


def test_half_precision_weights_decide_like_the_full_ones(model, tmp_path):
    variables, record = load(model)
    save(tmp_path / "half.ckpt", {name: value.astype(np.float16) for name, value in variables.items()}, record)
    assert (tmp_path / "half.ckpt").stat().st_size < 0.51 * model.stat().st_size + 100_000
    whole, half = dc.load(model), dc.load(tmp_path / "half.ckpt")
    observation, random = None, np.random.default_rng(0)
    states = {whole: None, half: None}
    for _ in range(20):
        observation = random.integers(256, size=whole.network.inputs.pixels, dtype=np.uint8)
        decided = []
        for agent, state in states.items():
            batch, resets = observation[None], np.full(1, state is None, np.float32)
            decision = agent._policy(batch, resets, agent._policy.initial_state(1) if state is None else state)
            states[agent] = decision.core_state
            decided.append((decision.logits, decision.values))
        for one, other in zip(*decided, strict=True):
            np.testing.assert_allclose(one, other, atol=5e-3)


def test_a_model_is_found_by_path_or_name(model, tmp_path, monkeypatch):
    monkeypatch.setattr(pretrained, "_FOLDERS", (tmp_path / "nowhere", model.parent))
    assert pretrained.find_model("best") == model
    assert pretrained.find_model(str(model)) == model.resolve()
    for wrong, message in {
        "bst": "did you mean best",
        f"{tmp_path}/no": "no checkpoint /",
        "no.ckpt": "no checkpoint no",
    }.items():
        with pytest.raises(UserError, match=message):
            pretrained.find_model(wrong)


def weights(network):
    return {variable.name: variable.numpy().copy() for variable in network.parameters}


@pytest.fixture
def permuted(tmp_path):
    """The scenario basic in a file of the same name, with its buttons in another order."""
    path = tmp_path / "own" / "basic.toml"
    path.parent.mkdir()
    path.write_text('base = "basic"\n[game]\nbuttons = ["ATTACK", "MOVE_RIGHT", "MOVE_LEFT"]\n')
    return path


@pytest.mark.parametrize(("scenario", "heads"), [("basic", True), ("defend_the_center", False), ("permuted", False)])
def test_heads_transfer_only_to_the_same_game_and_actions(model, scenario, heads, permuted):
    agent = TrainedAgent.load(model)
    plays = str(permuted) if scenario == "permuted" else scenario
    found = catalog.find(plays)
    game = found.game if scenario == "permuted" else agent.record.scenario.game
    builder = Builder(replace(agent.record.scenario, name=found.name, game=game), agent.record.config)
    network = builder.make_network("new", 12345)
    before, source = weights(network), weights(agent.network)
    message = transfer(network, model, builder, plays)
    assert f"{'all' if heads else '9 of 11'} of the weights of best, trained on basic" in message
    assert ("heads" in message) == (not heads)
    after = weights(network)
    for name in before:
        is_head = name.startswith(("policy/", "value/"))
        expected = before if is_head and not heads else source
        np.testing.assert_array_equal(after[name], expected[name])


def test_actions_match_for_any_order_of_available_buttons():
    pressed = [["MOVE_LEFT", "ATTACK"], ["MOVE_RIGHT", "ATTACK"]]
    game = replace(catalog.find("basic").game, buttons=pressed)
    builder = Builder(replace(catalog.find("basic"), game=game), Config())
    assert builder.has_learned(replace(game, available_buttons=("ATTACK", "MOVE_RIGHT", "MOVE_LEFT")))
    assert not builder.has_learned(replace(game, buttons=pressed[::-1]))
    assert not builder.has_learned(replace(game, buttons=[["MOVE_UP"]]))  # there is no such button


def test_reordered_actions_are_refused_for_play_and_resume(model, permuted, tmp_path):
    message = complaint(TrainedAgent.load, model, GameOverride(scenario=str(permuted)))
    assert str(model) in message
    assert f"other actions than {permuted}" in message
    assert TrainedAgent.load(model, GameOverride(scenario="basic")).actions == ["MOVE_LEFT", "MOVE_RIGHT", "ATTACK"]
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "last.ckpt").write_bytes(model.read_bytes())
    result = call("train", "--resume", "--scenario", permuted, "--frames", 9000, cwd=tmp_path)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
    assert all(word in result.stderr for word in ("models/last.ckpt", "other actions", "scenario basic", "--resume"))


@pytest.mark.process
def test_train_from_reports_the_weights_and_starts_from_them(model, tmp_path):
    result = train(tmp_path, "--from", model, "--frames", "1", "--learning-rate", "1e-12")
    assert result.returncode == 0, result.stderr
    assert "all of the weights of best, trained on basic" in result.stdout
    learned, source = load(tmp_path / "models" / "last.ckpt"), load(model)
    assert learned.record.counters.frames < 1000
    for name in {name.split(":")[0] for name in weights(TrainedAgent.load(model).network)}:
        np.testing.assert_allclose(learned.variables[name], source.variables[name], atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--scenario", "cartpole", "--from", "MODEL"), "none of its weights fit cartpole"),
        (("--scenario", "basic", "--from", "MODELS"), "is a folder"),
        (("--scenario", "basic", "--from", "basik"), "there is no checkpoint or model basik"),
        (("--resume", "--from", "MODEL"), "is for a new run"),
    ],
)
def test_an_unusable_from_flag_gives_a_one_line_error(model, tmp_path, arguments, message):
    places = {"MODEL": model, "MODELS": tmp_path}
    result = call("train", *(places.get(each, each) for each in arguments), cwd=tmp_path)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
    assert message in result.stderr
    assert not (tmp_path / "models" / "last.ckpt").exists()


def test_act_takes_numbers_of_any_type_and_nothing_else():
    agent = dc.load("cartpole")
    seen = np.array([0.01, -0.2, 0.03, 0.4])
    assert agent.act(seen, policy="greedy")[0] == agent.act(seen.astype(np.float32), policy="greedy")[0]
    assert agent.act(np.zeros(4, int), policy="greedy")[0] in (0, 1)
    with pytest.raises(ValueError, match="float32"):
        agent.act(np.array(["0"] * 4))
    for policy in ("best", "", 3):
        with pytest.raises(ValueError, match="greedy or sample"):
            agent.act(seen, policy=policy)
