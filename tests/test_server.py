"""The parameter server's protocol, rule by rule: what it counts, learns from and answers."""

import numpy as np
import pytest
from cluster_fakes import (
    FRAMES,
    METRICS,
    SIZE,
    SMALL,
    alive,
    assert_diverged,
    comparable,
    counted,
    everything,
    gradient_push,
    servers,
    state_of,
    variables,
    verdict,
)
from fakes import STEPS, changed, model, network, until

from doom_a3c.agent.model import flatten, split
from doom_a3c.algorithm.running_moments import compute_moments
from doom_a3c.engines.updates import MAX_NON_FINITE
from doom_a3c.settings.fields import Schedule


@pytest.fixture
def build():
    """Builds servers; those given a state are started, and know `a` and `b` as generation 1."""
    with servers(changed(SMALL, max_policy_lag=2), members="ab") as make:
        yield make


def test_a_server_makes_everyone_wait_until_it_starts(build):
    server = build()
    assert server.join("a", 1) == {"verdict": "wait"}
    assert verdict(server, "a", 1, 1, gradient_push()) == "wait"
    status = server.status()
    assert not status["ready"]
    assert not status["over"]
    assert server.state() is None
    server.start(state_of(2, frames=24, steps=8, updates=7), {"a": 1})
    assert server.status()["ready"]
    answer = server.join("a", 1)
    assert np.array_equal(answer.pop("weights"), flatten(network("as_started", seed=2).parameters))
    assert answer == {"verdict": "joined", "version": 7, "frames": 24, "reward_sums": [0, 0.0, 0.0]}
    assert counted(server) == (1, 0, 7)


@pytest.mark.parametrize("transport", ["gradients", "rollouts"])
def test_a_second_start_changes_nothing(build, transport):
    server = build(state_of(2), transport=transport)
    verdict(server, "a", 1, 1, gradient_push())
    before = everything(server)
    server.start(state_of(2, frames=999), {})
    assert everything(server) == before
    assert len(alive("trainer")) == (transport == "rollouts")


def test_only_pushes_of_the_enrolled_generation_count(build):
    server = build(state_of(2))
    assert verdict(server, "a", 1, 1, gradient_push()) == "applied"
    for host, generation in (("c", 1), ("a", 2)):  # which the driver has not announced yet
        assert server.join(host, generation) == {"verdict": "wait"}
        assert verdict(server, host, generation, 1, gradient_push()) == "wait"
    server.enroll({"a": 2, "b": 1, "c": 1})
    before = everything(server)
    assert verdict(server, "a", 1, 2, gradient_push(1)) == "fenced"
    assert server.join("a", 1) == {"verdict": "fenced"}
    after = everything(server)
    assert after.pop("counters") == {**before.pop("counters"), "faults": {"crash": 1, "fenced_push": 1}}
    assert after == before
    assert [server.join(host, generation)["verdict"] for host, generation in (("a", 2), ("c", 1))] == ["joined"] * 2
    assert verdict(server, "a", 2, 1, gradient_push(1)) == "applied"  # whose pushes are numbered from 1 again
    assert verdict(server, "b", 1, 1, gradient_push(2)) == "applied"


def test_late_messages_of_the_driver_change_nothing(build):
    server = build(state_of(2))
    server.enroll({"a": 5})
    assert verdict(server, "a", 5, 1, gradient_push()) == "applied"
    before = everything(server)
    server.enroll({"a": 3})
    server.enroll({"a": 5})
    server.start(state_of(3), {"a": 4})
    assert everything(server) == before
    assert verdict(server, "a", 5, 1, gradient_push()) == "duplicate"


def test_joining_again_changes_nothing(build):
    server = build(state_of(2))
    assert verdict(server, "a", 1, 1, gradient_push()) == "applied"
    before = everything(server)
    assert server.join("a", 1)["verdict"] == "joined"
    assert everything(server) == before
    assert verdict(server, "a", 1, 1, gradient_push()) == "duplicate"


@pytest.mark.parametrize("budget", [{"frames": 2 * FRAMES}, {"episodes": 4}])
def test_nothing_counts_after_a_budget_is_used_up(build, budget):
    server = build(state_of(2), **budget)
    for number in (1, 2):
        assert not server.status()["over"]
        assert verdict(server, "a", 1, number, gradient_push(number - 1)) == "applied"
    before = everything(server)
    assert verdict(server, "a", 1, 3, gradient_push(2)) == "done"
    assert server.join("b", 1) == {"verdict": "done"}
    assert everything(server) == before
    assert server.status()["over"]


@pytest.mark.parametrize("transport", ["gradients", "rollouts"])
def test_nothing_counts_after_stopping(build, transport):
    server, waiting = build(state_of(2), transport=transport), build()
    before = everything(server)
    for stopped in (server, waiting):
        stopped.stop()
        assert stopped.join("a", 1) == {"verdict": "done"}
        assert verdict(stopped, "a", 1, 1, gradient_push()) == "done"
        assert stopped.status()["over"]
    assert everything(server) == before  # which can still be read
    until(lambda: alive("trainer") == [])


def sums_after(pushes):
    """Returns the sums in an answer after that many pushes."""
    return {"frames": pushes * FRAMES, "reward_sums": [pushes * STEPS, 0.5, pushes * 2.0 * STEPS]}


def test_a_server_applies_gradients_like_a_local_model(build):
    schedule = {"learning_rate": 1e-2, "final_learning_rate": 1e-3, "learning_rate_frames": 4 * FRAMES}
    server, alone = build(state_of(2), **schedule), model(seed=2)
    for number in (1, 2, 3):
        message = gradient_push(number - 1, seed=number)
        rate = Schedule(1e-2, 1e-3, 4 * FRAMES).at(number * FRAMES, SMALL.frames)
        alone.apply(split(message["gradients"], alone.network.parameters), rate)
        answer = server.push("a", 1, number, message, number - 1)
        assert np.array_equal(answer.pop("weights"), flatten(alone.network.parameters))
        assert answer == {"verdict": "applied", "version": number, **sums_after(number)}
    assert variables(server) == comparable(alone.snapshot())
    assert counted(server) == (3, 6, 3)
    status = server.status()
    assert status["counters"].items() >= {"faults": {"crash": 3}, "scores": [2.0, 4.0] * 3}.items()
    assert (status["entropy"], status["lag"]) == (0.75, 0)
    assert (status["lags"], status["error"]) == ([0, 0, 0], None)
    played = {**METRICS, "entropy": 0.75, "reward": 3.0, "length": 6.0, "value": 0.75, "push_seconds": 0.5}
    assert status["hosts"] == {"a": {"frames": 3 * FRAMES, "pushes": 3, "bytes": 2 * 3 * 4 * SIZE, "metrics": played}}


def test_a_repeated_push_only_returns_weights_the_host_lacks(build):
    server = build(state_of(2))
    weights = [server.push("a", 1, number, gradient_push(number - 1), number - 1)["weights"] for number in (1, 2)]
    before = everything(server)
    sent = before["hosts"]["a"].pop("bytes")
    for sequence in (1, 2):
        for known in (0, 1, 3):
            answer = server.push("a", 1, sequence, gradient_push(seed=3), known)
            assert (answer["verdict"], answer["version"]) == ("duplicate", 2)
            assert np.array_equal(answer["weights"], weights[1])
        answer = server.push("a", 1, sequence, gradient_push(seed=3), 2)
        assert answer == {"verdict": "duplicate", "version": 2, "weights": None, **sums_after(2)}
    after = everything(server)
    assert after["hosts"]["a"].pop("bytes") == sent + 6 * weights[1].nbytes  # from the answers
    assert after == before


def test_reward_sums_of_all_hosts_are_merged_sent_and_saved(build):
    server, parts = build(state_of()), np.split(np.arange(24.0) ** 2, 3)
    for host, version, part in zip("aba", range(3), parts, strict=True):
        push = gradient_push(version, reward_sums=list(compute_moments(part)))
        answer = server.push(host, 1, version + 1, push, -1)
    whole = pytest.approx(list(compute_moments(np.concatenate(parts))))
    assert answer["reward_sums"] == server.state()["counters"]["reward_sums"] == whole
    after = build(server.state())
    assert after.join("a", 1)["reward_sums"] == whole


def test_stale_gradients_are_counted_but_not_applied(build):
    server = build(state_of(2))
    for number in (1, 2, 3):
        verdict(server, "a", 1, number, gradient_push(number - 1))
    server.join("b", 1)
    before = variables(server)
    assert server.push("b", 1, 1, gradient_push(version=0), 3) == {
        "verdict": "stale",
        "version": 3,
        "weights": None,
        **sums_after(4),
    }
    assert verdict(server, "b", 1, 1, gradient_push(version=0)) == "duplicate"
    assert variables(server) == before
    assert counted(server) == (4, 8, 3)
    assert verdict(server, "b", 1, 2, gradient_push(version=1)) == "applied"  # as old as allowed
    assert variables(server) != before
    assert counted(server) == (5, 10, 4)
    status = server.status()
    assert (status["lag"], status["lags"]) == (2, [0, 0, 0, 3, 2])
    assert status["counters"]["faults"] == {"crash": 5, "stale_push": 1}
    assert status["hosts"]["b"]["frames"] == 2 * FRAMES


def test_too_many_non_finite_gradients_in_a_row_end_the_run(build):
    server, bad = build(state_of(2), max_policy_lag=100, push_rollouts=20), MAX_NON_FINITE - 1
    before = variables(server)
    assert verdict(server, "a", 1, 1, gradient_push(gradients=None, metrics={}, not_finite=bad)) == "applied"
    assert variables(server) == before
    assert counted(server) == (1, 2, 0)
    assert verdict(server, "a", 1, 2, gradient_push()) == "applied"  # which ends the streak
    before = variables(server)
    for sequence in range(3, 3 + bad):
        assert verdict(server, "a", 1, sequence, gradient_push(gradients=None, metrics={}, not_finite=1)) == "applied"
    assert server.status()["error"] is None
    verdict(server, "b", 1, 1, gradient_push(not_finite=1))
    assert_diverged(server)
    assert verdict(server, "a", 1, 100, gradient_push()) == "done"
    assert variables(server) == before
    assert server.status()["counters"]["faults"]["non_finite_update"] == 2 * bad + 1


def test_an_error_in_learning_ends_the_run_and_is_reported(build, monkeypatch):
    server = build(state_of(2))
    monkeypatch.setattr(server.model, "apply", lambda gradients, rate, version: 1 / 0)
    verdict(server, "a", 1, 1, gradient_push())
    status = server.status()
    assert "in _learn" in status["error"]  # a traceback
    assert "ZeroDivisionError" in status["error"]
    assert not status["diverged"]
    assert server.join("b", 1) == {"verdict": "done"}


def test_refusals_carry_no_weights(build):
    server = build(state_of(2))
    answers = [server.push("a", 1, number, gradient_push(), -1) for number in (1, 1)]
    assert all(answer["weights"] is not None for answer in answers)
    server.enroll({"a": 2})
    refused = [server.push("a", 1, 2, gradient_push(), -1), server.push("nobody", 1, 1, gradient_push(), -1)]
    server.stop()
    refused.append(server.push("b", 1, 1, gradient_push(), -1))
    assert refused == [{"verdict": verdict} for verdict in ("fenced", "wait", "done")]
