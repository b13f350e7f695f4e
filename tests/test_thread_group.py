"""The threads of an engine: when one ends all do, and the first error is kept."""

import threading

import pytest
from fakes import until

from doom_a3c.engines.channel import Channel
from doom_a3c.engines.thread_group import ClosedError, ThreadGroup


@pytest.fixture
def group():
    """Makes groups whose loops wait for the event `stop` by default; ends them even if the test fails."""
    made = []

    def make(stop, unblock=lambda: None, **loops):
        loops = {name: loop or (lambda: stop.wait(30)) for name, loop in loops.items()}
        made.append((ThreadGroup(loops, stop.set, unblock), stop))
        return made[-1][0]

    yield make
    for one, stop in made:
        stop.set()
        until(lambda one=one: one.alive() == [])


def closed():
    raise ClosedError


def failed():
    raise RuntimeError("a loop failed")


@pytest.mark.parametrize("end", [lambda: None, closed, failed])
def test_when_one_loop_ends_all_are_stopped(group, end):
    stop, go_on = threading.Event(), threading.Event()
    threads = group(stop, first=None, second=lambda: go_on.wait(30) and end(), third=None)
    threads.start()
    assert threads.alive() == ["first", "second", "third"]
    assert not stop.is_set()
    go_on.set()
    until(lambda: threads.alive() == [])
    assert stop.is_set()


def test_a_closed_channel_ends_a_loop_without_error(group):
    channel, stop = Channel(1), threading.Event()
    threads = group(stop, waiting=lambda: channel.take(1, 1))
    threads.start()
    channel.close()
    until(lambda: threads.alive() == [])
    threads.check()
    assert threads.error is None


def test_only_the_first_error_is_kept(group):
    stop = threading.Event()

    def follow():
        stop.wait(30)
        raise OSError("the game is gone")

    threads = group(stop, first=follow, second=failed)
    threads.start()
    until(lambda: threads.alive() == [])
    for _ in range(2):
        with pytest.raises(RuntimeError, match="a loop failed") as raised:
            threads.check()
    assert "failed" in [entry.name for entry in raised.traceback]


def test_a_system_exit_is_raised_too(group):
    def leave():
        raise SystemExit(3)

    threads = group(threading.Event(), leaving=leave)
    threads.start()
    until(lambda: threads.alive() == [])
    with pytest.raises(SystemExit):
        threads.check()


def test_only_hanging_loops_are_unblocked(group):
    stop, unblocked, release = threading.Event(), threading.Event(), threading.Event()
    threads = group(stop, unblocked.set, prompt=None)
    threads.start()
    threads.stop()
    assert threads.alive() == []
    assert not unblocked.is_set()
    threads = group(stop, release.set, hanging=lambda: release.wait(30))
    threads.start()
    threads.stop(patience=0.1)
    assert threads.alive() == []
    assert release.is_set()
    threads.check()


def test_stopping_before_the_start_or_twice_is_harmless(group):
    stop = threading.Event()
    threads = group(stop, one=None)
    threads.stop()
    assert stop.is_set()
    threads.start()
    for _ in range(2):
        threads.stop()
    assert threads.alive() == []
    threads.check()
