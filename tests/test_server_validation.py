"""Bad pushes from a broken host: they are refused, counted and reported, and the run continues unaffected."""

import numpy as np
import pytest
from cluster_fakes import (
    METRICS,
    SIZE,
    SMALL,
    counted,
    everything,
    gif,
    gradient_push,
    rollout_pushes,
    servers,
    state_of,
    verdict,
)
from fakes import changed, until

from doom_a3c.engines.cluster.members import MAX_REFUSED
from doom_a3c.engines.cluster.messages import MAX_GIF_BYTES
from doom_a3c.record.films.gif_writer import GifWriter
from doom_a3c.record.films.gifs import Gif
from doom_a3c.record.metrics.counters import MAX_KINDS
from doom_a3c.record.metrics.rate_limiter import RateLimiter

NAN, INF = float("nan"), float("inf")
EPISODE = (2.0, 5, 0.5, 0, 2.5)
ANYTHING = [None, True, -1, 0.5, NAN, "7", b"7", (), [[]], {}, np.ones(3), np.float64(NAN), 10**400]


@pytest.fixture
def build():
    """Builds servers; those given a state have started, and know `a` and `b` in generation 1."""
    with servers(changed(SMALL, max_policy_lag=100), members="ab") as make:
        yield make


def vector(*, at=5, **parts):
    """Returns a gradient vector with one bad value or a bad dtype."""
    gradients = gradient_push()["gradients"]
    gradients[at] = parts.get("value", 0.0)
    return gradients.astype(parts.get("kind", np.float32))


BAD_PARTS = [
    {"gradients": vector(value=NAN)},
    {"gradients": vector(value=-INF)},
    {"gradients": vector(value=1e30)},  # its square is not finite
    {"gradients": vector(value=1e10)},  # no clipped gradient is this large
    {"gradients": np.ones(SIZE - 1, np.float32)},
    {"gradients": np.ones((1, SIZE), np.float32)},
    {"gradients": np.float32(1.0)},
    {"gradients": vector(kind=np.float64)},
    {"gradients": vector(kind=np.int32)},
    {"gradients": vector(kind=object)},
    {"gradients": vector(kind=">f4")},
    {"gradients": [1.0] * SIZE},
    {"gradients": None, "not_finite": 1},  # yet with the metrics of an update
    *({"not_finite": number} for number in (-1, 10**6, NAN, True, None)),
    *({"version": number} for number in (-1, 10**30, 1.0, NAN, None)),
    *({"steps": number} for number in (-(10**6), 10**12, 8.0, NAN, None)),
    *({"frames": number} for number in (-(10**6), 10**12, 24.0, None)),
    {"metrics": {}},
    {"metrics": {**METRICS, "grad_norm": NAN}},
    {"metrics": {**METRICS, "grad_norm": "3"}},
    {"metrics": {**METRICS, "made_up": 1.0}},
    {"push_seconds": INF},
    {"metrics": [*METRICS.values()]},
    *({"episodes": [episode]} for episode in ((), EPISODE[:3], (*EPISODE, 1), "2500", None)),
    *({"episodes": [(score, *EPISODE[1:])]} for score in (NAN, INF, 1e39, "2", None, np.ones(2))),
    *({"episodes": [(2.0, length, 0.5, 0, 2.0)]} for length in (-5, 5.0, 10**30)),
    *({"episodes": [(2.0, 5, value, 0, 2.0)]} for value in (NAN, INF, None)),
    *({"episodes": [(2.0, 5, 0.5, game, 2.0)]} for game in (-1, 0.0)),
    *({"episodes": [(*EPISODE[:4], shaped)]} for shaped in (NAN, INF, None)),
    *({"faults": faults} for faults in ("crash", [1], ["x" * 41], ["Crash"], ["../x"], [""])),
    *({"reward_sums": sums} for sums in ([], [8, 0.0], "800", None)),
    *({"reward_sums": [size, 0.0, 1.0]} for size in (-1, 10**6, 8.0, NAN)),
    *(
        {"reward_sums": [8, *numbers]}
        for numbers in ((NAN, 1.0), (0.0, INF), (0.0, -1.0), ("0", 1.0), (0.0, None), (0.0, 1e61), (1e21, 1.0))
    ),
    {"rollout": {}},
    *({"gifs": [{**gif(1), name: value}]} for name in ("worker", "episode", "height", "width") for value in ("../x", -1)),
    {"gifs": [{**gif(1), "score": NAN}]},
    {"gifs": [{**gif(1), "data": b"GIF89a"}]},
    {"gifs": [{**gif(1), "data": np.zeros((2, 5), np.uint8)}]},
    {"gifs": [{**gif(1), "data": np.zeros(MAX_GIF_BYTES + 1, np.uint8)}]},
    {"gifs": [{**gif(1), "made_up": 1}]},
    {"gifs": gif(1)},
    {"made_up": 1},
]


def assert_refused(server, bad):
    """Asserts that a server refuses a push and counts nothing but the fault; returns its answer."""
    before = everything(server)
    answer = server.push("a", 1, 1, bad, -1)
    assert answer["verdict"] == "refused"
    after = everything(server)
    assert after.pop("counters") == {**before.pop("counters"), "faults": {"invalid_push": 1}}
    assert after.pop("members") == {"a": (1, 1, 1), "b": (1, 0, 0)}
    assert after.pop("hosts").keys() == {"a"}
    assert after == {name: before[name] for name in after}
    status = server.status()
    assert (status["error"], status["over"], status["lags"], status["gifs"]) == (None, False, [], [])
    return answer


def ids(parts):
    return "-".join(f"{name}={str(value)[:30]}" for name, value in parts.items())


@pytest.mark.parametrize("parts", BAD_PARTS, ids=ids)
def test_an_invalid_push_is_refused(build, parts):
    server = build(state_of(2))
    assert_refused(server, gradient_push(**parts))
    assert verdict(server, "a", 1, 2, gradient_push()) == "applied"
    assert counted(server) == (1, 2, 1)


def test_junk_in_a_push_never_breaks_the_server(build):
    server, whole, applied = build(state_of(2)), gradient_push(gifs=[gif(1)]), 0
    pushes = [*ANYTHING, *({**whole, name: anything} for name in whole for anything in ANYTHING)]
    server.enroll({f"host_{number}": 1 for number in range(len(pushes))})
    for number, push in enumerate(pushes):
        answer = verdict(server, f"host_{number}", 1, 1, push)
        assert answer in ("applied", "refused")
        applied += answer == "applied"
    assert counted(server) == (applied, 2 * applied, applied)
    assert applied == 3  # a push is still valid without a rollout or with other seconds
    assert server.status()["error"] is None


def test_junk_in_call_arguments_never_breaks_the_server(build):
    server = build(state_of(2))
    for number, anything in enumerate(ANYTHING):
        for host, generation in ((anything, 1), ("a", anything)):
            assert server.join(host, generation)["verdict"] in ("fenced", "wait")
            assert verdict(server, host, generation, 1, gradient_push()) in ("fenced", "wait")
        server.enroll({f"sequence_{number}": 1, f"version_{number}": 1})
        assert verdict(server, f"sequence_{number}", 1, anything, gradient_push()) == "refused"
        assert server.push(f"version_{number}", 1, 1, gradient_push(), anything)["verdict"] in ("refused", "applied")
    assert server.status()["error"] is None


def test_too_many_bad_pushes_fence_a_host_but_not_its_successor(build):
    server, bad = build(state_of(2)), gradient_push(metrics={})
    assert [verdict(server, "a", 1, number, bad) for number in range(1, MAX_REFUSED + 2)] == ["refused"] * MAX_REFUSED + [
        "fenced"
    ]
    assert verdict(server, "a", 1, 9, gradient_push()) == "fenced"
    assert server.join("a", 1) == {"verdict": "fenced"}
    status = server.status()
    assert status["counters"]["faults"] == {"invalid_push": MAX_REFUSED, "fenced_push": 2}
    assert len(status["refusals"]) == MAX_REFUSED
    assert all("host a" in refusal and "metrics" in refusal for refusal in status["refusals"])
    assert server.status()["refusals"] == []
    restarted = build()
    restarted.start(server.state(), {"a": 1, "b": 1})
    assert verdict(restarted, "a", 1, 10, gradient_push()) == "fenced"
    server.enroll({"a": 2})
    assert verdict(server, "a", 2, 1, gradient_push()) == "applied"
    assert verdict(server, "b", 1, 1, gradient_push()) == "applied"


def test_a_repeated_bad_push_counts_once(build):
    server = build(state_of(2))
    answers = [server.push("a", 1, 1, gradient_push(steps=-1), -1) for _ in range(2)]
    assert [answer["verdict"] for answer in answers] == ["refused", "duplicate"]
    assert "steps is -1" in answers[0]["reason"]
    assert all(answer["weights"] is not None for answer in answers)  # so that the host can play on
    assert server.progress.faults == {"invalid_push": 1}


def test_a_lost_hosts_bad_push_is_not_charged_to_its_successor(build):
    server = build(state_of(2))
    server.enroll({"a": 2})
    assert verdict(server, "a", 1, 1, None) == "fenced"
    assert server.state()["members"]["a"] == (2, 0, 0)


def test_a_valid_gif_is_accepted(build):
    server = build(state_of(2), gif_limiter=RateLimiter(0.0))
    writer = GifWriter(10.0)
    for shade in (0, 99):
        writer.add(np.full((20, 30, 3), shade, np.uint8))
    sent = Gif(np.frombuffer(writer.finish(), np.uint8), 20, 30, -3.5, 7, 1)._asdict()
    assert verdict(server, "a", 1, 1, gradient_push(gifs=[sent])) == "applied"
    assert len(server.status()["gifs"]) == 1


def test_endless_new_fault_names_do_not_fill_the_counters(build):
    server = build(state_of(2))
    for number in range(MAX_KINDS + 50):
        assert verdict(server, "a", 1, number + 1, gradient_push(number, faults=[f"fault_{number}"])) == "applied"
    faults = server.status()["counters"]["faults"]
    assert len(faults) == MAX_KINDS + 1
    assert faults["other"] == 50


def changed_rollout(**parts):
    [push] = rollout_pushes(1)
    return {
        **push,
        "rollout": {**push["rollout"], **{name: change(push["rollout"][name]) for name, change in parts.items()}},
    }


def put(value, at=-1):
    """Returns a function that copies an array and replaces one of its numbers."""

    def change(array):
        array = array.copy()
        array.flat[at] = value
        return array

    return change


FLOATS = ("resets", "rewards", "discounts", "values", "next_values", "log_probs")
BAD_ARRAYS = [
    *({name: put(value)} for name in FLOATS for value in (NAN, INF)),
    *({name: lambda array: array[:-1]} for name in ("observations", "resets", "actions", "rewards", "ends")),
    *({name: lambda array: array[:, :1]} for name in ("observations", "resets", "actions", "rewards", "ends")),
    *({name: lambda array: array.astype(np.float64)} for name in ("observations", "actions", "ends", *FLOATS)),
    *({name: lambda array: array.tolist()} for name in ("observations", "actions", "ends", *FLOATS)),
    *({name: lambda array: None} for name in ("observations", "actions", "core_state")),
    {"actions": put(3)},  # of 3 actions
    {"actions": put(-1)},
    {"core_state": lambda state: ()},
    {"core_state": list},
    {"core_state": lambda state: (state[0], put(NAN)(state[1]))},
    {"core_state": lambda state: (state[0][:1], state[1][:1])},
    {"observations": lambda array: array[..., 0]},
    {"observations": lambda array: {"pixels": array}},
]


@pytest.mark.parametrize("parts", BAD_ARRAYS, ids="-".join)
def test_an_invalid_rollout_is_refused(build, parts):
    server = build(state_of(2), transport="rollouts", queue_size=1)
    assert_refused(server, changed_rollout(**parts))
    [good] = rollout_pushes(1)
    assert verdict(server, "a", 1, 2, good) == "applied"
    until(lambda: counted(server) == (1, 2, 1))


@pytest.mark.parametrize(
    "parts",
    [
        {"rollout": None},
        {"rollout": 1},
        {"steps": 16, "frames": 48},
        {"not_finite": 1},
        {"metrics": METRICS},
    ],
    ids=ids,
)
def test_a_rollout_push_with_the_wrong_parts_is_refused(build, parts):
    server, [push] = build(state_of(2), transport="rollouts"), rollout_pushes(1)
    assert_refused(server, {**push, **parts})
    assert_refused(
        build(state_of(2), transport="rollouts"), {**push, "rollout": {**push["rollout"], "made_up": np.ones(2)}}
    )
    assert_refused(build(state_of(2)), push)  # to a server that expects gradients
    assert_refused(build(state_of(2), transport="rollouts"), gradient_push())
