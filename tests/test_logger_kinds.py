"""The kinds of --logger: their offline output, and the error if a package is missing."""

import csv
import json
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import imageio.v3 as imageio
import numpy as np
import pytest
from commands import SMALL, call
from fakes import until
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as PluginEventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from doom_a3c.cli.compare_runs import compare_runs
from doom_a3c.cli.run_curves import Curve, _make_curve, read_run
from doom_a3c.record.files import write_table
from doom_a3c.record.metrics import figures
from doom_a3c.record.metrics.counters import Point
from doom_a3c.record.metrics.figures import draw_runs
from doom_a3c.record.metrics.logger_kinds import find_logger
from doom_a3c.record.metrics.loggers import Loggers
from doom_a3c.record.metrics.progress import Progress
from doom_a3c.record.metrics.tags import make_tag
from doom_a3c.settings.errors import UserError

GIF = imageio.imwrite("<bytes>", np.array([[[[0] * 3] * 8] * 8, [[[200] * 3] * 8] * 8], np.uint8), extension=".gif")


def write(kind, folder, lines=None):
    """Writes one record of each kind; nothing may fail."""
    lines = [] if lines is None else lines
    loggers = Loggers(find_logger(kind), folder / "logs" / "basic-seed1", lines.append)
    loggers("global").settings({"seed": 1, "name": None, "tables": {"a": [1, 2]}})
    for frames in (40, 80):
        loggers("global").metrics({"frames_per_second": 2.0 * frames, "reward": None}, frames)
        loggers("train_0").metrics({"entropy": 0.5}, frames)
        loggers("train_0").histogram("actions", [0, 1, 1], frames)
    loggers("global").gif("game", GIF, 8, 8, 80)
    loggers.close()
    assert lines == []
    return folder / "logs" / "basic-seed1"


def test_csv_tables_hold_every_number_and_grow_on_resuming(tmp_path):
    write("csv", tmp_path)
    folder = write("csv", tmp_path)
    with (folder / "global" / "metrics.csv").open(newline="") as file:
        rows = [tuple(row.values()) for row in csv.DictReader(file)]
    assert rows == [("40", "Perf/Frames per Second", "80.0"), ("80", "Perf/Frames per Second", "160.0")] * 2
    assert (folder / "train_0" / "metrics.csv").read_text().startswith("count,metric,value\n40,Losses/Entropy,0.5\n")
    assert json.loads((folder / "global" / "settings.json").read_text())["seed"] == 1


def test_a_partial_line_of_a_killed_run_is_dropped(tmp_path):
    folder = write("csv", tmp_path)
    table = folder / "global" / "metrics.csv"
    table.write_text(table.read_text() + "300,Perf/Frames")
    write("csv", tmp_path)
    lines = table.read_text().splitlines()
    assert len(lines) == 5
    assert all(line.count(",") == 2 for line in lines)


@pytest.mark.parametrize("left", ["", "count,met"])
def test_a_run_killed_before_its_table_has_a_line_gets_a_header(tmp_path, left):
    (tmp_path / "metrics.csv").write_text(left)
    log = find_logger("csv")(tmp_path)
    log.metrics({"reward": 2.0}, 20)
    log.close()
    assert (tmp_path / "metrics.csv").read_text() == "count,metric,value\n20,Perf/Reward,2.0\n"


@pytest.mark.filterwarnings("error:overflow")
def test_tensorboard_shows_float32_overflow_as_infinity_silently(tmp_path):
    log = find_logger("tensorboard")(tmp_path)
    log.metrics({"reward": 1e300}, 1)
    log.histogram("actions", [1e300], 1)
    log.close()
    (event,) = EventAccumulator(str(tmp_path)).Reload().Tensors("Perf/Reward")
    assert make_ndarray(event.tensor_proto) == np.inf


def test_tensorboard_hyperparameters_use_the_evaluation_metric(tmp_path):
    folder = write("tensorboard", tmp_path)
    events = EventAccumulator(str(folder / "global")).Reload()
    assert events.PluginTagToContent("hparams").keys() == {"_hparams_/experiment", "_hparams_/session_start_info"}
    content = events.PluginTagToContent("hparams")["_hparams_/experiment"]
    assert b"Evaluation/Score" in content
    assert b"Evaluation/Confirmed Score" in content
    start = events.PluginTagToContent("hparams")["_hparams_/session_start_info"]
    assert b"seed" in start
    assert b"basic-seed1" in start  # the name of its row
    assert "Actions/Taken" in EventAccumulator(str(folder / "train_0")).Reload().Tags()["tensors"]


@pytest.mark.parametrize("kind", ["tensorboard", pytest.param("wandb", marks=pytest.mark.tools)])
def test_tensorboard_drops_points_beyond_the_resumed_checkpoint(kind, tmp_path, monkeypatch):
    if kind == "wandb":
        monkeypatch.setattr("wandb.init", lambda **others: SimpleNamespace(finish=lambda: None))
    make = {resumed_at: find_logger(kind, frames=resumed_at) for resumed_at in (0, 300)}
    reopened = (300, (450, 550))  # after a failure, say
    for number, (resumed_at, frames) in enumerate([(0, (100, 200, 300, 400, 500)), (300, (350, 400)), reopened]):
        log = make[resumed_at](tmp_path)
        for count in frames:
            log.metrics({"reward": float(resumed_at)}, count)
            log.metrics({"reward_by_episode": 0.0}, count // 50)
        log.close()
        (file,) = tmp_path.glob("*.v2")
        file.rename(tmp_path / f"events.out.tfevents.{number}")  # in order, though all are from the same second
    events = PluginEventAccumulator(str(tmp_path)).Reload()  # as with `tensorboard --load_fast=false`
    assert [event.step for event in events.Tensors("Perf/Reward")] == [100, 200, 300, 350, 400, 450, 550]
    assert {event.step for event in events.Tensors(make_tag("reward_by_episode"))} == {2, 4, 6, 7, 8, 9, 10, 11}


@pytest.mark.tools
def test_wandb_logs_everything_offline(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.chdir(tmp_path)
    folder = write("wandb", tmp_path)
    (run,) = (folder / "wandb").glob("offline-run-*")
    (log,) = run.glob("*.wandb")
    names = (
        b"global/Perf/Frames per Second",
        b"train_0/Losses/Entropy",
        b"train_0/Actions/Taken",
        b"basic-seed1",
        b"tables",
    )
    until(lambda: all(name in log.read_bytes() for name in names))  # a process of the library writes it
    (gif,) = run.rglob("*.gif")
    assert gif.read_bytes() == GIF
    assert write("wandb", tmp_path) == folder  # a second run in the same process
    assert len(list((folder / "wandb").glob("offline-run-*"))) == 2


@pytest.mark.tools
@pytest.mark.parametrize(
    ("flags", "expected"), [((None, None), ("theirs", None)), (("doom", "team"), ("doom", "team"))], ids=["unset", "set"]
)
def test_wandb_flags_override_its_environment_variables(flags, expected, tmp_path, monkeypatch):
    from wandb.integration.tensorboard import unpatch

    monkeypatch.setenv("WANDB_PROJECT", "theirs")
    monkeypatch.setattr("wandb.init", lambda project, entity, **others: inits.append((project, entity)))
    inits = []
    log = find_logger("wandb", *flags)(tmp_path / "logs" / "run" / "global")
    monkeypatch.setattr(log, "_owner", SimpleNamespace(release=unpatch))
    log.close()
    assert inits == [expected]  # without an entity, the library reads its own variable


@pytest.mark.tools
@pytest.mark.parametrize(("flag", "words"), [("a/b", "--wandb-project: .*a/b"), (None, "WANDB_PROJECT: .*c:d")])
def test_an_invalid_wandb_project_name_is_refused(flag, words, monkeypatch):
    monkeypatch.setenv("WANDB_PROJECT", "c:d")
    with pytest.raises(UserError, match=words):
        find_logger("wandb", flag)


@pytest.mark.tools
def test_a_missing_wandb_key_prevents_the_start(tmp_path, monkeypatch):
    import wandb

    wandb.teardown()  # it keeps the environment's settings of an earlier test
    for name in ("WANDB_MODE", "WANDB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))  # where the library keeps keys
    messages = []
    loggers = Loggers(find_logger("wandb"), tmp_path / "logs" / "run", messages.append)
    with closing(loggers), pytest.raises(UserError, match=r"--logger wandb: .*wandb login.*WANDB_MODE=offline"):
        loggers("global").settings({"seed": 1})
    wandb.teardown()
    assert not messages


@pytest.mark.tools
def test_wandb_can_start_after_a_failed_attempt(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    make, folder = find_logger("wandb"), tmp_path / "logs" / "run" / "global"

    def fail(**others):
        raise OSError("no network")

    with monkeypatch.context() as patches:
        patches.setattr("wandb.init", fail)
        with pytest.raises(OSError, match="no network"):
            make(folder)
    make(folder).close()
    assert list((folder.parent / "wandb").glob("offline-run-*"))


@pytest.mark.tools
def test_mlflow_stores_metrics_and_settings(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    write("mlflow", tmp_path)
    assert "INFO" not in "".join(capfd.readouterr())
    assert [path.name for path in tmp_path.iterdir()] == ["mlflow.db"]
    assert "/mlflow.db*" in (Path(__file__).parent.parent / ".gitignore").read_text().splitlines()
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as database:
        numbers = database.execute("select key, value, step from metrics order by key, step").fetchall()
        settings = dict(database.execute("select key, value from params").fetchall())
        runs = database.execute("select name, status from runs").fetchall()
    assert numbers == [
        ("Perf/Frames per Second", 80.0, 40),
        ("Perf/Frames per Second", 160.0, 80),
        ("train_0/Losses/Entropy", 0.5, 40),
        ("train_0/Losses/Entropy", 0.5, 80),
    ]
    assert settings["seed"] == "1"
    assert runs == [("basic-seed1", "FINISHED")]


@pytest.mark.parametrize("kind", ["wandb", "mlflow"])
def test_a_missing_package_gives_a_one_line_error(kind, monkeypatch):
    for name in [name for name in sys.modules if kind in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, kind, None)
    with pytest.raises(UserError, match=rf"--logger {kind} needs .*: pip install -r requirements-loggers.txt"):
        find_logger(kind)


RUNS = ("basic-seed1-20261122-120000", "basic-seed2-20261122-120000", "cartpole-seed1-20261122-120000")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three runs of two games with all their folders; the first has more in the table beside its gifs than in its log."""
    folder = tmp_path_factory.mktemp("runs")
    for index, name in enumerate(RUNS):
        log = find_logger(("csv", "tensorboard")[index % 2])(folder / "logs" / name / "global")
        game = {"id": "CartPole-v1"} if name.startswith("cartpole") else {"wad": "basic.wad"}
        log.settings({"seed": 1, "tables": {"game": game}})
        for frames in (1000, 1100):
            log.metrics({"reward": frames / 100}, frames)
        log.close()
        points = [Point(n, 10 * n, n / 10, n / 10) for n in range(1, 112 if index == 0 else 105)]
        write_table(folder / "frames" / name / "scores.csv", Point._fields, points)
        (folder / "models" / name).mkdir(parents=True)
    (folder / "models" / "pretrained").mkdir()
    return folder


def compare(runs, out, *words):
    text = compare_runs(words, str(out), str(runs / "logs"), str(runs / "models"))
    with (out / "comparison.csv").open(newline="") as file:
        return text, [tuple(row.values()) for row in csv.DictReader(file)]


@pytest.mark.parametrize("place", ["logs", "frames", "models"])
def test_runs_have_the_same_figures_from_any_of_their_folders(runs, place, monkeypatch):
    drawn = []
    monkeypatch.setattr(figures, "draw_runs", lambda games: drawn.append(games) or draw_runs(games))
    text, rows = compare(runs, runs / "frames", str(runs / place))
    assert rows == [
        (RUNS[0], "basic", "basic.wad", "1110", "11.1"),
        (RUNS[1], "basic", "basic.wad", "1100", "11.0"),
        (RUNS[2], "cartpole", "CartPole-v1", "1100", "11.0"),
    ]
    assert [line.split()[:4] for line in text.splitlines()[1:3]] == [
        ["basic.wad", "basic", "2", "11.1"],
        ["CartPole-v1", "cartpole", "1", "11.0"],
    ]
    assert "pretrained" not in text
    (games,) = drawn
    assert games["basic.wad"]["basic"][0].frames == [1000 + 10 * n for n in range(12)]  # from 100 episodes on


def test_a_table_of_todays_runs_is_read_from_its_first_mean_on(tmp_path):
    progress = Progress()
    for _ in range(150):
        progress.add_steps(10, 40, [5.0], [])
    write_table(tmp_path / "scores.csv", Point._fields, progress.counters().curve)
    assert read_run("basic-seed1-20261122-120000", [tmp_path]).curve.frames == [40 * n for n in range(100, 151)]


def test_each_game_has_a_pane_with_its_own_axis(runs):
    curve, other = ([0.0, 1.0], [1.0, 2.0]), ([0.0, 1.0], [-300.0, 80.0])
    panes = draw_runs({"a": {"one": [curve]}, "b": {"two": [other]}, "c": {"three": [curve]}}).axes
    assert [axes.get_title() for axes in panes] == ["a", "b", "c"]
    assert panes[0].get_ylim()[1] < 3 < panes[1].get_ylim()[1]


@pytest.mark.parametrize("word", [RUNS[2], "CartPole", f"logs/{RUNS[2]}", f"models/{RUNS[2]}", f"frames/{RUNS[2]}"])
def test_a_run_can_be_given_by_name_prefix_or_folder(runs, word, monkeypatch):
    monkeypatch.chdir(runs)
    assert [row[0] for row in compare(runs, runs / "frames", word)[1]] == [RUNS[2]]


def test_a_prefix_of_several_names_selects_all_of_them(runs):
    assert {row[0] for row in compare(runs, runs / "frames", "basic")[1]} == {RUNS[0], RUNS[1]}


def test_points_of_a_killed_session_give_way_to_replayed_ones():
    points = [(100, 1.0), (200, 2.0), (300, 9.0), (400, 9.0), (250, 3.0), (350, 4.0)]
    assert _make_curve(points) == Curve([100, 200, 250, 350], [1.0, 2.0, 3.0, 4.0])


def test_an_unknown_run_name_is_refused(runs, tmp_path):
    with pytest.raises(UserError, match=rf"--compare-runs pong: .*the runs are {RUNS[0]}"):
        compare(runs, runs / "frames", "pong")
    with pytest.raises(UserError, match=r"--compare-runs pong: there is no such run"):
        compare_runs(["pong"], str(tmp_path), str(tmp_path / "logs"), str(tmp_path / "models"))


def test_without_a_log_the_run_name_gives_the_game(runs, tmp_path):
    shutil.copytree(runs / "frames", tmp_path / "frames")
    _, rows = compare(tmp_path, tmp_path / "out", str(tmp_path / "frames"))
    assert {row[1]: row[2] for row in rows} == {"basic": "basic.wad", "cartpole": "CartPole-v1"}


@pytest.mark.process
def test_a_run_uses_the_logger_given_by_its_flag(tmp_path):
    result = call("train", "--scenario", "CartPole-v1", *SMALL, "--episodes", "150", "--logger", "csv", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    (table,) = tmp_path.glob("logs/*/global/metrics.csv")
    assert "Evaluation/Score" in (metrics := table.read_text())
    assert "Evaluation/Confirmed Score" in metrics
    compared = call("train", "--compare-runs", "frames", "--frames-dir", "out", cwd=tmp_path)
    assert compared.returncode == 0, compared.stderr
    assert (tmp_path / "out" / "comparison.png").exists()


@pytest.mark.parametrize("kind", ["csv", "tensorboard"])
def test_runs_are_compared_by_logs_and_grouped_by_name(kind, tmp_path):
    for name, means in (("a-seed1", [1.0, 3.0]), ("a-seed2", [2.0, 5.0]), ("b-seed1", [0.0, -1.5])):
        loggers = Loggers(find_logger(kind), tmp_path / "logs" / f"{name}-20261122-120000", print)
        loggers("global").settings({"tables": {"game": {"wad": "./orchard.wad"}}})
        for frames, mean in zip((40, 80), means, strict=True):
            loggers("global").metrics({"reward": mean}, frames)
        loggers.close()
    text = compare_runs([str(tmp_path / "logs")], str(tmp_path / "out")).splitlines()
    assert [line.split() for line in text[1:3]] == [
        ["a", "2", "4.00", "+-", "1.00", "(3.00,", "5.00)"],
        ["b", "1", "-1.50"],
    ]
    assert imageio.imread(tmp_path / "out" / "comparison.png").shape[0] > 400
    one = compare_runs([str(tmp_path / "logs" / "b-seed1-20261122-120000")], str(tmp_path / "out"))
    assert one.splitlines()[1].split() == ["b", "1", "-1.50"]
    twice = compare_runs(
        [str(tmp_path / "logs"), str(tmp_path / "logs" / "b-seed1-20261122-120000")], str(tmp_path / "out")
    )
    assert twice.splitlines()[2].split() == ["b", "1", "-1.50"]
    (tmp_path / "logs" / "c-seed1-20261122-120000").mkdir()
    report = compare_runs([str(tmp_path / "logs")], str(tmp_path / "out"))
    assert "left out, with no curve yet: c-seed1-20261122-120000" in report
    with pytest.raises(UserError, match=r"nothing: .*no such folder"):
        compare_runs(["nothing"], str(tmp_path / "out"))
    with pytest.raises(UserError, match="no run has a curve"):
        compare_runs([str(tmp_path / "out")], str(tmp_path / "out"))
