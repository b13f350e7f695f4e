"""The parameter server restarted, as the driver sees it, and called by many at once."""

import threading

import numpy as np
import pytest
from cluster_fakes import SMALL, counted, everything, gradient_push, servers, state_of, verdict
from fakes import changed

from doom_a3c.record.rate_limiter import RateLimiter


@pytest.fixture
def build():
    """Builds servers; those with a state have started, and `a` and `b` have joined them."""
    with servers(changed(SMALL, max_policy_lag=2), members="ab") as make:
        yield make


def test_a_restarted_server_goes_on_where_its_state_was_taken(build):
    lost = build(state_of(2))
    for number in (1, 2):
        weights = lost.push("a", 1, number, gradient_push(number - 1), number - 1)["weights"]
    state, kept = lost.state(), everything(lost)
    lost.join("c")
    for number in (3, 4):
        verdict(lost, "a", 1, number, gradient_push(number - 1))
    server = build()
    server.start(state)
    assert everything(server) == {**kept, "hosts": {}}  # though the lost one has gone on
    assert verdict(server, "c", 1, 1, gradient_push(5)) == "rejoin"
    answer = server.push("a", 1, 2, gradient_push(1), 4)
    assert (answer["verdict"], answer["version"]) == ("duplicate", 2)
    assert np.array_equal(answer["weights"], weights)
    assert verdict(server, "a", 1, 5, gradient_push(version=4)) == "applied"  # made with weights of the lost future
    assert server.join("c")["generation"] == 1
    assert verdict(server, "b", 1, 1, gradient_push(version=3)) == "applied"
    assert server.status()["lags"] == [0, 0]
    assert counted(server) == (4, 8, 4)
    assert server.state()["members"] == {"a": (1, 5), "b": (1, 1), "c": (1, 0)}


def test_no_update_has_a_negative_lag(build):
    server = build(state_of(2))
    verdict(server, "a", 1, 1, gradient_push(version=5))
    assert server.status()["lag"] == 0


def test_weights_of_a_lost_server_are_replaced_though_their_version_is_the_same(build):
    lost, server = build(state_of(2)), build()
    state = lost.state()
    known = lost.push("a", 1, 1, gradient_push(seed=1), 0)["version"]
    server.start(state)
    answer = server.push("a", 1, 2, gradient_push(seed=2), known)
    assert (answer["version"], known) == (1, 1)
    assert answer["weights"] is not None


def test_lags_gifs_and_faults_reach_the_driver_once(build):
    server = build(state_of(2), gif_limiter=RateLimiter(0.0), max_policy_lag=100)
    for number in (1, 2, 3, 4, 5, 6, 6):
        verdict(server, "a", 1, number, gradient_push(gifs=[{"episode": number}]))
    server.add_fault("host_lost")
    status = server.status()
    assert status["lags"] == [0, 1, 2, 3, 4, 5]
    assert [gif["episode"] for gif in status["gifs"]] == [3, 4, 5, 6]
    assert status["counters"]["faults"] == {"crash": 6, "host_lost": 1}
    status = server.status()
    assert (status["lags"], status["gifs"]) == ([], [])


def test_one_gif_a_minute_gets_through_from_all_hosts(build):
    server = build(state_of(2))
    for host in "ab":
        verdict(server, host, 1, 1, gradient_push(gifs=[{"episode": 7}]))
    assert len(server.status()["gifs"]) == 1


def test_many_at_once_count_once_each(build):
    """Every push comes three times at about the same time, as where calls are given up that arrive nevertheless."""
    server, hosts, pushes, verdicts = build(state_of(2), max_policy_lag=10**6), "abcd", 12, []
    for host in "cd":
        server.join(host)

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
    assert server.state()["members"] == dict.fromkeys(hosts, (1, pushes))
