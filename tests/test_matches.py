"""Matches against bots, on real ViZDoom."""

import glob
import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import vizdoom
from fakes import complaint

from doom_a3c.agent.joint_actions import find_distribution
from doom_a3c.agent.parameters import variable_name
from doom_a3c.agent.player import Episode, Player
from doom_a3c.agent.policy import Decision
from doom_a3c.cli import play as play_command
from doom_a3c.envs.doom import make_env
from doom_a3c.envs.doom.env import DoomEnv
from doom_a3c.envs.doom.match import BOT_LOST
from doom_a3c.envs.doom.recorder import DoomVideoRecorder
from doom_a3c.envs.processes.local_vectors import LocalVectorEnv
from doom_a3c.record.metrics.standings import Standing, find_standing
from doom_a3c.run.builder import Builder
from doom_a3c.run.checkpoints.checkpoint import save
from doom_a3c.run.checkpoints.run_record import begin_run
from doom_a3c.run.play.episode_player import PlayedEpisode
from doom_a3c.run.play.page import Results
from doom_a3c.settings import catalog
from doom_a3c.settings.config import Config
from doom_a3c.settings.interface import FAULTS, RIVALS, SHAPING
from doom_a3c.settings.match import BOTS, parse_match
from doom_a3c.settings.scenarios import from_plain, to_plain

VARIABLE = vizdoom.GameVariable
FORWARD = np.array([1, 0])
ACTIONS = [np.array([1, fires]) for fires in np.random.default_rng(0).integers(2, size=1000)]  # fires at walls


def make_scenario(minutes=0.3, shaping=None, **match):
    plain = {
        "name": "match",
        "game": {
            "wad": "cig.wad",
            "map": "map01",
            "available_buttons": ["MOVE_FORWARD", "ATTACK"],
            "buttons": "heads",
            "variables": ["HEALTH"],
            "match": {"bots": 3, "minutes": minutes, **match},
            "shaping": shaping or {},
        },
    }
    return from_plain(plain, "a test")


@pytest.fixture
def make(closing):
    def build(**settings):
        scenario = make_scenario(**settings)
        return closing(DoomEnv(scenario.game, scenario.observation))

    return build


def get_game(env):
    return env._process.game


def count_players(env):
    return int(get_game(env).get_game_variable(VARIABLE.PLAYER_COUNT))


def play(env, seed):
    """Plays a match; returns rewards, bonuses, deaths and health after each step, and the last info."""
    _, info = env.reset(seed=seed)
    rewards, bonuses, deaths, healths, ended = [], [], [], [], False
    while not ended:
        seen, reward, terminated, ended, info = env.step(ACTIONS[len(rewards)])
        assert not terminated
        rewards.append(reward)
        bonuses.append(info.get(SHAPING, 0.0))
        deaths.append(get_game(env).get_game_variable(VARIABLE.DEATHCOUNT))
        healths.append(float(seen["variables"][0]))
    return rewards, bonuses, deaths, healths, info


def test_a_match_is_scored_by_frags_and_ends_on_time(make):
    env = make()
    rewards, _, deaths, healths, info = play(env, 3)
    assert len(rewards) == -(-round(0.3 * 60 * 35) // 4)
    assert count_players(env) == 4
    assert sum(rewards) == get_game(env).get_game_variable(VARIABLE.FRAGCOUNT) < 0, "it shoots at walls"
    assert deaths[-1] >= -sum(rewards)
    assert min(healths) >= 0
    frags = [get_game(env).get_game_variable(getattr(VARIABLE, f"PLAYER{n}_FRAGCOUNT")) for n in range(1, 5)]
    assert info[RIVALS] == frags[1:]


def test_rules_of_a_cfg_do_not_undo_those_of_a_match(closing):
    scenario = make_scenario()
    game = replace(scenario.game, rules={"sv_forcerespawn": 0})
    *_, deaths, healths, _ = play(closing(DoomEnv(game, scenario.observation)), 3)
    assert deaths[-1] > 1, "dead players come back"
    assert healths[-1] > 0


def test_evaluation_plays_a_match_to_its_full_length(closing, monkeypatch):
    monkeypatch.setattr(make_env, "MAX_EPISODE_STEPS", 5)
    scenario = make_scenario(minutes=0.01)
    env = closing(make_env.make_doom(scenario.game, scenario.observation, limited=True))
    env.reset(seed=1)
    steps = [env.step(FORWARD) for _ in range(6)]
    assert [step[3] for step in steps] == [False] * 5 + [True]
    assert len(steps[-1][4][RIVALS]) == 3


def test_seed_and_actions_determine_a_match_and_its_film(make, closing):
    env, scenario = make(), make_scenario()
    rewards, *_, info = play(env, 8)
    again, *_, info_again = play(env, 8)
    assert (rewards, info) == (again, info_again)
    assert play(env, 9)[0] != rewards
    recorder = closing(DoomVideoRecorder(scenario.game, scenario.observation, "160x120"))
    _, started = env.reset(seed=8)
    for _ in range(2):  # also a second film with the same recorder
        recorder.reset(started["seed"])
        pictures = [len(recorder.step(action, False)) for action in ACTIONS[: len(rewards)]]
        assert recorder.get_score() == sum(rewards)
        assert set(pictures[:-1]) == {4}


def test_the_first_match_starts_one_engine(make):
    env = make()
    env.prepare()
    assert env._process is None
    env.reset(seed=1)
    assert count_players(env) == 1, "the bots join in the first frame"


def test_nobody_can_join_a_match(make):
    env = make()
    env.reset(seed=1)
    files = [os.readlink(file) for file in glob.glob(f"/proc/{env._process.pid}/fd/*")]
    assert files
    tables = [Path(f"/proc/net/{kind}").read_text().split() for kind in ("tcp", "udp", "tcp6", "udp6")]
    open_ports = {word for table in tables for word in table}
    assert not [file for file in files if file.strip("socket:[]") in open_ports]


def test_bots_that_leave_are_noticed_and_come_back(make):
    env = make()
    env.reset(seed=1)
    faults = []

    def step(times):
        for _ in range(times):
            faults.extend(env.step(FORWARD)[4].get(FAULTS, ()))

    step(20)
    assert (count_players(env), faults) == (4, [])
    get_game(env).send_game_command("removebots")
    step(20)
    assert (count_players(env), faults) == (4, [BOT_LOST] * 3)


@pytest.mark.parametrize("frames_left", [100, 4])  # the bots have time to come back, or not
def test_a_match_that_lost_a_bot_has_no_standing(make, frames_left):
    env = make(minutes=0.1)
    env.reset(seed=1)
    ended, removed = False, False
    while not ended:
        if not removed and 0.1 * 2100 - get_game(env).get_episode_time() <= frames_left:
            removed = True
            get_game(env).send_game_command("removebots")
        *_, ended, info = env.step(FORWARD)
    assert info[RIVALS] == []
    assert find_standing([0.0], [info[RIVALS]]) is None
    assert len(play(env, 1)[-1][RIVALS]) == 3, "the next match is complete again"


def test_bots_with_bot_skill_come_from_our_own_file(make):
    env = make(bot_skill=100)
    env.reset(seed=1)
    for _ in range(5):
        env.step(FORWARD)
        get_game(env).send_game_command("addbot")  # that file has no more bots
    assert count_players(env) == 4


def test_named_bots_play(make):
    env = make(bot_names=["Rambo", "T800", "Conan"])
    env.reset(seed=1)
    for _ in range(5):
        env.step(FORWARD)
        get_game(env).send_game_command("addbot Conan")  # who is already playing
    assert count_players(env) == 4


def test_dying_and_respawning_give_no_health_bonus(make):
    env = make(shaping={"HEALTH": {"gain": 1.0, "loss": 1.0}}, respawn_protection=False)
    _, bonuses, deaths, healths, _ = play(env, 3)
    died = np.diff([0.0, *deaths]) > 0
    assert died.any()
    assert not np.array(bonuses)[died].any()
    changes = zip(np.diff(healths), died[1:], died, strict=False)
    within_a_life = [change for change, ends, starts in changes if not (ends or starts)]
    assert any(change < 0 for change in within_a_life)
    assert max(bonuses) <= 100 - min(healths), "respawning gives no health bonus"
    assert sum(bonus > 0 for bonus in bonuses) <= sum(change > 0 for change in within_a_life)


@pytest.mark.parametrize("variable", ["PLACES", "POSITION_X", "CAMERA_POSITION_Y", "VELOCITY_Z"])
def test_dying_and_respawning_give_no_position_bonus(make, variable):
    env = make(shaping={variable: 1.0}, respawn_protection=False)
    _, bonuses, deaths, healths, _ = play(env, 3)
    lifeless = (np.diff([0.0, *deaths]) > 0) | (np.array([100.0, *healths[:-1]]) == 0)
    assert lifeless.any()
    assert not np.array(bonuses)[lifeless].any()
    assert np.array(bonuses)[~lifeless].any()


class Indifferent:
    """A policy without preferences."""

    def __init__(self, actions):
        self.distribution = find_distribution(actions)

    def initial_state(self, batch_size):
        return ()

    def __call__(self, observations, resets, core_state):
        return Decision(
            np.zeros((len(resets), self.distribution.size), np.float32), np.zeros(len(resets), np.float32), (), 0
        )


def test_a_player_receives_the_frags_of_its_rivals(closing):
    scenario = make_scenario(minutes=0.05)
    env = closing(LocalVectorEnv([lambda: DoomEnv(scenario.game, scenario.observation)] * 2))
    player = Player(env, Indifferent(env.single_action_space), np.random.default_rng(0), np.array([1, 2]))
    episodes = [episode for _ in range(27) for episode in player.step(np.zeros(2, np.float32)).episodes]
    assert [episode.game for episode in episodes] == [0, 1]
    assert [len(episode.rivals) for episode in episodes] == [3, 3]


def test_play_compares_the_agent_with_the_bots(tmp_path, monkeypatch, capsys):
    scenario, config = make_scenario(minutes=0.05), Config()
    builder = Builder(scenario, config)
    weights = {variable_name(each): each.numpy() for each in builder.make_network("agent", 1).parameters}
    builder.close()
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "a.ckpt", weights, begin_run(scenario, config))
    flags = ["--episodes", "2", "--record-episodes", "0", "--random-episodes", "0"]
    assert play_command.main(["--model", "a.ckpt", *flags]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("frags ")]
    assert re.fullmatch(r"frags .*, the average rival .*, the best rival .*; rank \S+ of 4, \d+% of the matches won", line)
    assert line in (tmp_path / "result" / "index.html").read_text()
    assert json.loads((tmp_path / "result" / "summary.json").read_text())["standing"]["players"] == 4


def test_the_score_table_has_a_column_per_bot():
    episodes = [Episode(2.0, 5, 0.0, 0, 2.0, rivals) for rivals in ((1.0, 3.0), ())]  # the second match lost a bot
    played = [PlayedEpisode(7, episode, (), (), (), (), False) for episode in episodes]
    results = Results("", "", "", "", 0.0, (), (), played, (), 2, None)
    names, rows = results.list_rows()
    assert names[4:] == ("rival_1", "rival_2")
    assert [row[4:] for row in rows] == [(1.0, 3.0), ("", "")]
    assert results._replace(played=played[1:]).list_rows()[1] == [(0, 7, 2.0, 5)]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"bots": 0}, "has 1 players, 2 to 16 can play"),
        ({"bots": 16}, "0 to 15"),
        ({"minutes": 0}, "above 0"),
        ({"bot_names": ["Rambo +exec x"], "bots": 1}, "there is no bot 'Rambo +exec x'"),
        ({"bot_names": ["Rambo"], "bots": 2}, "1 of 2 names"),
        ({"bot_names": ["Rambo", "Rambo"], "bots": 2}, "Rambo twice: name another"),
        ({"agents": 2, "bot_skill": 3}, "bot_skill has no effect without bots"),
        ({"bot_names": ["Rambo"], "bots": 1, "bot_skill": 3}, "not both"),
        ({"args": "-file x"}, "unknown setting 'args'"),
        ({"bots": "7 -file x"}, "bots"),
    ],
)
def test_mistakes_in_the_match_table_give_one_line(table, words):
    plain = to_plain(make_scenario())
    message = complaint(lambda: from_plain({**plain, "game": {**plain["game"], "match": table}}, "a file"))
    assert "[game.match]" in message
    assert words in message


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("[game.match]", "[game.match] is empty: bots = 7"),
        ("[match]\nbots = 1", "[match] must be [game.match]"),
        ("[game.match]\nbots = 1\n[game.settings]\nepisode_timeout = 100", "episode_timeout has no effect"),
        ("[game.match]\nbots = 1\n[game.settings]\nkill_reward = 5", "kill_reward has no effect"),
        ("[game.match]\nbots = 1\n[game.settings]\ndeath_penalty = 5", "death_penalty has no effect"),
        ("[game.match]\nbots = 1\n[game.rules]\nsv_noexit = 0", "[game.rules] sv_noexit has no effect"),
        ("[game.match]\nbots = 1\nforce_respawn = false", "USE"),
    ],
)
def test_settings_that_a_match_ignores_are_refused(tmp_path, table, words):
    (tmp_path / "base.cfg").write_text(
        "doom_scenario_path = cig.wad\nepisode_timeout = 9\nkill_reward = 5\navailable_buttons = { ATTACK }\n"
        "game_args = +sv_noexit 0\n"
    )
    file = tmp_path / "mine.toml"
    file.write_text(f'base = "base/doom"\n[game]\nconfig = "base.cfg"\n{table}\n')
    assert words in complaint(catalog.find, str(file))
    file.write_text('base = "base/doom"\n[game]\nconfig = "base.cfg"\n[game.match]\nbots = 2\n')
    assert catalog.find(str(file)).game.match == {"bots": 2}


def test_the_bot_names_match_vizdooms_file():
    folder = vizdoom.__file__.rpartition("/")[0]
    with open(f"{folder}/bots.cfg") as file:
        assert tuple(line.split()[1] for line in file if line.split()[:1] == ["name"]) == BOTS


def test_without_a_match_table_there_is_no_match():
    assert parse_match({}) is None
    scenario = catalog.find("deathmatch")
    assert not scenario.game.match
    assert replace(scenario.game, match={}) == scenario.game


def test_a_standing_counts_ranks_and_wins():
    scores, rivals = [5.0, 2.0, 2.0, -1.0], [(1.0, 4.0), (2.0, 2.0), (3.0, 0.0), (0.0, 0.0)]
    standing = find_standing(scores, rivals)
    assert standing == Standing(2.0, 1.5, 2.25, (1 + 1 + 2 + 3) / 4, 3, 0.25)
    assert "rank 1.8 of 3, 25% of the matches won" in standing.describe()
    assert find_standing([1.0], [()]) is None
