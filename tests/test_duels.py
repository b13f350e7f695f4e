"""Matches between agents, each with its own engine."""

import os
import pickle
import signal
import socket
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from fakes import complaint
from omg import WAD
from omg.mapedit import MapEditor, Sector, Sidedef, Thing
from pettingzoo.test import parallel_api_test

import doom_a3c
from benchmarks.common.processes import engines, family, kill, parent, servers, until
from doom_a3c.agent.player import read_faults
from doom_a3c.envs.doom.lockstep import OUT_OF_STEP
from doom_a3c.envs.doom.make_env import make_seat
from doom_a3c.envs.doom.match import BOT_LOST, Seat
from doom_a3c.envs.doom.seat_env import SeatEnv
from doom_a3c.envs.games import make_game_factory
from doom_a3c.envs.processes.match_vectors import MatchVectorEnv
from doom_a3c.envs.processes.ports import Ports
from doom_a3c.run.play import trial_games
from doom_a3c.settings.interface import CUT_SHORT, RIVALS, SHAPING
from doom_a3c.settings.match import parse_match
from doom_a3c.settings.scenarios import from_plain

SECONDS = 8  # of game time in a match
STEPS = -(-SECONDS * 35 // 4)
WAIT, FIRE = [0, 0, 0], [1, 0, 1]  # FIRE also runs to the next wall


def make_scenario(wad="multi_duel.wad", agents=2, bots=0, seconds=SECONDS, variables=("FRAGCOUNT", "HEALTH"), **others):
    match = {"agents": agents, "bots": bots, "minutes": seconds / 60}
    buttons = [["MOVE_FORWARD"], {"TURN_LEFT_RIGHT_DELTA": {"steps": 21, "most": 12.5}}, ["ATTACK"]]
    available = ["MOVE_FORWARD", "TURN_LEFT_RIGHT_DELTA", "ATTACK"]
    game = {"wad": wad, "map": "map01", "available_buttons": available, "buttons": {"heads": buttons}, "match": match}
    return from_plain({"name": "duel", "game": {**game, "variables": list(variables), **others}}, "a test")


@pytest.fixture
def make(closing):
    def build(players=2, **settings):
        scenario = make_scenario(**settings)
        return closing(make_game_factory(scenario.game, scenario.observation).make_vector(players, limited=True))

    return build


def play(env, actions, steps):
    """Returns the sums of rewards, [B], and the results of the last of `steps` steps with the same actions."""
    sums = np.zeros(env.num_envs)
    for _ in range(steps):
        result = env.step(np.array(actions))
        sums += result[1]
    return sums, result


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="processes cannot be moved to CPUs here")
def test_the_players_of_a_match_have_cpus_of_their_own(make):
    env, allowed = make(), os.sched_getaffinity(0)
    env.reset(seed=[1, 1])
    used = [os.sched_getaffinity(pid) for pid in engines(os.getpid())]
    assert [len(cpus) for cpus in used] == [1, 1]
    assert len(set.union(*used)) == min(2, len(allowed))
    assert os.sched_getaffinity(0) == allowed, "the trainer's"


def test_matches_use_all_cpus(monkeypatch):
    scenario, taken = make_scenario(), []
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cpus: taken.append(tuple(cpus)), raising=False)
    env = SeatEnv(scenario.game, scenario.observation, 0)
    env._cpus, ports = list(range(8)), Ports()
    for match in range(64):
        port = ports.renew(match)
        for number in range(2):
            env._take_cpu(Seat(number, port))
    ports.close()
    assert {cpu for (cpu,) in taken} == set(range(8))


def test_players_see_the_same_match(make):
    env = make()
    _, infos = env.reset(seed=[3, 4])
    assert infos["seed"][0] == infos["seed"][1]
    sums, (observations, *_) = play(env, [WAIT, FIRE], STEPS - 1)  # rockets at the wall in front
    assert sums[1] < sums[0] == 0
    assert observations["variables"][:, 0].tolist() == sums.tolist()
    last, (_, _rewards, terminated, truncated, infos) = play(env, [WAIT, FIRE], 1)
    assert terminated.tolist() == [False, False]
    assert truncated.tolist() == [True, True]
    final = infos["final_info"]
    assert [list(rivals) for rivals in final[RIVALS]] == [[(sums + last)[1]], [(sums + last)[0]]]
    assert infos["final_obs"][1]["variables"][0] == (sums + last)[1]
    assert infos["seed"][0] == infos["seed"][1]
    sums, (*_, truncated, _) = play(env, [FIRE, WAIT], STEPS)  # the next match, with the roles swapped
    assert sums[0] < sums[1] == 0
    assert truncated.all()


def test_four_agents_and_bots_play_one_match(make):
    env = make(4, wad="cig.wad", agents=4, bots=2)
    env.reset(seed=1)
    sums, (*_, infos) = play(env, [FIRE] + [WAIT] * 3, STEPS)
    rivals = infos["final_info"][RIVALS]
    assert [len(each) for each in rivals] == [5] * 4
    assert [each[0] for each in rivals[1:]] == [sums[0]] * 3, "all see the frags of the first player"


class LosingSeat(SeatEnv):
    """The host's engine removes all bots in the tenth step."""

    def step(self, action):
        if self._number == 0 and self._frames == 40:
            self._process.game.send_game_command("removebots")
        return super().step(action)


def test_no_player_compares_itself_in_a_match_that_lost_a_bot(closing):
    scenario = make_scenario(wad="cig.wad", bots=1)
    seats = [partial(LosingSeat, scenario.game, scenario.observation, number) for number in range(2)]
    env = closing(MatchVectorEnv(seats, 2))
    env.reset(seed=1)
    faults = []
    for _ in range(STEPS):
        *_, infos = env.step(np.array([WAIT, WAIT]))
        faults += read_faults(infos)
    assert [list(rivals) for rivals in infos["final_info"][RIVALS]] == [[], []]
    assert faults == [BOT_LOST]


class StraySeat(SeatEnv):
    """The second player's engine counts another frag than the first one's."""

    def reset(self, **options):
        result = super().reset(**options)
        if self._number == 1:
            self._match.read_state = lambda game: int(self._frames >= 40)
        return result


def test_engines_out_of_step_end_their_match(closing):
    scenario = make_scenario()
    seats = [partial(StraySeat, scenario.game, scenario.observation, number) for number in range(2)]
    env = closing(MatchVectorEnv(seats, 2))
    env.reset(seed=1)
    results = [env.step(np.array([WAIT, WAIT])) for _ in range(11)]
    assert [step[3].tolist() for step in results] == [[False, False]] * 10 + [[True, True]]
    assert read_faults(results[-1][4]) == [OUT_OF_STEP]


def make_corridor(folder, starts=((-128, 0), (128, 180))):
    """Writes a short corridor with deathmatch `starts`, (x, angle), by default one at each end; returns the wad."""
    editor = MapEditor()
    room = Sector(z_floor=0, z_ceil=128, tx_floor="FLOOR0_1", tx_ceil="CEIL1_1", light=200)
    editor.draw_sector([(-192, -48), (-192, 48), (192, 48), (192, -48)], room, Sidedef(tx_mid="STARTAN2"))
    for x, angle in starts:
        editor.things.append(Thing(x=x, y=0, type=11, angle=angle, flags=7))
    wad = WAD()
    wad.maps["MAP01"] = editor.to_lumps()
    wad.to_file(str(folder / "corridor.wad"))
    return str(folder / "corridor.wad")


@pytest.mark.parametrize("shooter", [0, 1])
def test_a_frag_is_paid_in_the_step_in_which_the_rival_dies(make, tmp_path, shooter):
    """The shooter fires its pistol at a rival who waits at the other end of a corridor."""
    env = make(wad=make_corridor(tmp_path), seconds=20, variables=["FRAGCOUNT", "DEATHCOUNT", "HEALTH"])
    env.reset(seed=1)
    rival, deaths, healths, frags = 1 - shooter, 0, [], []
    for step in range(150):
        actions = np.array([WAIT, WAIT])
        actions[shooter, 2] = step % 2  # the engine fires once for each press
        seen, rewards, *_ = env.step(actions)
        assert rewards[rival] == 0
        assert rewards[shooter] == seen["variables"][rival, 1] - deaths
        deaths = seen["variables"][rival, 1]
        frags.append(rewards[shooter])
        healths.append(seen["variables"][rival, 2])
    assert sum(frags) >= 1
    assert healths[frags.index(1) - 1] < 100


def test_a_player_who_is_dead_at_the_start_is_not_paid_for_coming_back(make, tmp_path):
    """Both start in the same place, where the second kills the first, whose health is -999900 until it comes back."""
    wad = make_corridor(tmp_path, starts=[(-128, 0), (-128, 0), (128, 180)])
    env = make(wad=wad, variables=["HEALTH"], shaping={"HEALTH": 1.0})
    observations, _ = env.reset(seed=1)
    assert observations["variables"][0, 0] == 0
    bonuses, most = [], 0.0
    for _ in range(STEPS):
        observations, _, _, _, infos = env.step(np.array([WAIT, WAIT]))
        bonuses.append(infos.get(SHAPING, np.zeros(2)))
        most = max(most, observations["variables"][0, 0])
    assert most == 100, "it came back"
    assert not np.any(bonuses)


def test_a_vector_holds_whole_matches(make):
    assert make(3).num_envs == 4
    seat = partial(make_seat, make_scenario().game, make_scenario().observation, 0)
    with pytest.raises(ValueError, match="whole matches"):
        MatchVectorEnv([seat] * 3, 2)


@pytest.mark.parametrize("player", [0, 1])
@pytest.mark.parametrize("harm", ["engine", "server"])
def test_a_players_fault_ends_only_its_match(make, harm, player):
    env = make(4)
    env.reset(seed=1)
    play(env, [WAIT] * 4, 3)
    mine = servers(os.getpid())
    victim = sorted(mine)[player]  # in the first match: servers start in order
    target = victim if harm == "server" else max(engines(victim))
    kill(target)
    _, (_, _rewards, _, truncated, infos) = play(env, [WAIT] * 4, 1)
    assert truncated.tolist() == [True, True, False, False]
    assert infos["final_info"][CUT_SHORT].tolist() == [True, True, False, False]
    assert read_faults(infos) == [f"{harm}_died"], "the real fault, not what the others noticed of it"
    assert infos["seed"][0] == infos["seed"][1]
    assert until(lambda: len(engines(os.getpid())) == 4)
    sums, (*_, truncated, infos) = play(env, [WAIT, FIRE] * 2, STEPS - 4)
    assert truncated.tolist() == [False, False, True, True]
    assert not read_faults(infos)
    assert sums[1] < sums[0] == 0


@pytest.mark.process
@pytest.mark.parametrize(("harm", "player"), [("engine", min), ("engine", max), ("server", max)])
def test_a_hanging_player_ends_its_match(make, harm, player):
    env = make(2)
    env.reset(seed=1)
    victim = player(servers(os.getpid()))  # of the host, or of the second player, whose answer is awaited last
    kill(victim if harm == "server" else max(engines(victim)), signal.SIGSTOP)
    _, (*_, truncated, infos) = play(env, [WAIT] * 2, 1)
    assert truncated.tolist() == [True, True]
    assert read_faults(infos) == [f"{harm}_hung"]
    assert not play(env, [WAIT] * 2, 2)[1][3].any()


@pytest.mark.parametrize("agents", [2, 3])
def test_the_doctor_examines_matches(monkeypatch, agents):
    monkeypatch.setattr(trial_games, "PLAY_SECONDS", 1.0)
    scenario = make_scenario(wad="cig.wad", agents=agents)
    games = make_game_factory(scenario.game, scenario.observation)
    play = trial_games.play_at_random(games, seed=3)
    assert len(play.rewards) > 0
    assert len(play.rewards) % agents == 0, "whole matches"
    monkeypatch.setattr(trial_games, "TRIAL_SECONDS", 1.0)  # enough for at least one action
    names, outcomes = trial_games.try_actions(games)
    assert 0 < len(outcomes) < len(names)


def test_players_share_a_seed_by_default_and_after_a_start_fault(make, monkeypatch):
    env = make(2)
    _, infos = env.reset()
    assert infos["seed"][0] == infos["seed"][1]
    play(env, [WAIT] * 2, STEPS - 1)
    real = env._restart_matches
    monkeypatch.setattr(env, "_restart_matches", lambda infos: (kill(max(servers(os.getpid()))), real(infos)))
    _, (*_, infos) = play(env, [WAIT] * 2, 1)
    assert read_faults(infos)
    assert infos["seed"][0] == infos["seed"][1]


def test_players_lost_between_matches_are_replaced(make):
    env = make(2)
    env.reset(seed=1)
    play(env, [WAIT] * 2, STEPS - 1)
    kill(max(servers(os.getpid())))
    env.reset(seed=2)
    assert not play(env, [WAIT] * 2, 2)[1][3].any()


def test_resetting_one_player_resets_its_match(make):
    env = make(4)
    env.reset(seed=1)
    play(env, [FIRE] * 4, 20)
    before = set(engines(os.getpid()))
    env.reset(options={"reset_mask": np.array([False, False, False, True])})
    assert len(before & set(engines(os.getpid()))) == 2, "the other match goes on"
    play(env, [WAIT] * 4, 2)


def test_a_pickled_match_starts_fresh_and_leaves_no_engine(make):
    env = make(2)
    copy = pickle.loads(pickle.dumps(env))
    copy.reset(seed=1)
    assert len(engines(os.getpid())) == 2
    copy.close()
    assert until(lambda: not engines(os.getpid()))


def test_no_two_matches_share_a_port():
    one, other = Ports(), Ports()
    assert len({one.renew(0), one.renew(1), other.renew(0)}) == 3
    with socket.socket() as lock, pytest.raises(OSError, match="in use"):
        lock.bind(("127.0.0.1", one.get(1)))
    freed = one.get(1)
    one.close()
    with socket.socket() as lock:
        lock.bind(("127.0.0.1", freed))
    other.close()


def test_a_port_in_use_elsewhere_is_skipped(monkeypatch):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("", 0))
        wanted = iter([taken.getsockname()[1]])
        real = socket.socket.bind

        class Steered(socket.socket):
            def bind(self, address):
                if address == ("127.0.0.1", 0):
                    address = ("127.0.0.1", next(wanted, 0))
                return real(self, address)

        monkeypatch.setattr(socket, "socket", Steered)
        ports = Ports()
        assert ports.renew(0) not in (0, taken.getsockname()[1])
        ports.close()


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"minutes": 4}, "1 players"),
        ({"agents": 17}, "agents"),
        ({"agents": 4, "bots": 13}, "17 players"),
        ({"agents": 0, "bots": 2}, "agents"),
    ],
)
def test_a_match_has_2_to_16_players(table, words):
    said = complaint(lambda: parse_match(table))
    assert words in said
    assert "[game.match]" in said


@pytest.fixture
def duel(tmp_path, closing):
    """An eight-second duel behind PettingZoo's interface."""
    file = tmp_path / "mine.toml"
    file.write_text(
        'base = "base/doom"\n[game]\nwad = "multi_duel.wad"\nmap = "map01"\nbuttons = "heads"\n'
        'available_buttons = ["MOVE_FORWARD", "TURN_LEFT", "TURN_RIGHT", "ATTACK"]\nvariables = ["HEALTH"]\n'
        f"[game.match]\nagents = 2\nminutes = {SECONDS / 60}\n"
    )
    return closing(doom_a3c.parallel_env(str(file)))


def test_pettingzoo_accepts_a_duel(duel):
    parallel_api_test(duel, num_cycles=2 * STEPS)


def test_a_duel_ends_for_both_players_and_another_begins(duel):
    observations, infos = duel.reset(seed=1)
    seeds = [infos["agent_0"]["seed"]]
    assert observations["agent_1"]["pixels"].shape == duel.observation_space("agent_1")["pixels"].shape
    actions = {agent: np.array([agent == "agent_1", 0, agent == "agent_1"]) for agent in duel.agents}
    scores = dict.fromkeys(duel.agents, 0.0)
    steps = 0
    while duel.agents:
        observations, rewards, _, truncated, infos = duel.step(actions)
        scores = {agent: scores[agent] + rewards[agent] for agent in scores}
        steps += 1
    assert steps == STEPS
    assert truncated == {"agent_0": True, "agent_1": True}
    assert scores["agent_1"] < scores["agent_0"] == 0
    assert infos["agent_0"][RIVALS] == [scores["agent_1"]]
    assert duel.render().shape == (120, 160, 3)
    assert duel.step({}) == ({}, {}, {}, {}, {})
    before = engines(os.getpid())
    seeds.append(duel.reset()[1]["agent_0"]["seed"])
    assert engines(os.getpid()) == before, "the vector has already begun it"
    assert len(set(seeds)) == 2
    kill(max(engines(os.getpid())))
    *_, truncated, infos = duel.step(actions)
    assert truncated == {"agent_0": True, "agent_1": True}
    assert infos["agent_1"][CUT_SHORT]
    duel.reset()
    assert not duel.step(actions)[3]["agent_0"]


def test_an_invalid_action_does_not_end_the_match(duel):
    duel.reset(seed=1)
    for wrong in ([0, 3, 0], [-1, 0, 0], [np.nan] * 3, [0.5, 0, 0], [0, 0], "fire", None):
        with pytest.raises(ValueError, match="agent_1"):
            duel.step({"agent_0": np.zeros(3, np.int64), "agent_1": wrong})
    with pytest.raises(ValueError, match="-1"):
        duel.reset(seed=-1)
    with pytest.raises(KeyError, match="agent_1"):
        duel.step({"agent_0": np.zeros(3, np.int64)})
    assert not duel.step({agent: [0, 0, 0] for agent in duel.agents})[3]["agent_0"]


def test_a_pickled_duel_starts_fresh(duel):
    duel.reset(seed=1)
    while duel.agents:
        duel.step({agent: np.zeros(3, np.int64) for agent in duel.agents})
    copy = pickle.loads(pickle.dumps(duel))
    assert copy.agents == []
    copy.reset()
    assert not copy.step({agent: np.zeros(3, np.int64) for agent in copy.agents})[3]["agent_0"]
    copy.close()


@pytest.mark.parametrize("name", ["basic", "cig_bots", "pong"])
def test_single_agent_games_are_not_parallel_environments(name):
    assert "agents = 2" in complaint(lambda: doom_a3c.parallel_env(name))


def test_a_parallel_environment_has_no_window():
    assert "'human'" in complaint(lambda: doom_a3c.parallel_env("duel", render_mode="human"))


def test_a_parallel_environment_needs_no_tensorflow():
    code = """
import sys, doom_a3c
env = doom_a3c.parallel_env("duel")
env.reset(seed=1)
env.step({agent: env.action_space(agent).sample() for agent in env.agents})
env.close()
print("tensorflow" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.process
def test_a_killed_program_leaves_no_part_of_its_match(root):
    code = "import doom_a3c, time; env = doom_a3c.parallel_env('duel'); env.reset(); print('ready'); time.sleep(99)"
    with subprocess.Popen([sys.executable, "-uc", code], cwd=root, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout.readline() == "ready\n"
        members = family(program.pid)
        assert len(engines(program.pid)) == 2
        kill(program.pid)
    assert until(lambda: not [pid for pid in members if parent(pid)], seconds=30)


@pytest.mark.process
def test_many_matches_start_at_once(make):
    env = make(16)
    for seed in range(3):
        env.reset(seed=np.arange(16) // 2 + 8 * seed)
        _, (*_, truncated, infos) = play(env, [WAIT] * 16, 2)
        assert not truncated.any()
        assert not read_faults(infos)


def test_without_pettingzoo_the_error_names_the_fix(monkeypatch):
    monkeypatch.delitem(sys.modules, "doom_a3c.envs.parallel", raising=False)
    monkeypatch.delattr("doom_a3c.envs.parallel", raising=False)
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    with pytest.raises(ModuleNotFoundError, match="pip install pettingzoo"):
        _ = doom_a3c.parallel_env
