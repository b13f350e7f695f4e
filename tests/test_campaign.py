"""Learning benchmarks: interrupted trainings resume, finished ones are skipped, and what their pages show."""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys

import numpy as np
import pytest
from commands import ROOT
from fakes import until
from safetensors.numpy import load_file

from benchmarks import ablations, cores, learning, own_wads, pretrained, suite
from benchmarks.ablations import Measured
from benchmarks.common import learned, results
from benchmarks.common.learned import FIRST_SEED, PLANS, Learned
from benchmarks.stress.targets.examples import write_small_checkpoint
from doom_a3c.agent.parameters import variable_name
from doom_a3c.cli.flags import make_flag_parser
from doom_a3c.cli.train import Options
from doom_a3c.run.checkpoints import pretrained as models
from doom_a3c.run.checkpoints.checkpoint import load
from doom_a3c.run.launch import make_new_run
from doom_a3c.run.play.agent import TrainedAgent
from doom_a3c.settings.catalog import find
from doom_a3c.settings.config import Config
from doom_a3c.settings.fields import select
from doom_a3c.settings.games import GameSettings

pytestmark = pytest.mark.tools

# The benchmark itself, except that its results go elsewhere and it writes no pages.
CAMPAIGN = """
from pathlib import Path
from benchmarks import learning
from benchmarks.common import command, learned
learned.LEARNED, learning.write_pages = Path("learned.jsonl"), lambda work: None
command.run_command("learning", learning.main)
"""
FRAMES = 40_000  # far more than it takes to make a gif and for every game to end again
FLAGS = ("cartpole", "--seeds", "3", "--share", str(FRAMES / PLANS["cartpole"].rate / PLANS["cartpole"].minutes))


def campaign(folder):
    command, env = [sys.executable, "-c", CAMPAIGN, *FLAGS, "--episodes", "2"], {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def test_interrupted_training_resumes_and_finished_is_skipped(tmp_path):
    folder = learning.training_folder(tmp_path / "learning", "cartpole", 3, FRAMES)
    first = campaign(tmp_path)
    until(lambda: list(folder.glob("frames/*/*.gif")), "the first episode's gif", seconds=90)
    first.send_signal(signal.SIGTERM)
    assert first.communicate(timeout=90)[1].splitlines()[-1] == "learning: interrupted"
    done = learning.read_counters(folder)["frames"]
    assert 0 < done < FRAMES
    assert not (tmp_path / "learned.jsonl").exists()

    second = campaign(tmp_path)
    assert second.communicate(timeout=300)[1] == ""
    (line,) = (tmp_path / "learned.jsonl").read_text().splitlines()
    one = Learned(**json.loads(line))
    assert (one.game, one.seed, one.budget) == ("cartpole", 3, FRAMES)
    assert FRAMES <= one.frames == learning.read_counters(folder)["frames"] < FRAMES + 2000
    assert len(one.greedy) == len(one.sample) == 2
    assert one.policy == learning.read_policy(folder / "models" / "best.ckpt")
    assert one.curve[-1][0] > done
    frames = [at for _, at, _, _ in learning.read_counters(folder)["curve"]]
    assert frames == sorted(frames)
    assert done < frames[-1]
    seconds = [float(each) for each in (folder / "seconds.txt").read_text().split()]
    assert one.minutes == pytest.approx(sum(seconds) / 60, abs=0.06)
    assert len(seconds) == 2

    again = campaign(tmp_path)
    assert "are done already" in again.communicate(timeout=90)[0]
    assert (tmp_path / "learned.jsonl").read_text().splitlines() == [line]

    # As if it was interrupted in its last evaluation, with all frames played.
    (tmp_path / "learned.jsonl").unlink()
    (folder / "ended").unlink()
    assert campaign(tmp_path).communicate(timeout=90)[1] == ""
    assert one.frames < json.loads((tmp_path / "learned.jsonl").read_text())["frames"] < FRAMES + 4000


def training(game="pong", seed=1, greedy=(18.0, 20.0), sample=(21.0, 21.2), curve=(), commit="abc", policy="sample"):
    return Learned(game, seed, 100, 120, 3.0, commit, list(greedy), list(sample), -20.0, list(curve), policy)


def row_of(one):
    (row,) = [line for line in learning.list_table_lines([one]) if line.startswith(f"| {one.game} ")]
    return [cell.strip() for cell in row.strip("|").split("|")]


def test_a_row_shows_the_target_verdict_and_score_retention():
    row = row_of(training(curve=[(10, 5.0), (20, 20.0), (30, 25.0), (40, 20.0), (50, 26.0)]))
    assert row[:5] == ["pong", "1", "0.00M of 16.2M", "3.0", "2"]
    assert row[5].startswith("19.0 (")
    assert row[6].startswith("21.1 (")
    assert row[7:] == ["sample", "-20.0", "20: not met", "80%", "abc"]  # two games give a wide interval
    assert row_of(training(sample=[21.0, 21.2] * 10))[-3:] == ["20: met", "-", "abc"]
    assert row_of(training("freedoom1"))[-3:] == ["-", "-", "abc"]


@pytest.mark.parametrize(
    ("policy", "greedy", "sample", "verdict"),
    [
        ("greedy", [19.0, 19.2], [21.0, 21.2], "not met"),  # the other policy would, but is not the named one
        ("sample", [19.0, 19.2], [21.0, 21.2], "met"),
        ("sample", [21.0, 21.2], [16.0, 25.0], "not met"),  # the mean would, but the interval reaches below
        ("greedy", [20.0], [0.0], "met"),  # equal scores
        ("greedy", [19.0], [21.0], "not met"),
        (None, [19.0, 19.2], [21.0, 21.2], "by one policy alone"),  # a line from before policies were recorded
        (None, [21.0, 21.2], [21.0, 21.2], "met"),
        (None, [19.0, 19.2], [19.0, 19.2], "not met"),
    ],
)
def test_the_verdict_uses_the_named_policys_lower_bound(policy, greedy, sample, verdict):
    one = training(greedy=greedy * 20, sample=sample * 20, policy=policy)
    assert one.verdict(20.0) == verdict


def test_times_random_uses_the_named_policy_not_the_better_one():
    def times(policy, random=(1.0, 3.0)):
        return own_wads.format_times_random(own_wads.Learned("arena", 1, 5, 9, "abc", [4.0], [8.0], list(random), policy))

    assert [times("greedy"), times("sample"), times(None)] == ["2.0", "4.0", "2.0 and 4.0"]
    assert times("greedy", ()) == "-"


def test_pages_show_the_newest_run_per_seed_and_find_the_best(monkeypatch):
    ones = [
        training(commit="old"),
        training(seed=2, sample=(21.5, 21.5)),
        training(greedy=(99.0, 99.0), commit="new"),  # greedy is not its policy
        training("breakout"),
    ]
    monkeypatch.setattr(learned, "read_learned", lambda: ones)
    found = learning.select_shown_trainings()
    assert [(one.game, one.seed, one.commit) for one in found] == [
        ("pong", 1, "new"),
        ("pong", 2, "abc"),
        ("breakout", 1, "abc"),
    ]
    best = learning.find_best(one for one in found if one.game == "pong")
    assert best is ones[1]
    assert learning.find_best([]) is None


def test_an_ablation_row_lists_seeds_in_order_with_an_interval():
    found = [
        Measured("basic", "two passes", seed, 600_000, mean, at, faults, commit)
        for seed, mean, at, faults, commit in (
            (3, 83.0, None, 1, "new"),
            (1, 81.0, 90_000, 0, "old"),
            (2, 81.0, 80_000, 2, "new"),
            (2, 83.0, 70_000, 0, "new"),
        )
    ]
    found.append(Measured("basic", "as it is", 1, 600_000, 80.0, 70_000, 0, "old"))
    rows = [line for line in ablations.list_page_lines(found) if line.startswith(("| as", "| two"))]
    assert rows == [
        "| as it is | 80.0 | - | 70,000 | 0 | old |",
        "| two passes | 81.0, 81.0 and 83.0, 83.0 | 82.0 +- 2.48 | 90,000, 80,000 and 70,000, - | 3 | new, old |",
    ]  # 4.303 / sqrt(3)


def test_removed_variants_are_not_shown():
    found = [Measured("basic", variant, 1, 600_000, 20.0, None, 0, "abc") for variant in ("taken out", "two passes")]
    rows = [line.split(" | ")[0] for line in ablations.list_page_lines(found) if line.endswith("| abc |")]
    assert rows == ["| two passes"]


def test_a_failed_variant_is_reported_and_the_rest_are_measured(tmp_path, monkeypatch, capsys):
    def measure(game, variant, seed):
        if variant == "two passes":
            raise subprocess.CalledProcessError(1, "train.py")
        return Measured(game, variant, seed, 600_000, 81.0, None, 0, "abc")

    monkeypatch.setattr(ablations, "measure", measure)
    monkeypatch.setattr(ablations, "PAGES", tmp_path)
    monkeypatch.setattr(ablations, "MEASURED", tmp_path / "ablations.jsonl")
    arguments = ["basic", "--seeds", "1", "--variants", "two passes", "no KL target"]
    monkeypatch.setattr(sys, "argv", ["ablations.py", *arguments])
    assert ablations.main() == 1
    assert "basic, two passes, seed 1 has failed" in capsys.readouterr().err
    assert [one.variant for one in ablations.read_measured()] == ["no KL target"]


def test_a_half_written_line_of_results_raises(tmp_path):
    path = tmp_path / "some.jsonl"
    results.append_result(path, {"game": "basic"})
    assert results.read_results(path) == [{"game": "basic"}]
    with path.open("a") as file:
        file.write('{"game": "ba')
    with pytest.raises(results.DamagedError, match="line 2, is no result"):
        results.read_results(path)


@pytest.mark.parametrize("variant", ablations.VARIANTS)
def test_ablation_flags_configure_a_training_run(variant, tmp_path):
    parser = make_flag_parser("train.py", "", Config, GameSettings, Options)
    for game in ablations.ONLY.get(variant, ablations.PARTS):
        flags = parser.parse([str(each) for each in ablations.make_flags(game, variant, 3, tmp_path)])
        config = make_new_run(select(flags, Config) | select(flags, GameSettings)).config
        assert (config.seed, config.frames) == (3, ablations.GAMES[game].frames)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder for the models of the pretrained benchmark, which plays only two episodes."""
    folder = tmp_path / "models" / "pretrained"
    folder.parent.mkdir()
    for name, value in {"ROOT": tmp_path, "FOLDER": folder, "EPISODES": 2}.items():
        monkeypatch.setattr(pretrained, name, value)
    monkeypatch.setattr(models, "_FOLDERS", (folder,))
    monkeypatch.setattr(sys, "argv", ["pretrained.py", "--work", str(tmp_path / "learning"), "cartpole"])
    return tmp_path


def files_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_best_seed_becomes_a_stripped_model_with_a_card(project, monkeypatch):
    ones = [training("cartpole", seed, (score,), (score,)) for seed, score in ((1, 20.0), (2, 30.0))]
    monkeypatch.setattr(pretrained, "select_shown_trainings", lambda: ones)
    source = learning.training_folder(project / "learning", "cartpole", 2, 100) / "models" / "best.ckpt"
    source.parent.mkdir(parents=True)
    write_small_checkpoint(source)
    played = {}

    def play_episodes(model, folder, episodes, seed):
        assert not set(range(seed, seed + episodes)) & set(range(FIRST_SEED, FIRST_SEED + 50))
        assert load(model).variables.keys() < load(source).variables.keys()  # the file that ships with the project
        return played.setdefault("scores", learning.play_episodes(model, folder, episodes, seed))

    monkeypatch.setattr(pretrained, "play_episodes", play_episodes)
    assert pretrained.main() == 0
    model = models.find_model("cartpole")
    (variables, record), (whole, _) = load(model), load(source)
    assert variables.keys() == {variable_name(each) for each in TrainedAgent.load(source).network.parameters}
    assert variables.keys() < whole.keys()  # without the optimizer's variables
    for name, value in variables.items():
        np.testing.assert_array_equal(value, whole[name].astype(np.float16))
    assert {array.dtype for array in load_file(model).values()} == {np.dtype(np.float16)}
    assert (list(record.counters.scores), list(record.counters.curve)) == ([], [])
    card = models.read_cards()["cartpole"]
    assert (card.seed, card.frames, card.minutes, card.commit, card.episodes) == (2, 120, 3.0, "abc", 2)
    assert card.first_seed == pretrained.FIRST_SEED
    assert card.command == "python train.py --scenario cartpole --seed 2 --frames 100"
    for policy in ("greedy", "sample"):
        scores = played["scores"][policy]
        assert len(scores) == 2
        assert getattr(card, policy) == [statistics.mean(scores), statistics.pstdev(scores)]
    assert 8 <= card.random[0] < 100
    row = next(line for line in (project / "models" / "README.md").read_text().splitlines() if "| cartpole |" in line)
    intervals = [pretrained.format_interval(*each, 2) for each in (card.greedy, card.sample, card.random)]
    assert [cell.strip() for cell in row.split("|")][1:5] == ["cartpole", *intervals]

    model.write_bytes(b"older")
    before = files_of(project / "models")
    with monkeypatch.context() as patch:
        patch.setattr(pretrained, "play_episodes", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pretrained.main()
    assert files_of(project / "models") == before  # the old pair and no partial files


def interrupted(*arguments):
    raise KeyboardInterrupt


def test_a_model_without_its_training_here_is_left_unchanged(project, monkeypatch, capsys):
    monkeypatch.setattr(pretrained, "select_shown_trainings", lambda: [training("cartpole")])
    pretrained.FOLDER.mkdir()
    (pretrained.FOLDER / "cartpole.ckpt").write_bytes(b"older")
    assert pretrained.main() == 0
    assert "so its model stays as it is" in capsys.readouterr().out
    assert (pretrained.FOLDER / "cartpole.ckpt").read_bytes() == b"older"
    assert not (pretrained.FOLDER / models.CARDS).exists()


def test_the_suite_score_is_the_iqm_of_normalized_scores():
    scores = {"take_cover": 0.5, "deathmatch": 1.0, "my_way_home": 0.0, "basic": 0.75}
    ones = []
    for level, share in scores.items():
        tuned = find(level)
        score = tuned.random_mean + share * (tuned.expected_mean - tuned.random_mean)
        ones += [suite.Measured(level, "recipe", seed, 1000, score, 1.0, "abc") for seed in (1, 2)]
    assert [one.normalized for one in ones[::2]] == pytest.approx(list(scores.values()))
    mean, low, high = suite.find_interval({level: [share, share] for level, share in scores.items()})
    assert (mean, low, high) == pytest.approx((0.625, 0.625, 0.625)), "the best and worst quarters are dropped"
    _, low, high = suite.find_interval({"one": [0.0, 1.0], "other": [0.0, 1.0]})
    assert (low, high) == (0, 1)
    lines = list(suite.list_page_lines(ones))
    assert [line.partition("(")[2] for line in lines if line.startswith("| take_cover")] == ["0.50) |"]
    assert "| **IQM** | 0.62 (0.62 to 0.62) |" in lines
    one_seed, part = ones[::2], [one._replace(variant="heads") for one in ones[:2]]
    assert "| **IQM** | 0.62 |  |" in list(suite.list_page_lines([*one_seed, *part])), "of all levels, or not at all"
    full = [one._replace(frames=suite.read_tuned_frames(one.level)) for one in one_seed]
    lines = list(suite.list_page_lines([*full, part[0]]))
    assert [line for line in lines if line.startswith("##")] == ["## As many frames as the tuned file", "## 1,000 frames"]
    assert "| **IQM** | 0.62 |" in lines, "of levels with unlike budgets"


def test_a_suite_level_is_found_as_an_unknown_scenario(tmp_path):
    plain = find(str(suite.write_scenario("deathmatch", suite.RECIPE, tmp_path)))
    unpaid = find(str(suite.write_scenario("deathmatch", "unpaid", tmp_path)))
    heads = find(str(suite.write_scenario("deathmatch", "heads", tmp_path)))
    assert (plain.name, heads.name) == ("unknown_deathmatch", "unknown_deathmatch")
    assert "WEAPON3" not in plain.game.shaping  # of the tuned file
    assert unpaid.game.shaping == dict.fromkeys(plain.game.shaping, 0)
    assert plain.game.wad == heads.game.wad == str(tmp_path / "unknown_deathmatch.wad")
    assert heads.game.buttons == "heads"
    assert plain.training == heads.training


def test_each_core_gets_one_row():
    found = [
        cores.Measured("t_maze", core, seed, 10, 0.5 * seed, 20.0, "abc") for core in ("gru", "none") for seed in (2, 1)
    ]
    rows = [line for line in cores.list_page_lines(found) if line.startswith("| t_maze")]
    assert rows == [f"| t_maze | 10 | {core} | 0.50 (1), 1.00 (2) | 0.75 | 20 |" for core in ("gru", "none")]


def test_a_card_shows_the_standing_in_its_matches(tmp_path):
    assert pretrained.read_standing(tmp_path) == ""
    (tmp_path / "summary.json").write_text('{"scores": [1.0]}')
    assert pretrained.read_standing(tmp_path) == ""
    standing = {"frags": 9.0, "rivals_mean": 2.0, "best_rival": 4.5, "rank": 1.0, "players": 8, "wins": 1.0}
    (tmp_path / "summary.json").write_text(json.dumps({"standing": standing}))
    assert "the best rival 4.50 (2.00 of it); rank 1.0 of 8" in pretrained.read_standing(tmp_path)


@pytest.mark.parametrize(
    ("means", "target", "share"),
    [
        ([10.0, 50.0, 100.0, 60.0, 90.0], 50.0, "60%"),
        ([-900.0, -200.0, -150.0, -600.0, -160.0], -200.0, "25%"),
        ([-1.0, 0.0, 0.0], -2.0, "100%"),
        ([10.0], 50.0, "-"),
    ],
)
def test_a_collapse_shows_as_a_low_share_of_the_best_mean(means, target, share):
    assert learning.format_lowest_share(means, target) == share
