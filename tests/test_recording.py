"""Recordings: the recorded episodes, their first and last pictures, and their films."""

import errno
import io
import operator
import threading
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import pytest
from gymnasium.vector import VectorEnv
from PIL import Image, ImageSequence

from doom_a3c.record.films import films, gif_writer, gifs, recording
from doom_a3c.record.films.films import VideoWriter
from doom_a3c.record.films.gif_writer import GifWriter
from doom_a3c.record.films.gifs import Gif, GifFolder, GifMaker
from doom_a3c.record.films.recording import EpisodeRecorder, Recording
from doom_a3c.record.metrics.rate_limiter import RateLimiter

PICTURES = operator.attrgetter("pictures")


class Slides(VectorEnv):
    """Two games that show their step's number and end after three and four steps."""

    num_envs, render_mode = 2, "rgb_array"

    def __init__(self):
        self.times = [0, 0]

    def picture(self, final=False):
        return np.full((2, 2, 3), 99 if final else self.times[0], np.uint8)

    def reset(self, *, seed=None, options=None):
        self.times = [0, 0]
        return None, {}

    def step(self, actions):
        self.times = [time + 1 for time in self.times]
        ended = np.array([time == limit for time, limit in zip(self.times, (3, 4), strict=True)])
        self.times = [0 if end else time for time, end in zip(self.times, ended, strict=True)]
        return None, np.array([1.0, 5.0]), ended, np.zeros(2, bool), {}


def play(env, *arguments, steps=12, view=lambda step: None, **options):
    """Returns the recordings of some steps; each action is its step's number."""
    recordings = []
    recorder = EpisodeRecorder(env, 7, *arguments, recordings.append, **options)
    recorder.begin(*env.reset())
    for step in range(steps):
        observations, rewards, terminated, truncated, infos = env.step(np.array([step, 0]))
        ended = bool(terminated[0] or truncated[0])
        recorder.add(step, float(rewards[0]), ended, view(step) if recorder.wants_view(ended) else None)
        if ended:
            recorder.begin(observations, infos)
    return recordings


def recorded(every, limiter):
    return play(Slides(), every, limiter)


def test_every_nth_episode_of_the_first_game_is_recorded():
    recordings = recorded(2, RateLimiter(0))
    assert [(one.episode, one.score, one.worker) for one in recordings] == [(0, 3.0, 7), (2, 3.0, 7)]
    assert [picture[0, 0, 0] for picture in recordings[1].pictures] == [0, 1, 2, 99]


class Seeds(Slides):
    """The same, with episode seeds 7, 8, 9 and so on."""

    seed = 6

    def make_infos(self, ended):
        self.seed += ended
        return {"seed": np.array([self.seed, 0])} if ended else {}

    def reset(self, *, seed=None, options=None):
        return super().reset()[0], self.make_infos(True)

    def step(self, actions):
        *result, _ = super().step(actions)
        return *result, self.make_infos(result[2][0])


def test_replayed_games_are_recorded_by_seed_and_actions():
    recordings = play(Seeds(), 2, RateLimiter(0), replayed=True)
    assert [(one.episode, one.score, one.seed, one.actions) for one in recordings] == [
        (0, 3.0, 7, [0, 1, 2]),
        (2, 3.0, 9, [6, 7, 8]),
    ]
    assert not any(one.pictures for one in recordings)


@pytest.mark.parametrize("infos", [{}, {"seed": np.array([0, 5]), "_seed": np.array([False, True])}])
def test_an_episode_without_a_seed_is_not_recorded(infos):
    class Lost(Seeds):
        """Its server is gone from the third episode on."""

        def make_infos(self, ended):
            known = super().make_infos(ended)
            return infos if ended and self.seed > 8 else known

    recordings = play(Lost(), 1, RateLimiter(0), replayed=True)
    assert [one.seed for one in recordings] == [7, 8]


def test_step_views_are_kept_with_their_recording():
    recordings = play(Slides(), 2, RateLimiter(0), view=lambda step: step)
    assert [one.views for one in recordings] == [[0, 1, 2], [6, 7, 8]]


def test_the_limiter_prevents_recordings():
    limiter = RateLimiter(1e9)
    assert [one.episode for one in recorded(1, limiter)] == [0]
    assert recorded(1, limiter) == []  # another worker has used it up
    assert recorded(0, RateLimiter(0)) == []


def test_only_the_newest_gifs_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(gifs, "KEPT_GIFS", 3)
    lines, done = [], threading.Semaphore(0)
    folder = GifFolder(tmp_path, lines.append)

    def made(gif):
        folder.add(gif)
        done.release()

    maker = GifMaker(PICTURES, 10.0, made)
    for episode in range(6):
        maker.add(Recording([np.full((4, 4, 3), value, np.uint8) for value in (0, 255)], 1.0, episode, 0))
        assert done.acquire(timeout=30)
    maker.close()
    assert sorted(path.name[:24] for path in tmp_path.iterdir()) == [f"worker_0-episode_000000{n}" for n in (3, 4, 5)]
    assert lines == []


def test_queued_recordings_become_gifs_and_others_are_dropped():
    released, finished = threading.Event(), []

    def made(gif):
        assert released.wait(30)
        finished.append(gif)

    maker = GifMaker(PICTURES, 10.0, made)
    pictures = [np.full((4, 6, 3), value, np.uint8) for value in (0, 255)]
    for episode in range(9):
        maker.add(Recording(pictures, 1.0, episode, 3))
    released.set()
    maker.close(30.0)
    episodes = [gif.episode for gif in finished]
    assert episodes in ([0, 1, 2, 3], [0, 1, 2, 3, 4])  # four wait, and one may be in progress
    assert {(gif.height, gif.width, gif.score, gif.worker) for gif in finished} == {(4, 6, 1.0, 3)}
    assert imageio.imread(finished[0].data, extension=".gif", index=None).shape == (2, 4, 6, 3)


def test_a_failed_gif_is_reported_and_the_next_one_made():
    finished, errors, done = [], [], threading.Semaphore(0)

    def made(gif):
        finished.append(gif.episode)
        done.release()

    maker = GifMaker(PICTURES, 10.0, made, errors.append)
    whole = [np.full((4, 6, 3), value, np.uint8) for value in (0, 255)]
    maker.add(Recording([whole[0], np.zeros((5, 6, 3), np.uint8)], 1.0, 0, 3))
    maker.add(Recording(whole, 1.0, 1, 3))
    assert done.acquire(timeout=30)
    maker.close()
    assert finished == [1]
    assert [type(error) for error in errors] == [ValueError]


def test_pictures_of_other_sizes_are_fitted_to_the_film(tmp_path):
    with VideoWriter(tmp_path / "film.mp4", 10.0) as film:
        for size in ((32, 48, 3), (64, 20, 3), (33, 47, 3)):
            film.add(np.full(size, 100, np.uint8))
    assert imageio.imread(tmp_path / "film.mp4", index=None).shape[1:] == (32, 48, 3)


@pytest.mark.parametrize(("size", "even"), [((33, 31), (34, 32)), ((1, 1), (2, 2)), ((3, 4), (4, 4)), ((6, 5), (6, 6))])
def test_a_film_with_odd_sides_is_written_without_a_warning(tmp_path, caplog, size, even):
    picture = np.arange(3 * size[0] * size[1]).astype(np.uint8).reshape(*size, 3)
    with VideoWriter(tmp_path / "film.mp4", 10.0) as film:
        film.add(picture)
    assert imageio.imread(tmp_path / "film.mp4", index=None).shape[1:] == (*even, 3)
    assert imageio.imread(films.make_gif(tmp_path / "film.mp4").data, extension=".gif", index=None).shape[1:] == (*even, 3)
    assert caplog.messages == []


def test_an_unwritable_gif_gives_a_warning(tmp_path):
    (tmp_path / "file").touch()
    lines = []
    GifFolder(tmp_path / "file", lines.append).add(Gif(b"GIF89a", 2, 3, 1.0, 0, 0))
    assert [line.partition(":")[0] for line in lines] == ["warning"]


def gif_of(pictures, rate):
    """Returns the pictures of a gif and their durations in milliseconds."""
    writer = GifWriter(rate)
    for picture in pictures:
        writer.add(picture)
    with Image.open(io.BytesIO(writer.finish())) as gif:
        assert gif.info["loop"] == 0
        return zip(
            *((np.array(each.convert("RGB")), each.info["duration"]) for each in ImageSequence.Iterator(gif)), strict=True
        )


def test_a_single_picture_makes_a_gif_and_a_film(tmp_path):
    pictures, durations = gif_of([np.full((32, 48, 3), 100, np.uint8)], 10.0)
    assert (len(pictures), durations) == (1, (500,))
    with VideoWriter(tmp_path / "film.mp4", 10.0) as film:
        film.add(pictures[0])
    with Image.open(io.BytesIO(films.make_gif(tmp_path / "film.mp4").data)) as gif:
        assert gif.n_frames == 1


def test_a_gif_of_large_pictures_skips_some():
    pictures, _ = gif_of([np.full((480, 960, 3), 10 * value, np.uint8) for value in range(14)], 35.0)
    assert [picture[16, 24, 0] for picture in pictures] == [0, 60, 130]  # every sixth, and the last one


def test_a_full_gif_still_ends_with_the_last_picture(monkeypatch):
    monkeypatch.setattr(gif_writer, "MAX_PICTURES", 4)
    pictures, _ = gif_of([np.full((32, 48, 3), value, np.uint8) for value in range(0, 250, 25)], 10.0)
    assert [picture[16, 24, 0] for picture in pictures] == [0, 25, 50, 225]


def film_noise(path, seconds, rate=35.0, size=(240, 320, 3)):
    """Films noise, which takes the most room."""
    random = np.random.default_rng(0)
    with VideoWriter(path, rate) as film:
        for _ in range(round(seconds * rate)):
            film.add(random.integers(256, size=size).astype(np.uint8))


def test_clips_and_gifs_say_how_much_of_the_film_they_show(tmp_path, monkeypatch):
    monkeypatch.setattr(gif_writer, "MAX_PICTURES", 4)
    monkeypatch.setattr(films, "CLIP_SECONDS", 1)
    path = tmp_path / "film.mp4"
    with VideoWriter(path, 10.0) as film:
        for value in range(0, 250, 12):
            film.add(np.full((32, 48, 3), value, np.uint8))
    video = imageio.imread(path, index=None)
    np.testing.assert_allclose(video[:, 16, 24, 0], [*range(0, 250, 12), *[240] * 5], atol=6)  # held for half a second more
    clip, gif = films.cut_clip(path), films.make_gif(path)
    assert [clip.extent, gif.extent] == ["first 1 s of 2", "first 0 s of 2"]
    shown = imageio.imread(clip.data, extension=".mp4", index=None)
    assert 10 <= len(shown) <= 12  # encoded pictures refer to later ones
    np.testing.assert_array_equal(shown, video[: len(shown)])
    np.testing.assert_allclose(
        imageio.imread(gif.data, extension=".gif", index=None)[:, 16, 24, 0], [0, 12, 24, 36], atol=6
    )
    monkeypatch.setattr(films, "CLIP_SECONDS", 3)
    assert films.cut_clip(path).data == path.read_bytes()
    assert films.cut_clip(path).extent == "whole"
    assert list(tmp_path.iterdir()) == [path]


def test_films_gifs_and_clips_stay_small(tmp_path, monkeypatch):
    monkeypatch.setattr(films, "CLIP_BYTES", 300_000)
    monkeypatch.setattr(gif_writer, "MAX_BYTES", 300_000)
    path = tmp_path / "film.mp4"
    film_noise(path, 5.0)
    size = path.stat().st_size
    assert size < 1_000_000 * films.MEGABYTES_PER_MINUTE * 5.5 / 60 + 150_000
    clip, gif = films.cut_clip(path), films.make_gif(path)
    assert 250_000 < len(clip.data) < 300_000 + 262_144  # ffmpeg may exceed the limit by its buffer
    assert clip.seconds == pytest.approx(5.5 * len(clip.data) / size, rel=0.4)
    assert len(gif.data) < 300_000 + 2 * 77_000
    assert all(part.is_cut for part in (clip, gif))
    assert imageio.imread(gif.data, extension=".gif", index=None).shape[1:] == (240, 320, 3)


def test_recorded_pictures_are_limited_but_include_the_last(monkeypatch):
    monkeypatch.setattr(recording, "MAX_PICTURES", 2)
    (one, _) = recorded(2, RateLimiter(0))
    assert [picture[0, 0, 0] for picture in one.pictures] == [0, 1, 99]  # always the last one


def test_a_film_without_pictures_makes_no_file(tmp_path):
    with VideoWriter(tmp_path / "film.mp4", 10.0):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("rate", [8.75, 10.0, 15.0, 35.0, 50.0, 60.0, 240.0])
def test_a_gif_keeps_the_games_speed_and_holds_the_last_picture(rate):
    count = 71
    pictures, durations = gif_of([np.full((4, 4, 3), 3 * value, np.uint8) for value in range(count)], rate)
    chosen = [int(picture[0, 0, 0]) // 3 for picture in pictures]
    assert min(durations) >= 20  # browsers slow anything faster down
    assert (chosen[0], chosen[-1]) == (0, count - 1)
    starts = np.cumsum([0, *durations[:-1]])
    np.testing.assert_allclose(starts[:-1], [1000 * index / rate for index in chosen[:-1]], atol=5.01)
    assert durations[-1] == 500


def test_identical_pictures_are_merged_into_one_longer():
    scene = np.random.default_rng(0).integers(4, size=(20, 30, 3)).astype(np.uint8) * 80
    moved = scene.copy()
    moved[5:7, 8:12] = 255
    pictures, durations = gif_of([scene, scene, moved, moved, moved, scene, scene], 10.0)
    assert durations == (200, 300, 600)
    for shown, drawn in zip(pictures, (scene, moved, scene), strict=True):
        np.testing.assert_array_equal(shown, drawn)


@pytest.mark.parametrize("seconds", [599, 600, 601, 1300])
def test_a_picture_may_outlast_a_gifs_longest_duration(seconds):
    still = [np.zeros((4, 4, 3), np.uint8)] * (2 * seconds)
    pictures, durations = gif_of([*still, np.full((4, 4, 3), 200, np.uint8)], 2.0)
    assert (sum(durations[:-1]), durations[-1]) == (1000 * seconds, 500)
    assert [int(picture.max()) for picture in pictures] == [0] * (len(durations) - 1) + [200]


def test_the_last_picture_is_never_skipped():
    pictures, durations = gif_of([np.full((4, 4, 3), value, np.uint8) for value in [9] * 15 + [200]], 100.0)
    assert [int(picture[0, 0, 0]) for picture in pictures] == [9, 200]
    assert durations == (100, 500)


def test_films_are_joined_in_order(tmp_path):
    paths = [tmp_path / f"film it's {value}.mp4" for value in (0, 200)]
    for value, path in zip((0, 200), paths, strict=True):
        with VideoWriter(path, 10.0) as film:
            for _ in range(3):
                film.add(np.full((32, 48, 3), value, np.uint8))
    films.join_films(paths, tmp_path / "all.mp4")
    video = imageio.imread(tmp_path / "all.mp4", index=None)
    np.testing.assert_allclose(video[:, 16, 24, 0], [0] * 8 + [200] * 8, atol=6)
    assert len(list(tmp_path.iterdir())) == 3
    with pytest.raises(OSError, match=r"all\.mp4"):
        films.join_films([tmp_path / "none.mp4"], tmp_path / "all.mp4")
    assert not (tmp_path / "all.mp4").exists()


def test_a_full_disk_leaves_no_temporary_list_behind(tmp_path, monkeypatch):
    def full(path, data):
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*all\."):
        films.join_films([tmp_path / "one.mp4"], tmp_path / "all.mp4")
    assert list(tmp_path.iterdir()) == []
