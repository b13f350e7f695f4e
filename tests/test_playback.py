"""Playing into a folder: which films are kept, and that earlier results stay untouched."""

import errno
import itertools
import json
import multiprocessing
import os
from pathlib import Path

import gymnasium
import imageio.v3 as imageio
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

import doom_a3c as dc
from doom_a3c.cli import play
from doom_a3c.record.files import claim_empty_folder
from doom_a3c.record.films import films
from doom_a3c.run.play import recordings
from doom_a3c.run.play.playback import Playback
from doom_a3c.run.play.recordings import pick_shown
from doom_a3c.settings.errors import UserError
from doom_a3c.settings.playing import PlaySettings

SHORT = {"policy": "sample", "epsilon": 1.0, "random_episodes": 2}  # episodes of some twenty steps


@pytest.fixture(scope="module")
def agent():
    return dc.load("cartpole")


def list_files(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_best_median_and_worst_episodes_are_picked():
    assert pick_shown({}) == {}
    assert pick_shown({4: 1.0}) == {4: "best"}
    assert pick_shown({0: 1.0, 1: 2.0}) == {1: "best", 0: "worst"}
    assert list(pick_shown({0: 5.0, 1: 9.0, 2: 1.0, 3: 6.0, 4: 2.0}).items()) == [(1, "best"), (0, "median"), (2, "worst")]
    assert len(pick_shown(dict.fromkeys(range(10), 2100.0))) == 3


@pytest.mark.parametrize("recorded", [10, 2], ids=["recorded while they play", "played again"])
def test_films_of_best_median_and_worst_episodes_are_kept(agent, tmp_path, monkeypatch, recorded):
    monkeypatch.setattr(recordings, "RECORDED", recorded)
    results = agent.play(tmp_path, episodes=7, seed=3, **SHORT)
    shown = pick_shown(dict(enumerate(results.scores)))
    assert len(shown) == 3
    assert max(shown) > 1  # none of the first two
    names = [f"episode_{index:03d}.{kind}" for index in sorted(shown) for kind in ("gif", "mp4")]
    assert sorted(path.name for path in tmp_path.glob("episode*")) == names
    assert json.loads((tmp_path / "summary.json").read_text())["recordings"] == names
    for index in shown:
        film = imageio.immeta(tmp_path / f"episode_{index:03d}.mp4", plugin="FFMPEG")
        assert film["duration"] == pytest.approx((results.played[index].episode.length + 1) / 50 + 0.5, abs=0.05)
    page = (tmp_path / "index.html").read_text()
    assert [page.count(f"<figcaption>{word}: score {results.scores[index]:.1f}<") for index, word in shown.items()] == [
        1
    ] * 3


def test_record_episodes_keeps_films_of_the_first_episodes(agent, tmp_path):
    for count, names in ((0, []), (1, ["episode_000.gif", "episode_000.mp4"])):
        results = agent.play(tmp_path, episodes=3, record_episodes=count, **SHORT)
        assert sorted(path.name for path in results.folder.glob("episode*")) == names
    assert "best recorded: score" in (results.folder / "index.html").read_text()
    assert repr(results).startswith(f"<Results of 3 episodes of {results.scenario}, {results.policy} policy: mean score ")
    assert str(results.folder) in repr(results)


class Drifting(CartPoleEnv):
    """A game that is not determined by its seed."""

    starts = itertools.count(1)

    def reset(self, **options):
        observation, infos = super().reset(**options)
        self.pay = float(next(self.starts))
        return observation, infos

    def step(self, action):
        observation, _, terminated, truncated, infos = super().step(action)
        return observation, self.pay, terminated, truncated, infos


def test_a_replay_with_another_score_gives_no_film(tmp_path, monkeypatch):
    monkeypatch.setattr(recordings, "RECORDED", 2)
    gymnasium.register("Drifting-v0", Drifting, max_episode_steps=50)
    agent = dc.load("cartpole", scenario="Drifting-v0")
    with pytest.warns(RuntimeWarning, match=r"no film of episode \d: played again .* it scores"):
        agent.play(tmp_path, episodes=5, **SHORT)
    films = sorted(path.name for path in tmp_path.glob("*.mp4"))
    assert films == ["episode_000.mp4", "episode_001.mp4"]
    assert "best recorded: score" in (tmp_path / "index.html").read_text()


def test_the_page_cuts_a_long_film_and_links_the_whole_one(agent, tmp_path, monkeypatch):
    monkeypatch.setattr(recordings, "cut_clip", lambda film: recordings.Clip(b"clip", 20.0, 60.2))
    agent.play(tmp_path, episodes=1, **SHORT)
    page = (tmp_path / "index.html").read_text()
    assert 'first 20 s of 60; whole: <a href="episode_000.mp4">episode_000.mp4</a>' in page


def test_a_second_call_keeps_the_files_of_the_first(agent, tmp_path):
    folders, before = [], {}
    for _ in range(3):
        folders.append(agent.play(tmp_path / "result", episodes=2, **SHORT).folder)
        assert {name: data for name, data in list_files(tmp_path).items() if name in before} == before
        before = list_files(tmp_path)
    assert folders == [tmp_path / "result" / name for name in ("", "2", "3")]
    assert [sorted(path.name for path in folder.glob("*.html")) for folder in folders] == [["index.html"]] * 3


@pytest.mark.parametrize("played", [0, 2])
def test_an_interrupted_playback_keeps_finished_episodes(agent, tmp_path, played):
    def on_step(index, steps):
        if (index, steps) == (played, 5):
            playback.interrupt()

    settings = PlaySettings(episodes=9, **SHORT)
    with Playback(agent, settings, tmp_path, on_step=on_step) as playback, pytest.raises(KeyboardInterrupt):
        playback.run("test")
    assert len(list(tmp_path.glob("*.mp4"))) == played  # none of the unfinished one
    assert (tmp_path / "index.html").exists() == (played > 0)
    assert ("episode 3 of 9" in playback.shortfall) == (played > 0)


def test_an_interrupt_while_making_gifs_keeps_the_page_whole(agent, tmp_path, monkeypatch):
    def make_gif(film):
        playback.interrupt()
        return recordings.Clip(b"GIF89a", 1.0, 1.0)

    monkeypatch.setattr(recordings, "make_gif", make_gif)
    with Playback(agent, PlaySettings(episodes=4, **SHORT), tmp_path) as playback, pytest.raises(KeyboardInterrupt):
        playback.run("test")
    recorded = json.loads((tmp_path / "summary.json").read_text())["recordings"]
    assert [name.endswith(".gif") for name in recorded].count(True) == 1
    assert sorted(path.name for path in tmp_path.glob("episode*")) == recorded
    assert (tmp_path / "index.html").read_text().count("<video") == 3


def fill_disk(monkeypatch, has_room):
    """Fails writes as on a full disk unless `has_room` accepts a file's path and contents."""
    write_bytes = Path.write_bytes

    def write(path, data):
        target = path.with_name(path.name.removeprefix(".").removesuffix(".part"))
        if not has_room(target, data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_bytes(path, data)

    monkeypatch.setattr(Path, "write_bytes", write)


ALL = {"index.html", "scores.csv", "scores.png", "summary.json", "episode_000.mp4", "episode_001.mp4"}


@pytest.mark.parametrize(
    ("has_room", "left", "shown"),
    [
        (lambda path, data: path.suffix != ".gif", ALL, 2),
        (lambda path, data: path.name != "episode_001.gif", ALL | {"episode_000.gif"}, 2),
        (lambda path, data: path.name != "scores.png", ALL - {"scores.png"} | {"episode_000.gif", "episode_001.gif"}, 2),
        (lambda path, data: path.suffix not in (".gif", ".html"), ALL - {"index.html"}, 0),
        (
            lambda path, data: path.suffix != ".html" or b"<video" not in data,
            ALL | {"episode_000.gif", "episode_001.gif"},
            0,
        ),
        (
            lambda path, data: path.suffix == ".csv" and not list(path.parent.glob("*.mp4")),
            {"scores.csv"},
            0,
        ),
    ],
    ids=["no gif", "one gif", "no figure", "no page", "a page without films", "scores instead of films"],
)
def test_on_a_full_disk_scores_come_first_and_films_last(agent, tmp_path, monkeypatch, capsys, has_room, left, shown):
    monkeypatch.chdir(tmp_path)
    fill_disk(monkeypatch, has_room)
    arguments = ["--model", "cartpole", "--out", "out", "--episodes", "2", "--random-episodes", "0"]
    assert play.main([*arguments, "--epsilon", "1"]) == 1
    output, errors = capsys.readouterr()
    assert "mean " in output
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == left
    assert "could not be written: No space left on device" in errors
    named = errors.split(" could not be written")[0].rpartition("/")[2]
    assert named not in written
    seen = output.splitlines()[-1]
    assert {name for name in ALL if name in seen} == {name for name in written if not name.startswith("episode")}
    page = tmp_path / "out" / "index.html"
    assert (page.read_text().count("<video") if page.exists() else 0) == output.count("on the page") == shown
    if (tmp_path / "out" / "summary.json").exists():
        recorded = json.loads((tmp_path / "out" / "summary.json").read_text())["recordings"]
        assert set(recorded) == {name for name in written if name.startswith("episode")}


def test_an_episode_is_played_even_if_its_film_fails(agent, tmp_path, monkeypatch):
    add = films.VideoWriter.add

    def fail(writer, picture):
        if writer._path.name == "episode_001.mp4":
            raise OSError(errno.EPIPE, "ffmpeg has failed", str(writer._path))
        add(writer, picture)

    whole = agent.play(tmp_path / "whole", episodes=3, **SHORT)
    monkeypatch.setattr(films.VideoWriter, "add", fail)
    with pytest.raises(OSError, match="ffmpeg has failed"):
        agent.play(tmp_path / "full", episodes=3, **SHORT)
    assert [path.name for path in (tmp_path / "full").glob("*.mp4")] == ["episode_000.mp4"]
    assert json.loads((tmp_path / "full" / "summary.json").read_text())["scores"] == whole.scores


def test_a_truncated_film_is_removed(agent, tmp_path, monkeypatch):
    close = films.VideoWriter.__exit__

    def cut_off(writer, *error):
        close(writer, *error)
        writer._path.write_bytes(writer._path.read_bytes()[:1000])

    monkeypatch.setattr(films.VideoWriter, "__exit__", cut_off)
    with pytest.raises(OSError, match=r"episode_00\d.mp4"):
        agent.play(tmp_path, episodes=2, **SHORT)
    assert {path.name for path in tmp_path.iterdir()} == {name for name in ALL if not name.startswith("episode")}


def test_a_comparison_is_printed_even_on_a_full_disk(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    fill_disk(monkeypatch, lambda path, data: False)
    assert play.main(["--compare", "cartpole", "cartpole", "--out", "out", "--episodes", "2", "--epsilon", "1"]) == 1
    output, errors = capsys.readouterr()
    assert output.count("  mean ") == 2
    assert "comparison.csv could not be written" in errors


def claim(folder, answers, done):
    with claim_empty_folder(str(folder), "--out") as claimed:
        answers.put(claimed)
        done.wait()


def test_used_or_claimed_folders_are_skipped(tmp_path):
    with claim_empty_folder(str(tmp_path / "out"), "--out") as first:
        assert first == tmp_path / "out"
        context = multiprocessing.get_context("fork")
        answers, done = context.Queue(), context.Event()
        other = context.Process(target=claim, args=(first, answers, done))
        other.start()
        assert answers.get(timeout=30) == first / "2"  # the first is still empty, but claimed
    with claim_empty_folder(str(first), "--out") as third:
        assert third == first / "3"
    done.set()
    other.join()
    (first / "2").rmdir()
    (first / "2").write_text("a file")
    (first / "3" / ".hidden").touch()
    with claim_empty_folder(str(first), "--out") as fourth:
        assert fourth == first / "4"
    with claim_empty_folder(str(first), "--out") as again:  # nothing was written to it
        assert again == fourth
    with pytest.raises(UserError, match=r"--out .*it is a file"), claim_empty_folder(str(first / "2"), "--out"):
        pass
    assert sorted(os.listdir(first)) == ["2", "3", "4"]
