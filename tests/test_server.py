"""The parameter server's protocol, rule by rule: what is counted, learned from, answered and remembered."""

import threading
import time
from functools import partial

import gymnasium
import numpy as np
import pytest
from fakes import changed

from doom_a3c import recording
from doom_a3c.config import Config
from doom_a3c.engines import server as server_module
from doom_a3c.engines.outbox import RolloutBox
from doom_a3c.engines.server import ParameterServer
from doom_a3c.engines.updates import MAX_NON_FINITE
from doom_a3c.envs.vectors import LocalVectorEnv
from doom_a3c.learner import Learner
from doom_a3c.model import GlobalModel, flat, split
from doom_a3c.networks import ACNetwork, Inputs
from doom_a3c.optimizers import Adam
from doom_a3c.progress import Progress
from doom_a3c.rollouts import Actor, Policy
from doom_a3c.scenarios import Network
from doom_a3c.settings import Schedule

SPEC = Network(convolutions=((4, 3, 3),), hidden=(8,), core_size=4)
FRAMES = 24  # of a push: 8 decisions
SMALL = Config(engine="cluster", frame_skip=3, frames=10**9, max_staleness=2)
ROLLOUTS = {"transport": "rollouts", "games": 2, "rollout_length": 4, "max_batch": 8, "max_staleness": 100}


class Tape(gymnasium.Env):
    """Shows noise, pays by the action and ends after four steps."""

    observation_space = gymnasium.spaces.Box(0, 255, (6, 6, 1), np.uint8)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, reward=1.0):
        self.reward = reward

    def reset(self, *, seed=None, options=None):
        self.time = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        self.time += 1
        return self.observation_space.sample(), self.reward * (1 + int(action)), self.time == 4, False, {}


class Gate(Progress):
    """Holds up whoever counts an update until it is opened."""

    def __init__(self):
        super().__init__()
        self.reached, self.opened = threading.Event(), threading.Event()

    def add_update(self, entropy, lag):
        self.reached.set()
        self.opened.wait(30)
        super().add_update(entropy, lag)


def network(name, seed=1):
    return ACNetwork(SPEC, Inputs((6, 6, 1), 0), 3, seed, name)


def model(seed=1):
    shared = network("global", seed)
    return GlobalModel(shared, Adam(shared.parameters))


def start(**progress):
    """The state at the start of a run, with other weights than a server is made with."""
    return {"variables": model(seed=2).snapshot(), "progress": {**Progress().record(), **progress}, "members": {}}


SIZE = len(flat(network("any").parameters))


@pytest.fixture
def build():
    """Builds servers; those with a state have started, and `a` and `b` have joined them."""
    servers = []

    def make(state=None, progress=None, **settings):
        config = changed(SMALL, **settings)
        server = ParameterServer(config, model(), progress or Progress(), network("trainer"))
        servers.append(server)
        if state:
            server.start(state)
            for host in "ab":
                server.join(host)
        return server

    yield make
    for server in servers:
        server.stop()
    until(lambda: trainers() == 0)


def trainers():
    return [thread.name for thread in threading.enumerate()].count("trainer")


def until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def gradients(version=0, seed=1, **parts):
    """A push of finite gradients, unless `parts` say otherwise."""
    vector = np.random.default_rng(seed).normal(size=SIZE).astype(np.float32)
    episodes, metrics = [(2.0, 5, 0.5, 0), (4.0, 7, 1.0, 1)], {"Losses/Entropy": 0.25 * seed}
    message = {"version": version, "steps": 8, "episodes": episodes, "faults": ["crash"], "metrics": metrics}
    return {**message, "gradients": vector, "not_finite": 0, "rollout": None, "gifs": [], **parts}


def rollouts(count, version=0, **game):
    """Pushes of rollouts, as a host makes them."""
    env, policy, seed = LocalVectorEnv([partial(Tape, **game)] * 2), Policy(network("player")), np.random.SeedSequence(3)
    actor = Actor(env, policy, rollout_length=4, discount=0.9, reward_scale=1.0, seed=seed)
    box = RolloutBox(count)
    for _ in range(count):
        box.put(actor.rollout(), version, *actor.take())
    actor.close()
    return [box.take() for _ in range(count)]


def verdict(server, host, generation, sequence, message):
    return server.push(host, generation, sequence, message, -1)["verdict"]


def counts(server):
    """Pushes, episodes and updates."""
    record = server._progress.record()
    assert record["frames"] == 3 * record["steps"]
    return record["frames"] / FRAMES, record["episodes"], record["updates"]


def plain(snapshot):
    return {name: value.tobytes() for name, value in snapshot.items()}


def everything(server):
    """Weights, counters and members, and what each host has brought, in a form that can be compared."""
    state = server.state()
    return {**state, "variables": plain(state["variables"]), "hosts": server.status()["hosts"]}


def variables(server):
    return plain(server.state()["variables"])


def assert_diverged(server):
    status = server.status()
    assert "were not finite and none was applied" in status["error"]
    assert status["diverged"]


# Beginning, joining and ending


def test_before_its_start_a_server_lets_everyone_wait(build):
    server = build()
    assert server.join("a") == {"verdict": "wait"}
    assert verdict(server, "a", 1, 1, gradients()) == "wait"
    status = server.status()
    assert not status["ready"]
    assert not status["over"]
    assert server.state() is None
    server.start(start(frames=24, steps=8, updates=7))
    assert server.status()["ready"]
    assert verdict(server, "a", 1, 1, gradients()) == "rejoin"  # nothing of the time before is remembered
    answer = server.join("a")
    assert np.array_equal(answer.pop("weights"), flat(network("as_started", seed=2).parameters))
    assert answer == {"verdict": "joined", "generation": 1, "version": 7, "frames": 24}
    assert counts(server) == (1, 0, 7)


@pytest.mark.parametrize("transport", ["gradients", "rollouts"])
def test_a_second_start_changes_nothing(build, transport):
    server = build(start(), transport=transport)
    verdict(server, "a", 1, 1, gradients())
    before = everything(server)
    server.start(start(frames=999))
    assert everything(server) == before
    assert trainers() == (transport == "rollouts")


def test_who_is_not_known_is_told_to_join_and_who_joins_again_fences_the_one_before_off(build):
    server = build(start())
    assert verdict(server, "c", 1, 1, gradients()) == "rejoin"
    assert verdict(server, "a", 2, 1, gradients()) == "rejoin"  # it has joined a server that is lost
    assert counts(server) == (0, 0, 0)
    assert verdict(server, "a", 1, 1, gradients()) == "applied"
    assert [server.join(host)["generation"] for host in "ca"] == [1, 2]
    before = everything(server)
    assert verdict(server, "a", 1, 2, gradients(1)) == "fenced"
    after = everything(server)
    assert after.pop("progress") == {**before.pop("progress"), "faults": {"crash": 1, "fenced_push": 1}}
    assert after == before
    assert verdict(server, "a", 2, 1, gradients(1)) == "applied"  # which counts its pushes from 1 again
    assert server.join("a")["generation"] == 3


@pytest.mark.parametrize("budget", [{"frames": 2 * FRAMES}, {"episodes": 4}])
def test_nothing_counts_after_a_budget_is_used_up(build, budget):
    server = build(start(), **budget)
    for number in (1, 2):
        assert not server.status()["over"]
        assert verdict(server, "a", 1, number, gradients(number - 1)) == "applied"
    before = everything(server)
    assert verdict(server, "a", 1, 3, gradients(2)) == "done"
    assert server.join("c") == {"verdict": "done"}
    assert everything(server) == before
    assert server.status()["over"]


@pytest.mark.parametrize("transport", ["gradients", "rollouts"])
def test_nothing_counts_after_the_stop(build, transport):
    server, waiting = build(start(), transport=transport), build()
    before = everything(server)
    for stopped in (server, waiting):
        stopped.stop()
        assert stopped.join("a") == {"verdict": "done"}
        assert verdict(stopped, "a", 1, 1, gradients()) == "done"
        assert stopped.status()["over"]
    assert everything(server) == before  # which can still be taken
    until(lambda: trainers() == 0)


# Gradients


def test_gradients_are_applied_as_without_a_server(build):
    schedule = {"learning_rate": 1e-2, "final_learning_rate": 1e-3, "learning_rate_frames": 4 * FRAMES}
    server, alone = build(start(), **schedule), model(seed=2)
    for number in (1, 2, 3):
        message = gradients(number - 1, seed=number)
        rate = Schedule(1e-2, 1e-3, 4 * FRAMES).at(number * FRAMES, SMALL.frames)
        alone.apply(split(message["gradients"], alone.network.parameters), rate)
        answer = server.push("a", 1, number, message, number - 1)
        assert np.array_equal(answer.pop("weights"), flat(alone.network.parameters))
        assert answer == {"verdict": "applied", "version": number, "frames": number * FRAMES}
    assert variables(server) == plain(alone.snapshot())
    assert counts(server) == (3, 6, 3)
    status = server.status()
    assert status["progress"].items() >= {"faults": {"crash": 3}, "scores": [2.0, 4.0] * 3}.items()
    assert (status["progress"]["entropy"], status["progress"]["lag"]) == (0.75, 0)
    assert (status["lags"], status["error"]) == ([0, 0, 0], None)
    played = {"Losses/Entropy": 0.75, "Perf/Reward": 3.0, "Perf/Length": 6.0, "Perf/Value": 0.75}
    assert status["hosts"] == {"a": {"frames": 3 * FRAMES, "pushes": 3, "bytes": 2 * 3 * 4 * SIZE, "metrics": played}}


def test_a_push_that_comes_again_is_not_applied_and_brings_weights_to_those_who_lack_them(build):
    server = build(start())
    weights = [server.push("a", 1, number, gradients(number - 1), number - 1)["weights"] for number in (1, 2)]
    before = everything(server)
    sent = before["hosts"]["a"].pop("bytes")
    for sequence in (1, 2):
        for known in (0, 1, 3):
            answer = server.push("a", 1, sequence, gradients(seed=3), known)
            assert (answer["verdict"], answer["version"]) == ("duplicate", 2)
            assert np.array_equal(answer["weights"], weights[1])
        answer = server.push("a", 1, sequence, gradients(seed=3), 2)
        assert answer == {"verdict": "duplicate", "version": 2, "weights": None, "frames": 2 * FRAMES}
    after = everything(server)
    assert after["hosts"]["a"].pop("bytes") == sent + 6 * weights[1].nbytes  # of the answers
    assert after == before


def test_old_gradients_are_counted_but_not_applied(build):
    server = build(start())
    for number in (1, 2, 3):
        verdict(server, "a", 1, number, gradients(number - 1))
    before = variables(server)
    assert server.push("b", 1, 1, gradients(version=0), 3) == {
        "verdict": "stale",
        "version": 3,
        "weights": None,
        "frames": 4 * FRAMES,
    }
    assert verdict(server, "b", 1, 1, gradients(version=0)) == "duplicate"
    assert variables(server) == before
    assert counts(server) == (4, 8, 3)
    assert verdict(server, "b", 1, 2, gradients(version=1)) == "applied"  # as old as may be
    assert variables(server) != before
    assert counts(server) == (5, 10, 4)
    status = server.status()
    assert (status["progress"]["lag"], status["lags"]) == (2, [0, 0, 0, 3, 2])
    assert status["progress"]["faults"] == {"crash": 5, "stale_push": 1}
    assert status["hosts"]["b"]["frames"] == 2 * FRAMES


def test_gradients_that_are_not_finite_are_counted_and_many_in_a_row_end_the_run(build):
    server, bad = build(start(), max_staleness=100), MAX_NON_FINITE - 1
    before = variables(server)
    assert verdict(server, "a", 1, 1, gradients(gradients=None, not_finite=bad)) == "applied"
    assert variables(server) == before
    assert counts(server) == (1, 2, 0)
    assert verdict(server, "a", 1, 2, gradients()) == "applied"  # which ends the row
    before = variables(server)
    for sequence in range(3, 3 + bad):
        assert verdict(server, "a", 1, sequence, gradients(gradients=None, not_finite=1)) == "applied"
    assert server.status()["error"] is None
    verdict(server, "b", 1, 1, gradients(not_finite=1))
    assert_diverged(server)
    assert verdict(server, "a", 1, 100, gradients()) == "done"
    assert variables(server) == before
    assert server.status()["progress"]["faults"]["non_finite_update"] == 2 * bad + 1


def test_an_error_in_learning_ends_the_run_and_is_told(build):
    server = build(start())
    verdict(server, "a", 1, 1, gradients(gradients=np.ones(SIZE - 1, np.float32)))
    status = server.status()
    assert "in _learn" in status["error"]  # a traceback
    assert "ValueError: a vector of shape" in status["error"]
    assert not status["diverged"]
    assert server.join("b") == {"verdict": "done"}


# Rollouts


def test_rollouts_are_learned_from_and_sent_again_where_there_is_no_room(build):
    gate = Gate()
    server, messages = build(start(), progress=gate, **ROLLOUTS, queue_size=1), rollouts(3)
    before = variables(server)
    assert verdict(server, "a", 1, 1, messages[0]) == "applied"
    assert gate.reached.wait(30)
    assert verdict(server, "a", 1, 2, messages[1]) == "applied"
    assert verdict(server, "a", 1, 3, messages[2]) == "full"
    assert verdict(server, "a", 1, 2, messages[1]) == "duplicate"
    status = server.status()
    assert (status["hosts"]["a"]["pushes"], len(status["lags"])) == (2, 2)
    assert server.state()["members"] == {"a": (1, 2), "b": (1, 0)}
    gate.opened.set()
    until(lambda: verdict(server, "a", 1, 3, messages[2]) == "applied")
    until(lambda: counts(server)[2] == 3)
    assert counts(server) == (3, 6, 3)
    assert variables(server) != before
    answer = server.push("a", 1, 3, messages[2], 0)
    assert np.array_equal(answer["weights"], server._model.weights()[0])
    parts = [part for one in messages for name, part in one["rollout"].items() if name != "core_state"]
    parts += [part for one in messages for part in one["rollout"]["core_state"]]
    taken_in, answers = sum(part.nbytes for part in parts), server.status()["hosts"]["a"]["bytes"]
    assert (answers - taken_in) % answer["weights"].nbytes == 0  # each answer has had the weights, or none
    assert answers - taken_in >= 5 * answer["weights"].nbytes


def test_old_rollouts_are_counted_but_not_learned_from(build):
    server = build(start(updates=9), **{**ROLLOUTS, "max_staleness": 3, "queue_size": 1})
    before = variables(server)
    for number, message in enumerate(rollouts(5, version=5), 1):  # more than the queue holds
        assert verdict(server, "a", 1, number, message) == "stale"
    assert counts(server) == (5, 10, 9)
    assert server.status()["progress"]["faults"] == {"stale_push": 5}
    assert variables(server) == before
    assert verdict(server, "a", 1, 6, rollouts(1, version=6)[0]) == "applied"
    until(lambda: counts(server) == (6, 12, 10))


def test_rollouts_that_make_no_finite_gradients_end_the_run(build):
    server, message = build(start(), **ROLLOUTS), rollouts(1, reward=float("nan"))[0]
    before = variables(server)
    for number in range(1, MAX_NON_FINITE + 1):
        until(lambda sequence=number: verdict(server, "a", 1, sequence, message) == "applied")
    until(lambda: server.status()["error"])
    assert_diverged(server)
    assert verdict(server, "a", 1, 99, message) == "done"
    assert variables(server) == before


# Restarts, the driver's view, and many at once


def test_a_restarted_server_goes_on_where_its_state_was_taken(build):
    lost = build(start())
    for number in (1, 2):
        weights = lost.push("a", 1, number, gradients(number - 1), number - 1)["weights"]
    state, kept = lost.state(), everything(lost)
    lost.join("c")
    for number in (3, 4):
        verdict(lost, "a", 1, number, gradients(number - 1))
    server = build()
    server.start(state)
    assert everything(server) == {**kept, "hosts": {}}  # though the lost one has gone on
    assert verdict(server, "c", 1, 1, gradients(5)) == "rejoin"
    answer = server.push("a", 1, 2, gradients(1), 4)
    assert (answer["verdict"], answer["version"]) == ("duplicate", 2)
    assert np.array_equal(answer["weights"], weights)
    assert verdict(server, "a", 1, 5, gradients(version=4)) == "applied"  # made with weights of the lost future
    assert server.join("c")["generation"] == 1
    assert verdict(server, "b", 1, 1, gradients(version=3)) == "applied"
    assert server.status()["lags"] == [0, 0]
    assert counts(server) == (4, 8, 4)
    assert server.state()["members"] == {"a": (1, 5), "b": (1, 1), "c": (1, 0)}


def test_no_update_has_a_negative_lag(build):
    server = build(start())
    verdict(server, "a", 1, 1, gradients(version=5))
    assert server.status()["progress"]["lag"] == 0


def test_weights_of_a_lost_server_are_replaced_though_their_version_is_the_same(build):
    lost, server = build(start()), build()
    state = lost.state()
    known = lost.push("a", 1, 1, gradients(seed=1), 0)["version"]
    server.start(state)
    answer = server.push("a", 1, 2, gradients(seed=2), known)
    assert (answer["version"], known) == (1, 1)
    assert answer["weights"] is not None


def test_lags_gifs_and_faults_reach_the_driver_once(build):
    server = build(start(), max_staleness=100)
    server._gate = recording.Gate(0.0)
    for number in (1, 2, 3, 4, 5, 6, 6):
        verdict(server, "a", 1, number, gradients(gifs=[{"episode": number}]))
    server.fault("host_lost")
    status = server.status()
    assert status["lags"] == [0, 1, 2, 3, 4, 5]
    assert [gif["episode"] for gif in status["gifs"]] == [3, 4, 5, 6]
    assert status["progress"]["faults"] == {"crash": 6, "host_lost": 1}
    status = server.status()
    assert (status["lags"], status["gifs"]) == ([], [])


def test_one_gif_a_minute_gets_through_from_all_hosts(build):
    server = build(start())
    for host in "ab":
        verdict(server, host, 1, 1, gradients(gifs=[{"episode": 7}]))
    assert len(server.status()["gifs"]) == 1


def test_a_host_that_is_given_up_is_fenced_and_a_new_one_under_its_name_is_not(build):
    server = build(start())
    assert verdict(server, "a", 1, 1, gradients()) == "applied"
    server.retire("a")
    server.retire("unknown")
    assert verdict(server, "a", 1, 2, gradients()) == "fenced"
    generation = server.join("a")["generation"]
    assert verdict(server, "a", generation, 1, gradients()) == "applied"
    assert counts(server)[2] == 2


def test_only_answers_that_are_used_carry_weights(build):
    server = build(start())
    answers = [server.push("a", 1, number, gradients(), -1) for number in (1, 1)]
    assert all(answer["weights"] is not None for answer in answers)
    server.retire("a")
    refused = [server.push("a", 1, 2, gradients(), -1), server.push("nobody", 1, 1, gradients(), -1)]
    server.stop()
    refused.append(server.push("b", 1, 1, gradients(), -1))
    assert refused == [{"verdict": verdict} for verdict in ("fenced", "rejoin", "done")]


def test_stopping_waits_for_the_update_under_way(build, monkeypatch):
    began, go_on = threading.Event(), threading.Event()
    gradients_of = Learner.gradients

    def slowly(*arguments):
        began.set()
        go_on.wait(30)
        return gradients_of(*arguments)

    monkeypatch.setattr(Learner, "gradients", slowly)
    server = build(start(), transport="rollouts")
    assert verdict(server, "a", 1, 1, rollouts(1)[0]) == "applied"
    assert began.wait(30)
    stopping = threading.Thread(target=server.stop)
    stopping.start()
    assert counts(server)[2] == 0
    go_on.set()
    stopping.join(30)
    assert counts(server)[2] == server.state()["progress"]["updates"] == 1


def test_a_push_waits_for_room_rather_than_be_sent_again(build, monkeypatch):
    monkeypatch.setattr(server_module, "ROOM_SECONDS", 30.0)
    gate, verdicts = Gate(), []
    server, messages = build(start(), progress=gate, **ROLLOUTS, queue_size=1), rollouts(3)
    verdict(server, "a", 1, 1, messages[0])
    assert gate.reached.wait(30)
    verdict(server, "a", 1, 2, messages[1])
    pushing = threading.Thread(target=lambda: verdicts.append(verdict(server, "a", 1, 3, messages[2])))
    pushing.start()
    pushing.join(0.2)
    assert pushing.is_alive()
    assert server.status()["hosts"]["a"]["pushes"] == 2  # others are answered meanwhile
    gate.opened.set()
    pushing.join(30)
    assert verdicts == ["applied"]


def test_many_at_once_count_once_each(build):
    """Every push comes three times at about the same time, as where calls are given up that arrive nevertheless."""
    server, hosts, pushes, verdicts = build(start(), max_staleness=10**6), "abcd", 12, []
    for host in "cd":
        server.join(host)

    def deliver(host):
        for number in range(1, pushes + 1):
            verdicts.append(verdict(server, host, 1, number, gradients()))

    threads = [threading.Thread(target=deliver, args=(host,), daemon=True) for host in hosts * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    total = len(hosts) * pushes
    assert sorted(verdicts) == ["applied"] * total + ["duplicate"] * 2 * total
    assert counts(server) == (total, 2 * total, total)
    status = server.status()
    assert sorted(status["lags"]) == list(range(total))
    assert {name: tally["pushes"] for name, tally in status["hosts"].items()} == dict.fromkeys(hosts, pushes)
    assert server.state()["members"] == dict.fromkeys(hosts, (1, pushes))
