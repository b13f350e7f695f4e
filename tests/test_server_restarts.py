"""The parameter server when its driver restarts it, and when many call it at once."""

import threading

import numpy as np
import pytest
from cluster_fakes import SMALL, counted, everything, gif, gradient_push, servers, state_of, verdict
from fakes import changed

from doom_a3c.record.metrics.rate_limiter import RateLimiter


@pytest.fixture
def build():
    """Builds servers; those given a state have started and know hosts `a` and `b` with generation 1."""
    with servers(changed(SMALL, max_policy_lag=2), members="ab") as make:
        yield make


def test_a_restarted_server_resumes_from_its_saved_state(build):
    lost = build(state_of(2))
    for number in (1, 2):
        weights = lost.push("a", 1, number, gradient_push(number - 1), number - 1)["weights"]
    state, kept = lost.state(), everything(lost)
    for number in (3, 4):
        verdict(lost, "a", 1, number, gradient_push(number - 1))
    server = build()
    server.start(state, {"a": 1, "b": 1, "c": 7})
    members = kept.pop("members")
    assert everything(server) == {
        **kept,
        "hosts": {},
        "members": {**members, "c": (7, 0, 0)},
    }  # although the lost server continued
    answer = server.push("a", 1, 2, gradient_push(1), 4)
    assert (answer["verdict"], answer["version"]) == ("duplicate", 2)
    assert np.array_equal(answer["weights"], weights)
    assert verdict(server, "a", 1, 5, gradient_push(version=4)) == "applied"  # from later weights of the lost server
    assert server.join("c", 7)["verdict"] == "joined"
    assert verdict(server, "b", 1, 1, gradient_push(version=3)) == "applied"
    assert server.status()["lags"] == [0, 0]
    assert counted(server) == (4, 8, 4)
    assert server.state()["members"] == {"a": (1, 5, 0), "b": (1, 1, 0), "c": (7, 0, 0)}


def test_a_restart_keeps_the_learning_rate_halvings(build):
    state = state_of(2)
    state["counters"]["halvings"] = 3
    server = build(state)
    assert server._model.rate_share == 0.125
    assert server.state()["counters"]["halvings"] == 3


def test_a_host_replaced_before_the_restart_stays_fenced(build):
    """The state predates the replacement: it has the old process and its three pushes; the successor loses nothing."""
    lost = build(state_of(2))
    for number in (1, 2, 3):
        verdict(lost, "a", 1, number, gradient_push(number - 1))
    state = lost.state()
    lost.enroll({"a": 2})
    assert verdict(lost, "a", 2, 1, gradient_push(3)) == "applied"
    for restarted in (build(), build()):  # twice in a row, from the same state
        restarted.start(state, {"a": 2, "b": 1})
        assert verdict(restarted, "a", 1, 4, gradient_push(3)) == "fenced"
        assert restarted.join("a", 1) == {"verdict": "fenced"}
        assert [verdict(restarted, "a", 2, number, gradient_push(3)) for number in (2, 3, 3)] == [
            "applied",
            "applied",
            "duplicate",
        ]
        assert counted(restarted) == (5, 10, 5)


def test_hosts_enrolled_before_the_start_are_remembered(build):
    lost, server = build(state_of(2)), build()
    verdict(lost, "a", 1, 1, gradient_push())
    server.enroll({"a": 2})
    assert verdict(server, "a", 2, 1, gradient_push()) == "wait"  # it has no state yet
    server.start(lost.state(), {"a": 1, "b": 1})  # sent earlier, arrived later
    assert [verdict(server, "a", generation, 2, gradient_push()) for generation in (1, 2)] == ["fenced", "applied"]


def test_lag_is_never_negative(build):
    server = build(state_of(2))
    verdict(server, "a", 1, 1, gradient_push(version=5))
    assert server.status()["lag"] == 0


def test_a_lost_servers_weights_are_replaced_at_equal_version(build):
    lost, server = build(state_of(2)), build()
    state = lost.state()
    known = lost.push("a", 1, 1, gradient_push(seed=1), 0)["version"]
    server.start(state, {"a": 1})
    answer = server.push("a", 1, 2, gradient_push(seed=2), known)
    assert (answer["version"], known) == (1, 1)
    assert answer["weights"] is not None


def test_lags_gifs_and_faults_reach_the_driver_once(build):
    server = build(state_of(2), gif_limiter=RateLimiter(0.0), max_policy_lag=100)
    for number in (1, 2, 3, 4, 5, 6, 6):
        verdict(server, "a", 1, number, gradient_push(gifs=[gif(number)]))
    server.add_fault("host_lost")
    status = server.status()
    assert status["lags"] == [0, 1, 2, 3, 4, 5]
    assert [one["episode"] for one in status["gifs"]] == [3, 4, 5, 6]
    assert status["counters"]["faults"] == {"crash": 6, "host_lost": 1}
    status = server.status()
    assert (status["lags"], status["gifs"]) == ([], [])


def test_all_hosts_together_pass_on_one_gif_a_minute(build):
    server = build(state_of(2))
    for host in "ab":
        verdict(server, host, 1, 1, gradient_push(gifs=[gif(7)]))
    assert len(server.status()["gifs"]) == 1


def test_concurrent_duplicate_pushes_count_once(build):
    """Every push arrives three times at about the same time, as when callers give up on calls that still arrive."""
    server, hosts, pushes, verdicts = build(state_of(2), max_policy_lag=10**6), "abcd", 12, []
    server.enroll({"c": 1, "d": 1})

    def deliver(host):
        for number in range(1, pushes + 1):
            verdicts.append(verdict(server, host, 1, number, gradient_push()))

    threads = [threading.Thread(target=deliver, args=(host,), daemon=True) for host in hosts * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    total = len(hosts) * pushes
    assert sorted(verdicts) == ["applied"] * total + ["duplicate"] * 2 * total
    assert counted(server) == (total, 2 * total, total)
    status = server.status()
    assert sorted(status["lags"]) == list(range(total))
    assert {name: tally["pushes"] for name, tally in status["hosts"].items()} == dict.fromkeys(hosts, pushes)
    assert server.state()["members"] == dict.fromkeys(hosts, (1, pushes, 0))
