"""Match opponents, the league that they come from, and matches between trained agents."""

import contextlib
import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import vizdoom
from commands import call
from fakes import INPUTS, SPEC, complaint, network
from test_duels import STEPS, make_scenario

from benchmarks.common.processes import engines, kill, parent, until
from doom_a3c.agent.distributions import Categorical
from doom_a3c.agent.opponents import OpposedGames, PolicyOpponent
from doom_a3c.agent.parameters import variable_name
from doom_a3c.agent.policy import Policy
from doom_a3c.agent.random_policy import RandomPolicy
from doom_a3c.cli import cross_play as cross_play_command
from doom_a3c.cli import play as play_command
from doom_a3c.cli.compare import check_games
from doom_a3c.envs.factory import Facts
from doom_a3c.envs.processes.local_vectors import LocalVectorEnv
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.run import session
from doom_a3c.run.builder import Builder
from doom_a3c.run.checkpoints import pretrained
from doom_a3c.run.checkpoints.checkpoint import read_label, save
from doom_a3c.run.checkpoints.folder import CheckpointFolder
from doom_a3c.run.checkpoints.run_record import Best, begin_run, record_from_plain, record_to_plain
from doom_a3c.run.checkpoints.runs import list_checkpoints
from doom_a3c.run.launch import make_new_run, make_resumed_run
from doom_a3c.run.league import LEAST, SIZE, League, Member, find_outcome, rate
from doom_a3c.run.opposition import LeagueOpponent, arrange_league, make_rated_matches
from doom_a3c.run.play.agent import TrainedAgent
from doom_a3c.run.play.cross_play import _play_alike, _play_together, play_pairings
from doom_a3c.run.play.episode_player import EpisodePlayer
from doom_a3c.run.play.human_match import play_person
from doom_a3c.run.play.playback import make_opponent
from doom_a3c.run.play.seated_match import play_seated
from doom_a3c.settings import catalog
from doom_a3c.settings.config import Config
from doom_a3c.settings.fields import settings_of
from doom_a3c.settings.interface import RIVALS
from doom_a3c.settings.match import parse_match, seat_bots
from doom_a3c.settings.scenarios import least_parameters
from doom_a3c.settings.trust import GameOverride

LENGTH = 3  # steps of an episode


class Echo(gymnasium.Env):
    """Shows its number and time, pays its action, and reports the number as a rival's frags at the end."""

    observation_space = gymnasium.spaces.Box(-9, 99, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(10)

    def __init__(self, number):
        self._number, self._time = number, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time = 0
        return self._see(), {"seed": seed or 0}

    def _see(self):
        return np.float32([self._number, self._time])

    def step(self, action):
        self._time += 1
        ended = self._time == LENGTH
        return self._see(), float(action), False, ended, {RIVALS: [float(self._number)]} if ended else {}


class Fixed:
    """An opponent that plays each hidden player's number and records everything it sees."""

    def __init__(self):
        self.seen, self.resets, self.noted = [], [], []

    def act(self, observations, resets):
        self.seen.append(observations.tolist())
        self.resets.append(resets.tolist())
        return observations[:, 0].astype(np.int64)

    def note(self, frags, ended, rivals):
        self.noted.append((frags.tolist(), ended.tolist(), list(rivals)))


class EchoGames(LocalVectorEnv):
    """Games numbered from 0, with the actions that they have taken."""

    def __init__(self, count=4):
        super().__init__([lambda number=number: Echo(number) for number in range(count)])
        self.taken = []

    def step(self, actions):
        self.taken.append(actions.tolist())
        return super().step(actions)


class Duels:
    """A factory of such games, two to a match, with the vectors that it has made."""

    agents, steps_per_second, replayed, make_replayer = 2, 8.75, False, None

    def __init__(self):
        self.made = []

    def describe(self):
        return Facts(Echo.observation_space, Echo.action_space, "echo", None, True)

    def make_vector(self, games, *, limited, rows=1):
        self.made.append(EchoGames(games))
        return self.made[-1]


def test_shown_players_are_games_and_the_rest_are_the_opponents():
    opponent = Fixed()
    env = OpposedGames(EchoGames(), [0, 2, 3], opponent)
    assert env.num_envs == 3
    assert env.observation_space.shape == (3, 2)
    observations, infos = env.reset(seed=[5, 6, 7])
    assert observations[:, 0].tolist() == [0, 2, 3]
    assert infos["seed"].tolist() == [5, 6, 7]
    for step in range(1, LENGTH + 1):
        observations, rewards, _, truncated, infos = env.step(np.array([7, 8, 9]))
        assert rewards.tolist() == [7, 8, 9]
        assert truncated.tolist() == [step == LENGTH] * 3
    assert [one.tolist() for one in infos["final_obs"]] == [[0, 3], [2, 3], [3, 3]]
    assert infos["final_info"][RIVALS].tolist() == [[0.0], [2.0], [3.0]]
    assert observations.tolist() == [[0, 0], [2, 0], [3, 0]]
    env.step(np.array([1, 1, 1]))
    assert opponent.seen == [[[1, 0]], [[1, 1]], [[1, 2]], [[1, 0]]]
    assert opponent.resets == [[1], [0], [0], [1]]
    assert opponent.noted == [([1.0], [False], [None])] * 2 + [([1.0], [True], [[1.0]]), ([1.0], [False], [None])]


def test_actions_of_shown_and_hidden_players_reach_their_games():
    games = EchoGames(4)
    env = OpposedGames(games, [0, 2], Fixed())
    env.reset()
    env.step(np.array([8, 9]))
    assert games.taken == [[8, 1, 9, 3]]


def test_an_opponent_remembers_until_its_match_ends():
    mine = network("mine")
    opponent = PolicyOpponent(Policy(mine), 2, np.random.default_rng(3))
    random, state = np.random.default_rng(3), mine.initial_state(2)
    pixels = np.random.default_rng(0).integers(0, 255, (6, 2, *INPUTS.pixels)).astype(np.uint8)
    for step, resets in enumerate(np.float32([[1, 1], [0, 0], [0, 1], [0, 0], [1, 0], [0, 0]])):
        decision = Policy(mine)(pixels[step], resets, state)
        state = decision.core_state
        expected = Categorical(3).sample(decision.logits, random)
        assert opponent.act(pixels[step], resets).tolist() == expected.tolist()


SMALL = replace(make_scenario(), network=SPEC)


def make_record(frames=0):
    record = begin_run(SMALL, Config())
    return record._replace(counters=record.counters._replace(frames=frames))


def weigh(value):
    return {"policy/kernel": np.full((least_parameters(SMALL), 1), value, np.float32)}


class Fitting:
    """A network that accepts any weights."""

    def load(self, variables):
        pass


def test_a_full_league_drops_its_weakest_and_can_be_read_again(tmp_path):
    league = League(tmp_path / "league")
    ratings = [100.0, 50.0, *(200.0 + 10 * index for index in range(SIZE - 1))]
    for index, rating in enumerate(ratings):
        league.add(make_record(1000 * index), rating, weigh(index))
    kept = [rating for rating in ratings if rating != 50.0]
    assert [member.rating for member in league.members] == kept
    assert len(list((tmp_path / "league").glob("*.ckpt"))) == SIZE
    league.add(make_record(0), 7.0, weigh(-1))
    assert len(league.members) == SIZE, "a member with the same frames is replaced"
    rows = (tmp_path / "league.csv").read_text().splitlines()
    assert rows[0] == "frames,rating"
    assert rows[-1] == "0,7"
    assert "1000,50" in rows, "the table keeps the rating of a member that was dropped"
    (tmp_path / "league" / "frames-000000005000.ckpt").write_bytes(b"damaged")
    warnings = []
    again = League.read(tmp_path / "league", Fitting(), warn=warnings.append)
    (line,) = warnings
    assert "frames-000000005000.ckpt is left out" in line
    assert {member.rating for member in again.members} == {*kept[1:], 7.0} - {ratings[5]}
    assert sorted(float(member.weights["policy/kernel"][0, 0]) for member in again.members)[0] == -1
    again.add(make_record(90_000), 8.0, weigh(3))
    assert (tmp_path / "league.csv").read_text().splitlines() == [*rows, "90000,8"]


@pytest.mark.parametrize(
    ("table", "rating"), [("frames,rating\n0,0\n500,320\n900,\n", 320.0), ("frames,rating\n0,0\nx", 0.0), (None, 0.0)]
)
def test_a_lost_league_goes_on_at_its_last_rating(tmp_path, table, rating):
    if table:
        (tmp_path / "league.csv").write_text(table)
    warnings = []
    league = League.read(tmp_path / "league", Fitting(), warn=warnings.append)
    assert league.last_rating == rating
    assert ["has lost its members" in line for line in warnings] == [True] * (table is not None)


def test_a_full_disk_gives_a_warning_that_names_the_league(tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")  # a failed write names no file

    monkeypatch.setattr("doom_a3c.run.league.save", fail)
    said = []
    state = SimpleNamespace(counters=make_record(5).counters, variables=weigh(0))
    view = SimpleNamespace(log=said.append)
    session._LeagueKeeper(League(tmp_path / "league"), make_record(), ["policy/kernel"], view).add(state, 1.0)
    (line,) = said
    assert str(tmp_path / "league") in line
    assert "No space" in line


def test_a_fixed_league_takes_no_new_members(tmp_path):
    league = League(tmp_path / "league", [Member(0, 0.0, weigh(0))], fixed=True)
    league.add(make_record(5), 500.0, weigh(1))
    assert len(league.members) == 1
    assert not (tmp_path / "league").exists()


def test_members_are_drawn_by_their_wins_in_recent_matches(tmp_path):
    league = League(tmp_path, [Member(index, None, weigh(index)) for index in range(3)])
    for _ in range(60):
        league.note(league.members[0], 0.0)
        league.note(league.members[1], 1.0)
    random = np.random.default_rng(0)
    drawn = Counter(league.draw(random).frames for _ in range(11_000))
    odds = np.array([0, 1, 0.5]) + LEAST  # nothing is known of the last
    np.testing.assert_allclose([drawn[index] / 11_000 for index in range(3)], odds / odds.sum(), atol=0.02)


def test_a_share_of_wins_follows_the_last_matches(tmp_path):
    league = League(tmp_path, [Member(0, None, weigh(0))])
    member = league.members[0]
    for outcome in (1, 0, 0.5):
        league.note(member, outcome)
    share = 0.5
    for outcome in (1, 0, 0.5):
        share = 0.9 * share + 0.1 * outcome
    assert league._get_wins(member) == pytest.approx(share)


def test_a_full_league_drops_the_member_that_wins_least(tmp_path):
    league = League(tmp_path / "league")
    for index in range(SIZE):
        league.add(make_record(1000 * index), None, weigh(index))
        league.note(league.members[-1], float(index != 3))
    league.add(make_record(99_000), None, weigh(0))
    assert [member.frames for member in league.members] == [*(1000 * index for index in range(SIZE) if index != 3), 99_000]
    assert (tmp_path / "league.csv").read_text().splitlines()[-1] == "99000,"
    again = League.read(tmp_path / "league", Fitting())
    assert {member.rating for member in again.members} == {None}
    assert again.find_strong(0).frames == 0, "of a league without ratings any member"


def test_a_twentieth_of_the_budget_makes_a_member_due(tmp_path):
    league = League(tmp_path, [Member(400, None, weigh(0))])
    assert [league.is_due(frames, 2000) for frames in (400, 499, 500, 900)] == [False, False, True, True]
    assert not League(tmp_path, [Member(0, 0.0, weigh(0))], fixed=True).is_due(10**9, 1)
    league = League(tmp_path, [Member(500, None, weigh(0)), Member(400, 0.0, weigh(0))])
    assert not league.is_due(599, 2000), "an evaluated member joins late, and is not the newest"


def test_the_strongest_members_are_found_in_order(tmp_path):
    league = League(tmp_path, [Member(index, rating, weigh(index)) for index, rating in enumerate((-400.0, 400.0, 0.0))])
    assert [league.find_strong(place).rating for place in range(5)] == [400, 0, -400, 400, 0]


@pytest.mark.parametrize("games", [10, 4, 2])
def test_weights_that_win_all_matches_have_the_highest_rating(tmp_path, games):
    league = League(tmp_path, [Member(0, 0.0, trained(0))])
    for frames in range(1, 2 * SIZE):
        opponent = LeagueOpponent(league.find_strong, network, games, np.random.default_rng(frames))
        ratings = [rate(1.0, (0.0,), np.array([each])) for each in meet(opponent, games)]
        halves = [np.mean(half) for half in np.array_split(ratings, 2)]  # the greedy ones and the sampled ones
        assert max(halves) > max(member.rating for member in league.members)
        league.add(make_record(frames), max(halves), trained(frames))


def trained(seed):
    return read_weights(network(f"n{seed}", seed))


def meet(opponent, players):
    """Returns the rating of the member that each player meets in its first match."""
    opponent.act(np.zeros((players, *INPUTS.pixels), np.uint8), np.ones(players, np.float32))
    return opponent.ratings


def test_both_halves_of_an_evaluation_meet_all_four_members(tmp_path):
    league = League(tmp_path, [Member(index, float(index), trained(index)) for index in range(6)])
    met = meet(LeagueOpponent(league.find_strong, network, 10, np.random.default_rng(0)), 10)
    assert set(met[:5]) == set(met[5:]) == {2, 3, 4, 5}


def test_outcomes_of_finished_matches_are_reported_for_the_member_that_played():
    """Frags 2 and 0 in two steps against rivals with 1: won and lost; then a match that was cut short, and a draw."""
    members, said = [Member(index, None, trained(index)) for index in range(2)], []
    random, report = np.random.default_rng(0), lambda member, outcome: said.append((member.frames, outcome))
    opponent = LeagueOpponent(lambda part: members[part], network, 2, random, report)
    pixels, on, ended = np.zeros((2, *INPUTS.pixels), np.uint8), np.zeros(2, np.bool_), np.ones(2, np.bool_)
    opponent.act(pixels, np.ones(2, np.float32))
    opponent.note(np.array([1.0, 0.0]), on, [None, None])
    assert said == []
    opponent.note(np.array([1.0, 0.0]), ended, [[1.0], [1.0]])
    assert said == [(0, 1), (1, 0)]
    opponent.note(np.array([5.0, 1.0]), ended, [None, [1.0]])
    assert said[2:] == [(1, 0.5)]
    opponent.note(np.array([0.0, 0.0]), ended, [[1.0], [-1.0]])
    assert said[3:] == [(0, 0), (1, 1)], "frags start at zero, after a match that was cut short too"


def make_league_opponent(folder):
    """Returns an opponent with eight players that draws from a league of two members, whose ratings are 0 and 100."""
    league = League(folder, [Member(index, 100.0 * index, trained(index)) for index in range(2)])
    random = np.random.default_rng(0)
    return LeagueOpponent(lambda part: league.members[random.integers(2)], network, 8, random)


def test_a_league_opponent_changes_members_only_between_matches(tmp_path):
    opponent, pixels, seen = make_league_opponent(tmp_path), np.zeros((8, *INPUTS.pixels), np.uint8), set()
    for _ in range(20):
        opponent.act(pixels, np.ones(8, np.float32))
        ratings = opponent.ratings.copy()
        seen.add(tuple(ratings))
        opponent.act(pixels, np.float32([0] * 4 + [1] * 4))  # some matches begin anew after faults
        assert (opponent.ratings == ratings).all()
    assert len(seen) > 5
    assert {rating for each in seen for rating in each} == {0.0, 100.0}


def test_matches_out_of_step_after_a_fault_get_new_members_too(tmp_path):
    opponent, pixels, seen = make_league_opponent(tmp_path), np.zeros((8, *INPUTS.pixels), np.uint8), set()
    for begun in [[1, 1], *[[0, 1], [0, 0], [1, 0]] * 20]:
        opponent.act(pixels, np.repeat(np.float32(begun), 4))
        seen.add(tuple(opponent.ratings))
    assert len(seen) > 5


def test_unusable_league_members_are_skipped_or_removed(tmp_path):
    mine, other = read_weights(network("l")), read_weights(network("m", 1))
    league = League(tmp_path)
    mine["of another kind"] = np.zeros(least_parameters(SMALL), np.float32)  # so that the file is large enough
    league.add(make_record(1000), 1.0, mine)
    foreign = {name: np.concatenate([value, value]) for name, value in other.items()} | {"more": mine["of another kind"]}
    league.add(make_record(2000), 2.0, foreign)
    league.add(make_record(3000), 3.0, {name: value * np.nan for name, value in mine.items()})
    for frames in range(4000, 4000 + SIZE):
        shutil.copy(tmp_path / "frames-000000001000.ckpt", tmp_path / f"frames-{frames:012}.ckpt")
    (tmp_path / ".saving-frames-000000009000").write_bytes(b"half")
    again = League.read(tmp_path, network("n"))
    assert {member.rating for member in again.members} == {1.0}
    assert len(again.members) == SIZE, "a folder may hold any number"
    assert not list(tmp_path.glob(".saving-*"))
    again.add(make_record(6000), 6.0, mine)
    assert len(again.members) == SIZE
    again.add(make_record(1000), 5.0, mine)
    assert [member.rating for member in again.members] == [6.0, 5.0], "the new member replaces all copies with its frames"


def read_weights(net):
    return {variable_name(parameter): parameter.numpy() for parameter in net.parameters}


@pytest.mark.parametrize(
    ("frags", "rivals", "ratings", "rating"),
    [
        (0, (0,), [10], 10),
        (0, (1,), [20], -380),
        (15, (2,), [30], 430),
        (3, (), [30], 30),  # unknown after a lost bot
        (3, (1, 10, 2), [0, 30, 0], 10 + 400 / 3),  # two of three are beaten
        (3, (1, 10), [7], 407),  # the bot, which comes last, does not count
    ],
)
def test_a_performance_rating_is_the_mean_over_the_rival_agents(frags, rivals, ratings, rating):
    assert rate(frags, rivals, np.array(ratings, float)) == pytest.approx(rating)


def test_equal_agents_keep_their_rating_however_many_play():
    random = np.random.default_rng(0)
    for rivals in (1, 3):
        played = [rate(mine, theirs, np.zeros(rivals)) for mine, *theirs in random.normal(size=(4000, 1 + rivals))]
        assert abs(np.mean(played)) < 20


def test_an_evaluation_reads_the_ratings_of_each_matchs_own_rivals(tmp_path):
    league = League(tmp_path, [Member(index, 100.0 * index, trained(index)) for index in range(4)])
    builder = SimpleNamespace(agents=3, make_network=network, make_evaluation_env=lambda matches, make: make(2 * matches))
    opponent, read = make_rated_matches(make_record(), builder, league, 5)
    met = meet(opponent, 10).reshape(5, 2)
    assert len({tuple(pair) for pair in met.tolist()}) > 1
    for game, pair in enumerate(met):
        assert read(SimpleNamespace(score=1.0, rivals=(0.0, 2.0), game=game)) == pair.mean(), "one beaten, one not"


def test_the_opponents_of_each_worker_draw_other_members(tmp_path):
    record = make_new_run({"scenario": str(write_duel(tmp_path)), "opponents": "past"})
    builder = Builder(record.scenario, record.config)
    weights = read_weights(builder.make_network("a", 0))
    league = arrange_league(record, builder, tmp_path, weights, print)
    for frames in range(1, SIZE):
        league.add(record._replace(counters=record.counters._replace(frames=frames)), None, weights)
    drawn = []
    for _ in range(3):
        opponent = builder.make_opponent(8)
        drawn.append(tuple(opponent._choose(part).frames for part in range(8)))
    assert len(set(drawn)) == 3


@pytest.mark.parametrize(("score", "rivals", "outcome"), [(2, (1, 1.5), 1), (2, (2, 1), 0.5), (2, (1, 3), 0), (2, (), 0.5)])
def test_the_most_frags_win_a_match(score, rivals, outcome):
    assert find_outcome(score, rivals) == outcome


@pytest.mark.parametrize(("opponents", "shown", "players"), [("self", 6, 6), ("past", 6, 10), ("mine.ckpt", 6, 12)])
def test_training_vectors_have_room_for_hidden_players(opponents, shown, players):
    config = Config(opponents=opponents, envs_per_worker=6)
    games = Duels()
    builder = Builder(catalog.find("cartpole"), config, games)
    builder.opposed = config.count_opposed(2)
    env = builder.make_training_env(6)
    assert (env.num_envs, [vector.num_envs for vector in games.made]) == (shown, [players])
    observations, _ = env.reset()
    firsts = {"self": [0, 1, 2, 3, 4, 5], "past": [0, 2, 4, 6, 8, 9], "mine.ckpt": [0, 2, 4, 6, 8, 10]}[opponents]
    assert observations[:, 0].tolist() == firsts[:6]
    assert builder.make_evaluation_env(3).reset()[0][:, 0].tolist() == [0, 2, 4]


@pytest.mark.parametrize(("agents", "games"), [(2, 16), (2, 6), (2, 2), (3, 9), (4, 16)])
def test_the_past_plays_in_half_of_a_workers_games_or_more(agents, games):
    opposed = Config(opponents="past", envs_per_worker=games).count_opposed(agents)
    assert games / 2 <= opposed < games / 2 + agents
    assert (games - opposed) % agents == 0  # the rest are whole matches
    assert "in half of a worker's games or more" in settings_of(Config)["opponents"].text


def test_an_agent_and_its_opponent_draw_other_random_numbers():
    games = Duels()
    builder = Builder(catalog.find("cartpole"), Config(), games)
    with EpisodePlayer(builder, builder.make_network("player", 0), greedy=False, epsilon=0.0) as player:
        player.play_episode(0)  # the seed of the opponents' stream
    (vector,) = games.made
    assert len(vector.taken) == LENGTH
    assert any(mine != theirs for mine, theirs in vector.taken)


@pytest.fixture
def agents():
    """Two untrained agents for a duel of eight seconds."""
    scenario, config = make_scenario(), Config()
    builder = Builder(scenario, config)
    made = [builder.make_network(name, seed) for seed, name in enumerate("ab")]
    return [TrainedAgent(builder, each, begin_run(scenario, config), f"{index}.ckpt") for index, each in enumerate(made)]


def test_agents_play_each_other_from_both_seats(agents):
    steps = []
    (pairing,) = play_pairings(agents, 3, 1, lambda first, second, done: steps.append((first, second, done)))
    assert (pairing.first, pairing.second, len(pairing.outcomes)) == (0, 1, 3)
    assert {step[:2] for step in steps} == {(0, 1)}
    assert {step[2] for step in steps} == {0, 2}, "two matches at a time from the first seat, then one from the other"


def test_the_winner_of_matches_played_together_is_found_in_both_seats():
    """The first kills itself by rockets at the wall in front, and the second waits."""
    made = [make_agent(name, ["MOVE_FORWARD", "ATTACK"], ["USE"]) for name in "ab"]
    for agent, action in zip(made, (0, 1), strict=True):
        weights = {variable_name(one): one for one in agent.network.parameters}
        weights["lstm/bias"].assign(np.full(1024, 20.0))  # all outputs are near 1
        weights["policy/kernel"].assign(np.tile(np.where(np.arange(2) == action, 1.0, -1.0), (256, 1)))
    assert _play_alike(*made, made[0].record.scenario.game)
    (pairing,) = play_pairings(made, 4, 1, lambda *_: None)
    assert list(pairing.outcomes) == [0, 0, 0, 0]
    assert pairing.share == 0


class Won(gymnasium.Env):
    """Ends at once, with a frag for the player, none for the other agent, and nine for a bot."""

    observation_space = gymnasium.spaces.Box(0, 255, INPUTS.pixels, np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(INPUTS.pixels, np.uint8), {}

    def step(self, action):
        return np.zeros(INPUTS.pixels, np.uint8), 1.0, False, True, {RIVALS: [0.0, 9.0]}


def test_bots_do_not_count_in_matches_played_together():
    builder = SimpleNamespace(agents=2, make_evaluation_env=lambda games, make: LocalVectorEnv([Won] * games))
    host, guest = SimpleNamespace(builder=builder, network=network()), SimpleNamespace(network=network())
    assert _play_together(host, guest, None, 7, 1, lambda done: None) == [1] * 7


@pytest.mark.parametrize("other", [{"variables": ("AMMO5", "HEALTH")}, {"crop": (30, 30, 0, 0)}, {"stack": 3}])
def test_networks_of_equal_shapes_may_see_other_things(other):
    def build(variables=("HEALTH", "AMMO5"), **view):
        base = make_scenario(variables=variables)
        scenario = replace(base, observation=replace(base.observation, **({"color": True} | view)))
        builder = Builder(scenario, Config())
        return TrainedAgent(builder, builder.make_network("a", 0), begin_run(scenario, Config()), "a")

    first = build()
    second = build(**(other | {"color": "stack" not in other}))
    assert first.network.inputs == second.network.inputs
    assert not first.has_interface_of(second)
    assert first.has_interface_of(build())


def make_agent(name, *buttons, wad="multi_duel.wad", **fields):
    """Returns an untrained agent with these actions alone, which sees a larger picture and no numbers."""
    base = make_scenario(wad, variables=())
    available = sorted({button for action in buttons for button in action})
    game = replace(base.game, available_buttons=available, buttons=list(buttons), **fields)
    scenario, config = replace(base, game=game, observation=replace(base.observation, size=(96, 96))), Config()
    builder = Builder(scenario, config)
    return TrainedAgent(builder, builder.make_network(name, 0), begin_run(scenario, config), name)


def test_agents_with_other_buttons_and_views_play_each_other(agents):
    """The fighter kills itself by rockets at the wall in front, whoever is the host, and the walker cannot fire."""
    fighter = make_agent("fighter", ["MOVE_FORWARD", "ATTACK"], ["ATTACK"])
    walker = make_agent("walker", ["MOVE_LEFT"], ["MOVE_RIGHT"], wad="deathmatch.wad", match={})
    check_games([fighter, walker])
    steps = []
    (pairing,) = play_pairings([fighter, walker], 3, 1, lambda first, second, done: steps.append((first, second, done)))
    assert list(pairing.outcomes) == [0, 0, 0]
    assert list(dict.fromkeys(steps)) == [(0, 1, 0), (0, 1, 1), (0, 1, 2)]
    assert len(steps) == 3 * STEPS


def test_a_match_that_an_engines_death_cuts_short_is_played_again():
    walker, fighter = make_agent("walker", ["MOVE_LEFT"], ["MOVE_RIGHT"]), make_agent("fighter", ["ATTACK"], ["USE"])
    steps = []

    def report(done):
        steps.append(done)
        if len(steps) == 5:
            kill(max(engines(os.getpid())))

    played = play_seated([walker, fighter], walker.record.scenario.game, 1, 1, report)
    assert [len(frags) for frags in played] == [2]
    assert len(steps) == 5 + STEPS
    assert until(lambda: not engines(os.getpid()))


def test_only_doom_agents_in_step_play_each_other(agents):
    slow = make_agent("slow", ["ATTACK"], ["USE"], frame_skip=8)
    assert "slow acts every 8 frames, 0.ckpt every 4" in complaint(lambda: check_games([agents[0], slow]))
    scenario = catalog.find("cartpole")
    builder = Builder(scenario, Config())
    pole = TrainedAgent(builder, builder.make_network("pole", 0), begin_run(scenario, Config()), "pole.ckpt")
    assert "pole.ckpt plays cartpole, not Doom" in complaint(lambda: check_games([agents[0], pole]))
    assert "of one game" in complaint(lambda: check_games([pole, agents[0]]))
    reminded = make_agent("reminded", ["ATTACK"], ["USE"])
    reminded.builder.inputs = reminded.builder.inputs._replace(previous=3)
    assert "reminded sees its last action" in complaint(lambda: check_games([agents[0], reminded]))
    assert "reminded sees its last action" in complaint(lambda: check_games([reminded, agents[0]]))
    check_games([reminded, reminded])


def test_the_checkpoints_of_a_run_are_its_league_and_its_best(tmp_path):
    for name in ("best.ckpt", "last.ckpt", "league/frames-1.ckpt", "league/frames-2.ckpt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [path.name for path in list_checkpoints(tmp_path)] == ["frames-1.ckpt", "frames-2.ckpt", "best.ckpt"]
    assert len(list_checkpoints(tmp_path / "league")) == 2
    assert "no such folder" in complaint(lambda: list_checkpoints(tmp_path / "none"))
    (tmp_path / "empty").mkdir()
    assert "two checkpoints" in complaint(lambda: list_checkpoints(tmp_path / "empty"))


def write_duel(folder, minutes=0.1):
    file = folder / "mine.toml"
    shutil.copy(Path(vizdoom.scenarios_path) / "multi_duel.wad", folder / "mine.wad")
    file.write_text(
        'base = "base/doom"\n[game]\nwad = "mine.wad"\nmap = "map01"\nbuttons = "heads"\n'
        'available_buttons = ["MOVE_FORWARD", "TURN_LEFT", "TURN_RIGHT", "ATTACK"]\n'
        f"[game.match]\nagents = 2\nminutes = {minutes}\n"
    )
    return file


def test_an_opponent_must_fit_the_users_game(tmp_path):
    file = write_duel(tmp_path)
    scenario, config = catalog.find(str(file)), Config(scenario=str(file), opponents=str(tmp_path / "a.ckpt"))
    builder, record = Builder(scenario, config), begin_run(scenario, config)
    net = builder.make_network("a", 0)
    weights = read_weights(net)
    save(tmp_path / "a.ckpt", weights, record)
    assert len(arrange_league(record, builder, tmp_path, weights, print).members) == 1
    agent = TrainedAgent(builder, net, record, "a.ckpt")
    assert make_opponent(agent, config.opponents).inputs == net.inputs
    game = replace(scenario.game, available_buttons=["MOVE_BACKWARD", "TURN_LEFT", "TURN_RIGHT", "ATTACK"])
    save(tmp_path / "a.ckpt", weights, record._replace(scenario=replace(scenario, game=game)))
    assert "other actions" in complaint(lambda: arrange_league(record, builder, tmp_path, weights, print))
    assert "actions" in complaint(lambda: make_opponent(agent, config.opponents))
    other = TrainedAgent.load(tmp_path / "a.ckpt", GameOverride(wad=str(tmp_path / "mine.wad")))
    check_games([agent, other])  # though it could be no opponent in training, it can play a match
    save(tmp_path / "a.ckpt", {name: value * np.nan for name, value in weights.items()}, record)
    assert "finite" in complaint(lambda: arrange_league(record, builder, tmp_path, weights, print))
    cropped = replace(scenario, observation=replace(scenario.observation, crop=(30, 30, 0, 0)))
    save(tmp_path / "a.ckpt", weights, record._replace(scenario=cropped))
    assert "another part of the screen" in complaint(lambda: arrange_league(record, builder, tmp_path, weights, print))
    assert "--opponent " in complaint(lambda: make_opponent(agent, config.opponents))


def test_opponents_must_play_doom(tmp_path):
    record = make_new_run({"scenario": "duel", "opponents": "cartpole"})
    builder = Builder(record.scenario, record.config)
    weights = read_weights(builder.make_network("a", 0))
    said = complaint(lambda: arrange_league(record, builder, tmp_path, weights, print))
    assert said.startswith("--opponents")
    assert "plays cartpole, not Doom" in said


@pytest.mark.process
def test_a_misspelled_opponent_gets_a_suggestion(tmp_path):
    ended = call("train", "--scenario", write_duel(tmp_path), "--opponents", "Past", cwd=tmp_path)
    assert ended.returncode == 2
    assert "--opponents: there is no checkpoint or model Past" in ended.stderr
    assert "it also takes self, past, bots (did you mean past?)" in ended.stderr


@pytest.mark.process
def test_a_run_against_its_past_keeps_its_league_when_resumed(tmp_path, capsys):
    flags = ["--workers", "1", "--envs-per-worker", "4", "--rollout-length", "8", "--evaluation-episodes", "2"]
    flags += ["--evaluate-every", "0", "--checkpoint-every", "0.1", "--opponents", "past"]
    flags += ["--models-dir", "m", "--name", "duel"]
    first = call("train", "--scenario", write_duel(tmp_path), "--frames", "1500", *flags, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    (folder,) = [path for path in (tmp_path / "m").iterdir() if path.is_dir()]
    rows = (folder / "league.csv").read_text().splitlines()
    assert rows[:2] == ["frames,rating", "0,0"]
    assert rows[2].endswith(","), "weights that were saved and not evaluated"
    assert float(rows[-1].split(",")[1]) in (-400, -200, 0, 200, 400), "those of the final evaluation"
    before = len(list((folder / "league").glob("*.ckpt")))
    assert before == len(rows) - 1
    again = call("train", "--resume", folder, "--wad", "mine.wad", "--frames", "2000", "--models-dir", "m", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert (folder / "league.csv").read_text().splitlines()[: len(rows)] == rows, "the old members play on"
    assert len(list((folder / "league").glob("*.ckpt"))) > before
    two, out = tmp_path / "two", tmp_path / "out"
    two.mkdir()
    for path in sorted((folder / "league").glob("*.ckpt"))[:2]:
        shutil.copy(path, two)
    wad = ["--scenario", str(write_duel(tmp_path))]
    assert play_command.main(["--cross-play", str(two), "--episodes", "2", "--out", str(out), *wad]) == 0
    assert "wins" in capsys.readouterr().out
    (match,) = json.loads((out / "cross_play.json").read_text())
    assert len(match["outcomes"]) == 2
    assert (out / "cross_play.csv").read_text().count("\n") == 3


def test_bots_take_the_places_of_the_other_agents(tmp_path):
    record = make_new_run({"scenario": str(write_duel(tmp_path)), "opponents": "bots"})
    assert parse_match(record.scenario.game.match).bots == parse_match(record.scenario.game.match).agents == 1
    assert record.config.opponents == "self"
    builder = Builder(record.scenario, record.config)
    with closing(builder.make_training_env(1)) as env:
        env.reset(seed=np.array([1]))
        assert builder.agents == 1
    table = {"bots": 2, "agents": 3, "bot_names": ["Rambo", "T800"], "minutes": 2}
    assert seat_bots(table) == {"bots": 4, "agents": 1, "minutes": 2}
    assert seat_bots(with_bots := {"bots": 2, "agents": 1, "bot_names": ["Rambo", "T800"]}) == with_bots


@pytest.mark.parametrize(
    ("first", "then", "kept"),
    [
        ("self", "past", True),
        ("self", "bots", False),
        ("self", "/some/a.ckpt", False),
        ("/some/a.ckpt", "/some/b.ckpt", False),
        ("/some/a.ckpt", "/other/a.ckpt", True),
        ("/some/a.ckpt", "self", False),
        ("bots", "bots", True),
    ],
)
def test_scores_against_other_opponents_start_anew(first, then, kept):
    old = make_new_run({"scenario": "duel", "opponents": first})
    old = old._replace(best=Best(800.0, confirmed=True), counters=old.counters._replace(scores=[3.0]))
    resumed = make_resumed_run(old, {"opponents": then})
    assert (resumed.best.score, list(resumed.counters.scores)) == ((800.0, [3.0]) if kept else (None, []))


def test_the_best_against_other_opponents_is_set_aside_and_returns_with_them(tmp_path):
    old = make_new_run({"scenario": "duel"})._replace(best=Best(800.0, confirmed=True))
    old = old._replace(scenario=replace(old.scenario, network=SPEC))
    folder = CheckpointFolder(tmp_path)
    folder.save_best({"a": np.float32([1])}, old)  # a rating
    resumed = folder.adopt_best(make_resumed_run(old, {"opponents": "bots"}))  # its scores are frags
    assert resumed.best.score is None
    assert not folder.best.exists()
    assert folder.adopt_best(make_resumed_run(resumed, {"opponents": "/some/a.ckpt"})).best.score is None
    assert folder.adopt_best(make_resumed_run(old, {"opponents": "past"})).best.score == 800.0
    assert read_label(folder.best).opponents == "league"


def test_a_checkpoint_names_no_file_as_the_opponent():
    old = make_new_run({"scenario": "duel", "opponents": "/home/me/old.ckpt"})
    plain = record_to_plain(old)
    assert plain["config"]["opponents"] == "old.ckpt"
    loaded = record_from_plain(plain, "last.ckpt")
    assert "played against old.ckpt: name that file with --opponents" in complaint(make_resumed_run, loaded, {})
    assert make_resumed_run(loaded, {"opponents": "/home/me/old.ckpt"}).config.opponents == "/home/me/old.ckpt"
    assert make_resumed_run(loaded, {"opponents": "self"}).config.opponents == "self"


@pytest.mark.parametrize("rated", [True, False])
def test_ratings_are_not_compared_with_the_expected_score(rated):
    record, none = make_new_run({"scenario": "duel"}), SimpleNamespace(rated=rated, log=None, capture=None)
    keeper = session._LeagueKeeper(None, record, (), none)
    training = session._make_training(record, none, none, Progress(), none, none, none, keeper)
    assert (training._watch is None) == rated


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--scenario", "basic", "--opponents", "past"], "one agent"),
        (["--scenario", "basic", "--opponents", "bots"], "no match"),
        (["--scenario", "cartpole", "--opponents", "bots"], "no match"),
        (["--scenario", "mine.toml", "--envs-per-worker", "5"], "multiple of 2"),
        (["--scenario", "mine.toml", "--opponents", "no/such.ckpt"], "no/such.ckpt"),
        (["--scenario", "mine.toml", "--game-processes", "2"], "--game-processes"),
        (["--scenario", "mine.toml", "--opponents", "past", "--engine", "cluster"], "cluster"),
        (["--scenario", "duel", "--until-learned"], "--until-learned has no score to wait for"),
    ],
)
def test_impossible_opponents_give_a_one_line_error(tmp_path, monkeypatch, capsys, flags, words):
    from doom_a3c.cli import train

    write_duel(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert train.main([*flags, "--frames", "100"]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["/one/long/way/a.ckpt", "/another/b.ckpt"], ["a.ckpt", "b.ckpt"]),
        (["/run/last.ckpt", "/other/last.ckpt", "/other/b.ckpt"], ["run/last.ckpt", "other/last.ckpt", "other/b.ckpt"]),
        (["/run/a.ckpt", "/run/a.ckpt", "/b.ckpt"], ["a.ckpt (1)", "a.ckpt (2)", "b.ckpt"]),
    ],
)
def test_matrices_have_the_shortest_names_that_tell_agents_apart(paths, names):
    assert cross_play_command._shorten_names(paths) == names


def test_compare_and_cross_play_exclude_each_other(capsys):
    assert play_command.main(["--compare", "a.ckpt", "b.ckpt", "--cross-play", "folder"]) == 2
    assert "--cross-play has no effect with --compare" in capsys.readouterr().err


def test_a_random_policy_can_be_an_opponent():
    env = OpposedGames(EchoGames(), [0, 2], PolicyOpponent(RandomPolicy(Categorical(10)), 2, np.random.default_rng(0), 1.0))
    env.reset()
    assert env.step(np.array([1, 2]))[1].tolist() == [1, 2]


PERSON = """
import sys, pygame
from doom_a3c.cli.window import PlayerWindow
from doom_a3c.envs.doom.human_seat import CONTROLS
window, read = PlayerWindow("duel"), []
def post(kind, **what):
    pygame.event.post(pygame.event.Event(kind, what))
def controls():
    window._handle_keys()
    states = window.read_controls()
    assert len(states) == len(CONTROLS)
    print(*(f"{name}={state:g}" for name, state in zip(CONTROLS, states) if state), sep="+")
post(pygame.KEYDOWN, key=pygame.K_w)
post(pygame.MOUSEBUTTONDOWN, button=pygame.BUTTON_LEFT)
post(pygame.MOUSEMOTION, rel=(-10, 3))
controls()
post(pygame.KEYUP, key=pygame.K_w)
post(pygame.KEYDOWN, key=pygame.K_RIGHT)
controls()
post(pygame.KEYDOWN, key=pygame.K_ESCAPE)
try:
    window._handle_keys()
except KeyboardInterrupt:
    print("ended")
"""


def test_keys_and_mouse_control_a_persons_player(root, monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    result = subprocess.run([sys.executable, "-c", PERSON], cwd=root, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines() == [
        "MOVE_FORWARD=1+TURN_LEFT_RIGHT_DELTA=-2+ATTACK=1",
        "TURN_LEFT_RIGHT_DELTA=5+ATTACK=1",
        "ended",
    ]


class Runner:
    """A person who runs into the nearest wall while firing, and records the shapes of the pictures shown."""

    def __init__(self, frames=10**6):
        self.pictures, self._frames = [], frames

    def show(self, picture, pictures_per_second):
        assert pictures_per_second == 35
        self.pictures.append(picture.shape)
        if len(self.pictures) > self._frames:
            raise KeyboardInterrupt

    def read_controls(self):
        return [1, 0, 0, 0, 0, 1, 0, 1, 0]


def test_a_person_plays_a_match_against_an_agent(agents):
    runner = Runner()
    frags, theirs, whole = play_person(agents[0], runner, 1)
    assert whole
    assert frags < 0, "from rockets fired at a wall"
    assert len(theirs) == 1
    assert set(runner.pictures) == {(480, 640, 3)}
    assert len(runner.pictures) == 4 * STEPS


def test_game_servers_of_seated_players_load_no_tensorflow(agents):
    libraries = []

    class Looker(Runner):
        def show(self, picture, pictures_per_second):
            libraries.extend(Path(f"/proc/{parent(engine)}/maps").read_text() for engine in engines(os.getpid()))
            raise KeyboardInterrupt

    play_person(agents[0], Looker(), 1)
    assert len(libraries) == 2
    assert all("vizdoom" in loaded and "tensorflow" not in loaded for loaded in libraries)


def test_a_person_leaving_or_an_engine_dying_ends_all_engines(agents):
    assert not play_person(agents[0], Runner(10), 1).whole
    assert until(lambda: not engines(os.getpid()))

    class Killer(Runner):
        def show(self, picture, pictures_per_second):
            super().show(picture, pictures_per_second)
            if len(self.pictures) == 5:
                kill(self.pick(engines(os.getpid())))

    for pick in (min, max):  # the person's and the agent's
        killer = Killer()
        killer.pick = pick
        assert "the match failed (engine_died" in complaint(lambda killer=killer: play_person(agents[0], killer, 1))
        assert until(lambda: not engines(os.getpid()))


class Quitter(Runner):
    """A person who closes the window after a second, or whose program is interrupted."""

    def __init__(self, left):
        super().__init__(frames=35)
        self.left, self.closed = left, False

    def close(self):
        self.closed = True


@pytest.mark.parametrize("left", [True, False])
def test_a_match_that_ends_early_still_gives_the_score(agents, monkeypatch, capsys, left):
    from doom_a3c.cli import window
    from doom_a3c.cli.lines import Lines

    quitter = Quitter(left)
    monkeypatch.setattr(window, "PlayerWindow", lambda title: quitter)
    with contextlib.nullcontext() if left else pytest.raises(KeyboardInterrupt):
        play_command._play_person(agents[0], 1, Lines(quiet=False))
    assert quitter.closed
    assert "frags: you -1.00, the agent 0.00: the agent wins, ended early" in capsys.readouterr().out


SYNTHETIC_PERSON = """
import os, signal, sys
import pygame
from doom_a3c.cli import play, window
sizes = []
class Watched(window.PlayerWindow):
    def show(self, picture, pictures_per_second):
        super().show(picture, pictures_per_second)
        sizes.append(pygame.display.get_surface().get_size())
        if len(sizes) == 1:  # holds a key and a mouse button from the first picture on
            pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=pygame.K_w))
            pygame.event.post(pygame.event.Event(pygame.MOUSEBUTTONDOWN, button=pygame.BUTTON_LEFT))
        if len(sizes) == stop:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)  # as timeout sends it
window.PlayerWindow = Watched
stop = int(sys.argv[1])
code = play.main(["--model", "a.ckpt", "--against-me"])
print(code, len(sizes), set(sizes))
"""


@pytest.mark.parametrize("stop", [0, 9])  # the picture after which a signal comes
def test_a_synthetic_person_plays_the_whole_command_on_a_virtual_display(agents, tmp_path, root, stop):
    save(tmp_path / "a.ckpt", read_weights(agents[0].network), agents[0].record)
    env = {**os.environ, "SDL_VIDEODRIVER": "dummy", "DISPLAY": ":0", "PYTHONPATH": str(root)}
    command = [sys.executable, "-c", SYNTHETIC_PERSON, str(stop)]
    result = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    score, counts = result.stdout.splitlines()
    if stop:
        assert score.startswith("frags: you ")
        assert score.endswith(", ended early")
        assert (counts, result.stderr.splitlines()[-1]) == (f"130 {stop} {{(640, 480)}}", "play.py: interrupted")
        return
    assert re.fullmatch(r"frags: you -[1-9].00, the agent -?\d.00: the agent wins", score)
    assert counts == f"0 {4 * STEPS} {{(640, 480)}}"


def test_settings_of_sampled_matches_are_refused(agents, tmp_path, monkeypatch, capsys):
    for name, agent in zip("ab", agents, strict=True):
        save(tmp_path / f"{name}.ckpt", read_weights(agent.network), agent.record)
    monkeypatch.chdir(tmp_path)
    for flags, words in ((["--policy", "greedy"], "--policy greedy:"), (["--epsilon", "0.1"], "--epsilon:")):
        assert play_command.main(["--compare", "a.ckpt", "b.ckpt", *flags]) == 2
        assert f"{words} no effect where agents play each other" in capsys.readouterr().err
    assert not (tmp_path / "result").exists()


def test_a_display_that_cannot_be_reached_is_named(monkeypatch):
    from doom_a3c.cli.window import Window

    monkeypatch.delenv("SDL_VIDEODRIVER", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setenv("DISPLAY", ":77")
    assert complaint(lambda: Window("a game")).startswith("the display :77 cannot be ")


def test_a_folder_is_played_in_its_matchs_level_and_a_comparison_says_how(tmp_path, monkeypatch, capsys):
    for name in ("cig_bots", "duel"):  # the match comes second
        shutil.copy(pretrained.find_model(name), tmp_path)
    out = ["--out", str(tmp_path / "out")]
    played = []
    monkeypatch.setattr(cross_play_command, "cross_play", lambda agents, *others: played.extend(agents))
    assert play_command.main(["--cross-play", str(tmp_path), *out]) == 0
    assert [agent.record.scenario.name for agent in played] == ["duel", "cig_bots"]
    assert play_command.main(["--compare", "cig_bots", "duel", *out]) == 2
    assert "duel.ckpt plays the others" in capsys.readouterr().err
    assert play_command.main(["--cross-play", str(tmp_path / "duel.ckpt")]) == 2
    assert "it takes a folder of checkpoints" in capsys.readouterr().err
    shutil.copy(pretrained.find_model("basic"), tmp_path / "duel.ckpt")
    assert play_command.main(["--cross-play", str(tmp_path), *out]) == 2
    assert "has one agent, so nobody plays another" in capsys.readouterr().err


def test_against_me_needs_a_display_and_a_game_of_two_agents(monkeypatch, capsys):
    monkeypatch.delenv("DISPLAY", raising=False)
    assert play_command.main(["--model", "basic", "--against-me"]) == 2
    assert "--against-me needs a display" in capsys.readouterr().err
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert play_command.main(["--model", "basic", "--against-me"]) == 2
    assert "agents = 2" in capsys.readouterr().err
    assert play_command.main(["--model", "basic", "--against-me", "--episodes", "3"]) == 2
    assert "--episodes has no effect with --against-me" in capsys.readouterr().err
