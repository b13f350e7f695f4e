"""The driver fences replaced hosts while hosts are lost, servers restart and connections fail. Processes are fakes."""

import itertools
import random
import threading
import time
from types import SimpleNamespace

import pytest
from cluster_fakes import SMALL, KnownServer, gradient_push, state_of
from fakes import changed, until

from doom_a3c.engines.cluster import driver
from doom_a3c.engines.cluster.messages import UnreachableError
from doom_a3c.engines.cluster.ray import Blueprint
from doom_a3c.engines.state import State
from doom_a3c.record.metrics.counters import from_plain
from doom_a3c.record.metrics.progress import Progress

NAME = "machine__0"
CONFIG = changed(SMALL, max_policy_lag=10**6, learning_rate=1e-6)


class Line:
    """The connection to the server. While it is down, either a call does not arrive or its answer is lost."""

    def __init__(self):
        self.server, self.down, self.arrives = KnownServer(CONFIG), False, False

    def __getattr__(self, method):
        def call(*arguments):
            if self.down and not self.arrives:
                raise UnreachableError
            answer = getattr(self.server, method)(*arguments)
            if self.down:
                raise UnreachableError
            return answer

        return call


@pytest.fixture
def run(monkeypatch):
    """A driver with fake processes; `hosts` has the generations of all hosts ever started, newest last, all of one name."""
    one = SimpleNamespace(line=Line(), hosts=[], lines=[], lost=set(), pushed=itertools.count(1))

    class Host:
        def __init__(self, blueprint, name, *, number, generation, machine):
            assert (name, number) == (NAME, len(one.hosts))
            # A lost host may live on behind a broken network: by now its pushes are refused.
            assert {push(old) for old in one.hosts} <= {"fenced", "wait"}
            one.hosts.append(generation)
            self.generation = generation

        def has_ended(self, seconds=0.0):
            return self.generation in one.lost

        def find_failure(self):
            return RuntimeError("lost")

        def kill(self):
            pass

    def push(generation, sequence=None):
        return one.line.server.push(NAME, generation, sequence or next(one.pushed), gradient_push(), -1)["verdict"]

    one.push = push
    monkeypatch.setattr(driver, "_TICK_SECONDS", 0.01)
    monkeypatch.setattr(driver, "_STATE_SECONDS", 0.05)
    monkeypatch.setattr(driver, "_MAX_FAILURES", 10**6)
    monkeypatch.setattr(driver, "_STOP_SECONDS", 0.0)
    monkeypatch.setattr(driver, "list_machines", lambda: ["machine_1"])
    monkeypatch.setattr(driver, "HostProcess", Host)
    monkeypatch.setattr(driver, "connect_server", lambda: one.line)
    monkeypatch.setattr(driver, "ServerProcess", lambda *arguments, gpu: SimpleNamespace(kill=lambda: None))
    state = state_of()
    one.engine = driver.ClusterEngine(
        hosts=1,
        device="cpu",
        blueprint=Blueprint(None, None, {}),
        state=State(state["variables"], from_plain(state["counters"])),
        progress=Progress(),
        logger_called=lambda name: SimpleNamespace(metrics=lambda *_: None, histogram=lambda *_: None),
        add_gif=lambda gif: None,
        log=one.lines.append,
    )
    one.engine.start()
    until(lambda: one.hosts and push(one.hosts[0]) == "applied")
    yield one
    one.line.down = False
    one.engine.stop()
    one.engine.check()


def lose(run):
    """Loses the newest host."""
    seen = len(run.lines)
    run.lost.add(run.hosts[-1])
    until(lambda: any("died" in line for line in run.lines[seen:]))


@pytest.mark.parametrize("arrives", [False, True])
def test_a_lost_host_is_replaced_once_its_pushes_are_fenced(run, arrives):
    run.line.arrives, run.line.down = arrives, True
    lose(run)
    time.sleep(0.1)  # ten ticks of the driver
    assert len(run.hosts) == 1  # it is unknown whether the call reached the server
    run.line.down = False
    until(lambda: len(run.hosts) == 2)
    assert run.push(run.hosts[0]) == "fenced"
    assert [run.push(run.hosts[1], sequence) for sequence in (1, 2, 3, 3)] == ["applied"] * 3 + ["duplicate"]


def test_a_server_restored_from_an_old_state_knows_the_hosts(run, monkeypatch):
    state = until(run.line.server.state)
    monkeypatch.setattr(driver, "_STATE_SECONDS", 3600.0)
    time.sleep(0.1)  # for a copy in progress
    lose(run)
    until(lambda: len(run.hosts) == 2)
    assert run.push(run.hosts[1], 1) == "applied"
    run.line.server = KnownServer(CONFIG)
    until(run.line.server.state)
    assert run.line.server.state()["members"][NAME] == (run.hosts[1], 0, 0)
    assert state["members"][NAME][0] == run.hosts[0]
    assert run.push(run.hosts[0]) == "fenced"
    assert [run.push(run.hosts[1], sequence) for sequence in (1, 2, 3)] == ["applied"] * 3


def test_generations_stay_unique_when_the_clock_is_set_back(run, monkeypatch):
    drawn = []
    for seconds in (5, 5, 1, 10, 0):
        monkeypatch.setattr(driver.time, "time_ns", lambda now=seconds: now * 10**9)
        drawn.append(run.engine._draw_generation())
    assert drawn == sorted(set(drawn))
    assert drawn[0] > run.hosts[0]


def test_refused_pushes_are_logged_and_their_host_is_replaced(run):
    bad = gradient_push(metrics={})
    for _ in range(3):
        assert run.line.server.push(NAME, run.hosts[0], next(run.pushed), bad, -1)["verdict"] == "refused"
    assert run.push(run.hosts[0]) == "fenced"
    until(lambda: [NAME in line and "metrics" in line for line in run.lines if "refused" in line] == [True] * 3)
    lose(run)  # a real host ends by itself when it is fenced
    until(lambda: len(run.hosts) == 2)
    assert run.push(run.hosts[1]) == "applied"


@pytest.mark.parametrize("seed", range(3))
def test_pushes_of_a_replaced_host_never_count(run, seed):
    """All hosts, even lost ones, keep pushing while hosts are lost, servers restart and the driver's connection fails."""
    over, violations, applied = threading.Event(), [], []

    def haunt():
        while not over.is_set():
            for generation in tuple(run.hosts):
                newest, server, sequence = run.hosts[-1], run.line.server, next(run.pushed)
                answers = [server.push(NAME, generation, sequence, gradient_push(), -1)["verdict"] for _ in range(2)]
                if (generation != newest and "applied" in answers) or answers == ["applied"] * 2:
                    violations.append((generation, newest, answers))
                applied.append(answers[0] == "applied")

    ghosts, chance = threading.Thread(target=haunt, daemon=True), random.Random(seed)
    ghosts.start()
    deadline, restarts = time.monotonic() + 60, 0
    while len(run.hosts) < 6 or restarts < 6:
        assert time.monotonic() < deadline
        event = chance.randrange(4)
        if event == 0:
            run.lost.add(run.hosts[-1])
        elif event == 1:
            run.line.server = KnownServer(CONFIG)
            restarts += 1
        else:
            run.line.down, run.line.arrives = event == 2, chance.random() < 0.5
        time.sleep(chance.random() * 0.05)
    run.line.down = False
    over.set()
    ghosts.join(30)
    assert violations == []
    assert any(applied)
    until(lambda: run.push(run.hosts[-1]) == "applied")
    assert len(set(run.hosts)) == len(run.hosts)
