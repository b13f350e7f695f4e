"""Channels between threads: order, blocking on either side, and closing."""

import itertools

import pytest
from fakes import caught, waits

from doom_a3c.engines.channel import Channel
from doom_a3c.engines.thread_group import ClosedError


def test_take_keeps_the_order_and_returns_at_most_high_items():
    channel = Channel(10)
    for item in range(5):
        channel.put(item)
    assert len(channel) == 5
    assert channel.take(1, 3) == [0, 1, 2]
    assert channel.take(1, 9) == [3, 4]
    assert len(channel) == 0


def test_put_waits_for_room():
    channel = Channel(2)
    channel.put(0)
    channel.put(1)
    thread, results = caught(channel.put, 2)
    assert waits(thread)
    assert len(channel) == 2
    assert channel.take(1, 1) == [0]
    thread.join(10)
    assert results == [None]
    assert channel.take(1, 3) == [1, 2]


def test_take_waits_for_low_items():
    channel = Channel(5)
    channel.put(0)
    thread, results = caught(channel.take, 3, 4)
    channel.put(1)
    assert waits(thread)
    channel.put(2)
    thread.join(10)
    assert results == [[0, 1, 2]]


def test_offer_never_waits_and_returns_whether_it_succeeded():
    channel = Channel(1)
    assert channel.offer(0)
    assert not channel.offer(1)
    assert channel.take(1, 1) == [0]
    assert channel.offer(2)
    channel.close()
    assert not channel.offer(3)


def test_wait_for_room_ends_on_room_closing_or_timeout():
    channel = Channel(1)
    channel.wait_for_room(60.0)  # there is room already
    channel.put(0)
    channel.wait_for_room(0.01)
    thread, _ = caught(channel.wait_for_room, 60.0)
    assert waits(thread)
    channel.take(1, 1)
    thread.join(10)
    assert not thread.is_alive()
    channel.put(1)
    thread, _ = caught(channel.wait_for_room, 60.0)
    assert waits(thread)
    channel.close()
    thread.join(10)
    assert not thread.is_alive()


def test_closing_wakes_everyone_on_either_side():
    full, short = Channel(1), Channel(5)
    full.put(0)
    short.put(0)
    waiting = [caught(full.put, 1), caught(full.put, 2), caught(short.take, 2, 2), caught(short.take, 3, 3)]
    assert all(waits(thread) for thread, _ in waiting)
    full.close()
    short.close()
    for thread, results in waiting:
        thread.join(10)
        assert [type(result) for result in results] == [ClosedError]


def test_a_closed_channel_raises_on_put_and_take():
    channel = Channel(5)
    channel.put(0)
    channel.close()
    channel.close()
    with pytest.raises(ClosedError):
        channel.put(1)
    with pytest.raises(ClosedError):
        channel.take(1, 1)


def test_many_threads_lose_and_duplicate_nothing():
    channel = Channel(3)

    def put(start):
        for item in range(start, start + 300):
            channel.put(item)

    def take():
        return [item for _ in range(200) for item in channel.take(1, 1)]

    putters, takers = [caught(put, 300 * i) for i in range(4)], [caught(take) for _ in range(6)]
    for thread, _ in (*putters, *takers):
        thread.join(30)
    taken = [results[0] for _, results in takers]
    assert sorted(itertools.chain(*taken)) == list(range(1200))
    for items in taken:
        for start in range(0, 1200, 300):  # each taker gets any one putter's items in order
            mine = [item for item in items if start <= item < start + 300]
            assert mine == sorted(mine)
