"""A full run of train.py on real ViZDoom, the files it leaves behind, and play.py with them."""

import base64
import csv
import errno
import json
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import imageio.v3 as imageio
import numpy as np
import pytest
from commands import ROOT, SMALL, Running, RunningAnew, call, play, train
from fakes import until

from benchmarks.common.processes import engines, family, kill, left_over
from doom_a3c.cli import command
from doom_a3c.run.checkpoints.checkpoint import load, save
from doom_a3c.settings.playing import PlaySettings


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder and the output of a finished short run of basic."""
    folder = tmp_path_factory.mktemp("trained")
    result = train(folder, "--frames", 4000, "--summary", "summary.json", "--seed", 3)
    assert result.returncode == 0, result.stderr
    return folder, result


@pytest.fixture(scope="module")
def brief(trained, tmp_path_factory):
    """That run's checkpoint with episodes of only 20 decisions, where the content of films does not matter."""
    variables, record = load(trained[0] / "models" / "last.ckpt")
    game = record.scenario.game
    game = replace(game, settings={**game.settings, "episode_timeout": 14 + 20 * game.frame_skip})
    model = tmp_path_factory.mktemp("brief") / "brief.ckpt"
    save(model, variables, record._replace(scenario=replace(record.scenario, game=game)))
    return model


def test_training_ends_at_its_budget_and_suggests_next_commands(trained):
    folder, result = trained
    assert result.stderr == ""
    assert re.search(
        rf"\n  python {ROOT}/play.py --model models/basic-seed3-[\d-]+/best.ckpt --out /tmp/result\n", result.stdout
    )
    assert "tensorboard --logdir logs/basic-" in result.stdout
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["stopped_by"] == "frames"
    assert summary["frames"] >= 4000
    assert summary["frames"] == 4 * summary["steps"]
    assert 3 * summary["steps"] == 4 * 4 * summary["updates"]  # rollouts of 4 steps of 4 games, three passes over each
    assert summary["seed"] == 3
    assert summary["episodes"] > 10
    assert {"seconds", "mean_100", "best_evaluation", "frames_per_second", "faults"} <= summary.keys()


def test_the_first_line_describes_the_game(trained):
    _, result = trained
    game = "freedoom2.wad with basic.wad, map01, 3 actions: MOVE_LEFT MOVE_RIGHT ATTACK"
    assert result.stdout.startswith(f"training basic: {game}; 2 workers x 2 games, 4,000 frames; logs in ")


def test_an_interrupt_is_reported_despite_captured_stderr():
    script = "from doom_a3c.quiet import *\nwith capture_stderr(): os.write(2, b'chatter'); print_at_once('interrupted')"
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stderr == "interrupted\n"


def test_training_leaves_checkpoints_a_gif_and_logs(trained):
    folder, _ = trained
    assert {"last.ckpt", "best.ckpt"} <= {path.name for path in (folder / "models").iterdir()}
    (gif,) = (folder / "frames").glob("*/*.gif")
    assert imageio.imread(gif, index=None).shape[1:] == (120, 160, 3)
    assert sorted(path.name for path in (folder / "logs").glob("*/*")) == ["global", "train_0", "train_1"]


def test_the_logs_hold_the_documented_tags(trained):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, _ = trained
    tags = {}
    for run in (folder / "logs").glob("*/*"):
        accumulator = EventAccumulator(str(run))
        accumulator.Reload()
        tags[run.name] = set(accumulator.Tags()["tensors"])
    losses = {f"Losses/{name}" for name in ("Value Loss", "Policy Loss", "Entropy", "Grad Norm", "Var Norm")}
    assert losses | {"Perf/Reward", "Perf/Length", "Perf/Value"} <= tags["train_0"]
    wanted = {
        "Perf/Frames per Second",
        "Perf/Policy Lag",
        "Evaluation/Greedy Mean",
        "Evaluation/Sampled Std",
        "config",
        "game",
    }
    assert wanted <= tags["global"]


def test_play_needs_only_a_checkpoint_for_films_and_scores(brief, tmp_path):
    arguments = ("--out", tmp_path / "out", "--episodes", 3, "--record-episodes", 1, "--random-episodes", 4)
    result = play(tmp_path, "--model", brief, *arguments)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    gif = imageio.imread(tmp_path / "out" / "episode_000.gif", index=None)
    mp4 = imageio.imread(tmp_path / "out" / "episode_000.mp4", plugin="FFMPEG")
    with (tmp_path / "out" / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    frames = 4 * int(rows[0]["steps"])
    assert gif.shape[1:] == mp4.shape[1:] == (240, 320, 3)
    assert frames - 4 <= len(mp4) - round(35 / 2) <= frames + 1  # the film holds the last picture for half a second
    assert 2 < len(gif) <= len(mp4) / 35 * 10 + 1  # pictures per second; equal ones in a row are merged
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["mean"] == pytest.approx(sum(float(row["score"]) for row in rows) / 3)
    assert len(summary["random_scores"]) == 4
    assert not (tmp_path / "out" / "episode_001.gif").exists()
    assert not (tmp_path / "out" / "episodes.mp4").exists()  # not of a single episode
    page = (tmp_path / "out" / "index.html").read_text()
    film = base64.b64encode((tmp_path / "out" / "episode_000.mp4").read_bytes()).decode()
    assert page.count(f'src="data:video/mp4;base64,{film}"') == page.count("<video") == 1
    assert page.count("<svg") >= 2
    assert "--random-episodes 4" in page
    assert "keeping films of the first 1 of 3 episodes: up to 8 MB per minute" in result.stdout
    assert "episode_000.mp4 (" in result.stdout


@pytest.mark.process
def test_comparing_a_model_with_itself_finds_no_difference(brief, tmp_path):
    models = [brief] * 2
    result = call("play", "--compare", *models, "--episodes", 3, "--out", "out", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "score the same" in result.stdout
    assert "--episodes 100" in result.stdout
    comparison = json.loads((tmp_path / "out" / "comparison.json").read_text())
    one, other = comparison["scores"].values()
    assert one == other
    assert len(one) == 3
    assert [each["real"] for each in comparison["differences"].values()] == [False]
    assert imageio.imread(tmp_path / "out" / "comparison.png").ndim == 3
    assert (tmp_path / "out" / "comparison.csv").read_text().splitlines()[1] == f"{PlaySettings.seed},{one[0]},{other[0]}"
    alone = call("play", "--compare", models[0], cwd=tmp_path)
    assert (alone.returncode, "--compare takes two checkpoints or more" in alone.stderr) == (2, True)


SIGNALLING_GAME = """
from pathlib import Path
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv
class Told(CartPoleEnv):
    resets = 0
    def reset(self, **options):
        self.resets += 1
        if self.resets == 5:
            Path("played").touch()
        return super().reset(**options)
gymnasium.register("Told-v0", Told, max_episode_steps=50)
"""


@pytest.mark.process
@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM] * 2])  # timeout sends SIGTERM twice
def test_a_signal_keeps_the_comparison_so_far(tmp_path, signals):
    (tmp_path / "told.py").write_text(SIGNALLING_GAME)
    arguments = ("--compare", "cartpole", "cartpole", "--scenario", "told:Told-v0", "--episodes", 20000)
    with Running("play", *arguments, cwd=tmp_path) as process:
        until((tmp_path / "played").exists, "some episodes", seconds=90)
        for number in signals:
            kill(process.pid, number)
            time.sleep(0.1)
        result = process.end(30)
    assert (result.returncode, result.stderr) == (130, "play.py: interrupted\n")
    header, *rows = (tmp_path / "result" / "comparison.csv").read_text().splitlines()
    assert header.startswith("seed,")
    assert rows
    assert all(row.endswith(",") for row in rows)  # the second agent has not played


@pytest.mark.process
@pytest.mark.parametrize("policy", ["greedy", "sample"])
def test_play_uses_the_policy_that_did_better_in_evaluation(trained, tmp_path, policy):
    folder, _ = trained
    checkpoint = load(folder / "models" / "best.ckpt")
    record = checkpoint.record
    assert record.best.policy in ("greedy", "sample")
    save(tmp_path / "model.ckpt", checkpoint.variables, record._replace(best=record.best._replace(policy=policy)))
    arguments = ("--model", "model.ckpt", "--out", "out", "--episodes", 1, "--record-episodes", 0)
    result = play(tmp_path, *arguments)
    assert result.returncode == 0, result.stderr
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["policy"] == policy
    assert f"{policy} policy" in result.stdout


@pytest.mark.process
@pytest.mark.parametrize(("start", "hung"), [(Running, False), (RunningAnew, True)])
def test_ctrl_c_ends_play_even_if_its_games_hang(brief, tmp_path, start, hung):
    with start("play", "--model", brief, "--episodes", 500, "--record-episodes", 500, cwd=tmp_path) as process:
        until(lambda: list(tmp_path.rglob("episode_001.*")), "the second recording", seconds=90)
        processes, games = family(process.pid), engines(process.pid)
        assert len(games) == 2
        for pid in games if hung else ():
            kill(pid, signal.SIGSTOP)
        kill(process.pid, signal.SIGINT)
        result = process.end(20)  # 10 on an idle machine
        assert (result.returncode, result.stderr) == (130, "play.py: interrupted\n")
        until(lambda: not left_over(processes), "the end of the games", seconds=5)
    assert json.loads((tmp_path / "result" / "summary.json").read_text())["episodes"] >= 1  # the finished ones


@pytest.mark.process
def test_ctrl_c_while_writing_films_leaves_a_page_and_full_films(brief, tmp_path):
    arguments = ("--model", brief, "--episodes", 16, "--record-episodes", 16, "--out", "result")
    with Running("play", *arguments, cwd=tmp_path) as process:
        until(lambda: list(tmp_path.rglob("*.gif")), "the first gif", seconds=120)
        kill(process.pid, signal.SIGINT)
        result = process.end(30)
    assert (result.returncode, result.stderr) == (130, "play.py: interrupted\n")
    summary = json.loads((tmp_path / "result" / "summary.json").read_text())
    assert summary["episodes"] == 16
    assert sorted(path.name for path in (tmp_path / "result").glob("episode*")) == sorted(summary["recordings"])
    assert 0 < len(list(tmp_path.rglob("*.gif"))) < 16
    assert (tmp_path / "result" / "index.html").read_text().count("<video") == 3


@pytest.mark.process
def test_ctrl_c_before_the_first_episode_ends_keeps_nothing(tmp_path):
    for sign in ("result", "result/episode_000.mp4"):  # at the start, and during the first episode
        with RunningAnew("play", "--model", "health_gathering", cwd=tmp_path) as process:
            until((tmp_path / sign).exists, sign, seconds=120)
            kill(process.pid, signal.SIGINT)
            result = process.end(30)
        assert (result.returncode, result.stderr) == (130, "play.py: interrupted\n")
        assert list((tmp_path / "result").iterdir()) == []
    assert "no episode has ended, so nothing is kept" in result.stdout


@pytest.mark.process
@pytest.mark.parametrize("flags", [(), ("--export", "savedmodel"), ("--compare", "cartpole", "cartpole")])
def test_a_non_empty_output_folder_is_kept_and_a_new_one_used(tmp_path, flags):
    mine = {"index.html": "<h1>home</h1>", "savedmodel": "mine", "comparison.csv": "mine", "episode_000.mp4": "mine"}
    (tmp_path / "result").mkdir()
    for name, text in mine.items():
        (tmp_path / "result" / name).write_text(text)
    if "--export" not in flags:
        flags = (*flags, "--episodes", 1, "--policy", "sample", "--epsilon", 1)
    result = call("play", *(flags if "--compare" in flags else ("--model", "cartpole", *flags)), cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "result is not empty: writing to result/2\n" in result.stdout
    assert {path.name: path.read_text() for path in (tmp_path / "result").iterdir() if path.is_file()} == mine
    assert len(list((tmp_path / "result" / "2").iterdir())) > 1
    assert result.stdout.count("result/2") > 1


@pytest.mark.process
def test_a_user_module_is_imported_from_the_working_directory(tmp_path):
    module = "import gymnasium\nfrom gymnasium.envs.classic_control import CartPoleEnv\n"
    (tmp_path / "my_games.py").write_text(f"{module}gymnasium.register('Mine-v0', CartPoleEnv, max_episode_steps=50)\n")
    small = (
        "--workers",
        "1",
        "--envs-per-worker",
        "2",
        "--evaluate-every",
        "0",
        "--evaluation-episodes",
        "1",
        "--frames",
        "300",
    )
    result = call("train", "--scenario", "my_games:Mine-v0", *small, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "/best.ckpt --scenario my_games:Mine-v0 --out" in result.stdout
    played = play(tmp_path, "--scenario", "my_games:Mine-v0", "--episodes", "1", "--record-episodes", "0")
    assert played.returncode == 0, played.stderr


@pytest.mark.process
def test_an_episode_depends_only_on_its_seed(trained, tmp_path):
    folder, _ = trained
    rows = []
    for out, seed, episodes in (("a", 7, 4), ("b", 9, 2)):
        arguments = ("--episodes", episodes, "--record-episodes", 0, "--policy", "sample", "--out", out, "--seed", seed)
        assert play(tmp_path, "--model", folder / "models" / "last.ckpt", *arguments).returncode == 0
        rows.append([row.split(",")[1:] for row in (tmp_path / out / "scores.csv").read_text().splitlines()[-2:]])
    assert rows[0] == rows[1]
    assert [seed for seed, *_ in rows[0]] == ["9", "10"]


def test_a_resumed_run_continues_its_counters_and_logs(trained):
    folder, _ = trained
    first = json.loads((folder / "summary.json").read_text())
    # Different numbers of workers and games: a checkpoint depends on neither.
    resumed = train(
        folder,
        "--resume",
        "--workers",
        1,
        "--envs-per-worker",
        3,
        "--frames",
        first["frames"] + 1000,
        "--summary",
        "2.json",
    )
    assert resumed.returncode == 0, resumed.stderr
    second = json.loads((folder / "2.json").read_text())
    assert first["frames"] + 1000 <= second["frames"] < first["frames"] + 2000
    assert second["updates"] > first["updates"]
    assert second["episodes"] > first["episodes"]
    assert len(list((folder / "logs").iterdir())) == 1  # the same TensorBoard run continues


@pytest.mark.process
def test_one_worker_and_one_seed_repeat_the_weights(tmp_path):
    small = (
        "--scenario",
        "basic",
        "--workers",
        1,
        "--envs-per-worker",
        2,
        "--minibatches",
        2,
        "--frames",
        1000,
        "--evaluation-episodes",
        1,
    )

    def weights(name, seed):
        folder = tmp_path / name
        folder.mkdir()
        result = train(folder, *small, "--seed", seed)
        assert result.returncode == 0, result.stderr
        return load(folder / "models" / "last.ckpt").variables

    first, again, other = weights("a", 1), weights("b", 1), weights("c", 2)
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not all(np.array_equal(first[name], other[name]) for name in first)


@pytest.mark.process
def test_resuming_with_other_buttons_is_refused(trained, tmp_path):
    folder, _ = trained
    models = folder / "models"
    other = ("--scenario", "deadly_corridor", "--frames", 10**7)
    result = call("train", "--resume", "--models-dir", models, *other, cwd=tmp_path)
    assert result.returncode == 2
    assert all(word in result.stderr for word in ("/last.ckpt", "3 outputs", "deadly_corridor needs 36"))
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.process
def test_a_custom_wad_with_a_cfg_beside_it_trains(tmp_path):
    import vizdoom

    shipped = Path(vizdoom.scenarios_path)
    (tmp_path / "mine.wad").write_bytes((shipped / "defend_the_center.wad").read_bytes())
    (tmp_path / "mine.cfg").write_text(
        (shipped / "defend_the_center.cfg").read_text().replace("defend_the_center", "other")
    )
    result = call("train", "--scenario", "mine.wad", *SMALL, "--frames", "100", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "models" / "last.ckpt").exists()


@pytest.mark.process
@pytest.mark.parametrize(
    ("start", "scenario", "flags", "overlay", "score"),
    [
        (Running, "CartPole-v1", ("--engine", "threads"), "plain", 1),
        (
            Running,
            "CartPole-v1",
            ("--engine", "queue", "--predictors", "2", "--trainers", "2", "--epsilon", "0.2"),
            "saliency",
            1,
        ),
        (Running, "CartPole-v1", ("--advantage", "n_step", "--n-step-tail", "zero", "--accumulate", "2"), "plain", 1),
        (Running, "breakout.toml", ("--engine", "threads"), "plain", 0),
        (RunningAnew, "basic.toml", ("--engine", "queue"), "saliency", -500),
    ],
    ids=["threads", "queue", "n_step", "breakout", "doom"],
)
def test_every_kind_of_game_trains_plays_and_plots_its_scores(tmp_path, start, scenario, flags, overlay, score):
    # Short episodes make short films; those of CartPole are short with random play.
    (tmp_path / "breakout.toml").write_text('base = "breakout"\n[game]\nmax_frames = 160\n')
    (tmp_path / "basic.toml").write_text('base = "basic"\n[game.settings]\nepisode_timeout = 94\n')
    small = ("--workers", "2", "--envs-per-worker", "2", "--rollout-length", "8", "--frames", "400")
    quick = ("--evaluate-every", "0", "--evaluation-episodes", "1")
    trained = call("train", "--scenario", scenario, *small, *flags, *quick, cwd=tmp_path, start=start)
    assert trained.returncode == 0, trained.stderr
    assert trained.stderr == ""
    (curve,) = tmp_path.glob("frames/*/scores.png")
    assert imageio.imread(curve).shape[2] >= 3
    shown = ("--episodes", "1", "--record-episodes", "1", "--overlay", overlay, "--random-episodes", "2")
    played = call("play", *shown, "--policy", "sample", "--epsilon", "1", cwd=tmp_path, start=start)
    assert (played.returncode, played.stderr) == (0, "")
    assert imageio.imread(tmp_path / "result" / "episode_000.mp4", plugin="FFMPEG").shape[1] == 480
    summary = json.loads((tmp_path / "result" / "summary.json").read_text())
    assert summary["mean"] >= score
    film = imageio.imread(tmp_path / "result" / "episode_000.gif")
    assert film.ndim == 4
    assert imageio.imread(tmp_path / "result" / "scores.png").ndim == 3


@pytest.mark.parametrize(
    ("error", "status"), [(FileNotFoundError, 2), (IsADirectoryError, 2), (PermissionError, 2), (None, 1)]
)
def test_an_unwritable_file_gives_a_one_line_error(tmp_path, capsys, error, status):
    def write(arguments):
        if error is FileNotFoundError:  # the folder has been removed meanwhile
            (tmp_path / "gone" / "file").write_bytes(b"")
        if error is IsADirectoryError:
            tmp_path.write_bytes(b"")
        raise OSError(errno.EACCES if error else errno.ENOSPC, "reason", "file")

    assert command.run("play.py", write, []) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert "could not be written" in line


def test_an_os_error_without_a_file_keeps_its_traceback():
    def fail(arguments):
        raise ChildProcessError(errno.ECHILD, "No child processes")

    with pytest.raises(ChildProcessError):
        command.run("play.py", fail, [])
