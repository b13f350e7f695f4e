"""A user's mistake gives one line that says what would be right; help and lists say it beforehand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import ROOT, call
from fakes import complaint

from doom_a3c import __version__
from doom_a3c.record.files import check_exists
from doom_a3c.run.imports import PACKAGES
from doom_a3c.settings.catalog import list_scenario_files


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--scenario", "bsic"), "did you mean basic"),
        (("--learning-rat", "1"), "did you mean --learning-rate"),
        (("--discount", "1.5"), "--discount: 1.5 is out of range; it takes a number, 0 to 1"),
        (("--envs-per-worker", "many"), "envs-per-worker"),
        (("--scenario", "mine.toml"), "mine.toml"),
        (("--scenario", "broken.toml"), "broken.toml"),
        (("--scenario", "key.toml"), "did you mean learning_rate"),
        (("--scenario", "broken.wad"), "broken.wad"),
        (("--scenario", "lonely.wad"), "lonely.wad needs lonely.cfg beside it"),
        (("--models-dir", "file/models"), "--models-dir"),
        (("--resume",), "--models-dir foreign, --models-dir 'other run/models'"),
        (("--resume", "--models-dir", "a" * 300), "File name too long"),
        (("--models-dir", "a" * 300), "File name too long"),
        (("--summary", "foreign"), "--summary foreign is a folder"),
        (("--summary", "a" * 300), "File name too long"),
        (("--summary", "loop"), "--summary loop: Too many levels of symbolic links"),
        (("--scenario", "basic.pk3"), "there is no such file"),
        (("--scenario", "mute.toml"), "no button to press"),
        (("--workers", "1024", "--envs-per-worker", "4096"), "4,194,304 games, 65,536 at most"),
        (("--resume", "--models-dir", "foreign"), "foreign/last.ckpt is a zip archive"),
        (
            ("--seed", "1", "2", "3", "--frames", "9"),
            "one seed; a loop of the shell trains several: for seed in 1 2 3;",
        ),
        (("--seed=1,2,3",), "for seed in 1 2 3;"),
        (("--seed", "1", "100000"), "100000 needs a flag: --frames 100000"),
        (("--doctor", "--resume", "mine", "--summary", "s"), "--resume, --summary have no effect with --doctor"),
        (("--gif-overlay", "--gif-every", "0"), "--gif-overlay has no effect with --gif-every 0"),
        (("--doctor", "--from", "basic"), "--from has no effect with --doctor"),
        (("--print-settings", "--wad", "mine.wad"), "a new run names its wad by --scenario mine.wad"),
    ],
)
def test_mistakes_give_one_line_exit_2_and_write_nothing(tmp_path, arguments, message):
    (tmp_path / "file").touch()
    (tmp_path / "broken.toml").write_text("[game\n")
    (tmp_path / "key.toml").write_text('[game]\nconfig = "basic.cfg"\n[training]\nlearning_rte = 1e-3\n')
    (tmp_path / "broken.wad").write_bytes(b"PWAD\xff\xff\x00\x00")
    (tmp_path / "broken.cfg").write_text("available_buttons = { ATTACK }\n")
    (tmp_path / "lonely.wad").write_bytes(b"PWAD" + bytes(8))
    (tmp_path / "mute.toml").write_text('base = "base/doom"\n[game]\nwad = "basic.wad"\nbuttons = "combinations"\n')
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "foreign").mkdir()
    (tmp_path / "other run" / "models").mkdir(parents=True)
    (tmp_path / "other run" / "models" / "last.ckpt").touch()
    (tmp_path / "foreign" / "last.ckpt").write_bytes(b"PK\x03\x04 and then nothing of use")
    before = sorted(tmp_path.rglob("*"))
    result = call("train", *arguments, cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.process
@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        (("--scenario", "ALE/Pogn-v5"), "ALE/Pong-v5"),
        (("--scenario", "CartPol-v1"), "CartPole"),
        (("--device", "gpus"), "auto, cpu, gpu"),
        (("--device", "gpu:99"), "TensorFlow sees"),
        (("--engine", "queue", "--advantage", "n_step"), "--no-vtrace"),
        (("--scenario", "pong", "--shaping-weight", "2"), "--shaping-weight has no effect here: pong has no shaping"),
        (("--final-shaping-weight", "0"), "--final-shaping-weight has no effect here: basic has no shaping"),
        (("--scenario", "pong", "--sequence-length", "8"), "--sequence-length has no effect here: pong has no"),
    ],
)
def test_mistakes_about_games_and_modes_give_one_line(tmp_path, arguments, remedy):
    result = call("train", *arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert remedy in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.process
def test_the_device_in_a_scenario_file_is_used(tmp_path):
    (tmp_path / "mine.toml").write_text('base = "cartpole"\n[training]\ndevice = "gpu:99"\n')
    refused = call("train", "--scenario", "mine.toml", cwd=tmp_path)
    assert refused.returncode == 2
    assert "TensorFlow sees" in refused.stderr


@pytest.mark.process
@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("", "--model: it is empty"),
        (".", "is a folder"),
        ("none.ckpt", "there is no checkpoint"),
        ("a" * 300, "there is no checkpoint or model"),
    ],
)
def test_a_file_that_is_no_model_gives_a_one_line_error(tmp_path, model, message):
    result = call("play", "--model", model, cwd=tmp_path)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_model_in_a_forbidden_folder_gives_an_error(monkeypatch):
    def refuse(path, **options):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", refuse)
    assert "Permission denied" in complaint(check_exists, Path("models/last.ckpt"))


@pytest.mark.process
def test_play_without_a_model_or_a_display_gives_one_line(tmp_path, monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    result = call("play", cwd=tmp_path)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "no run has saved a checkpoint" in result.stderr
    result = call("play", "--window", cwd=tmp_path)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "display" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--compare", "a", "b", "--record-episodes", "3"), "--record-episodes has no effect with --compare"),
        (("--export", "onnx", "--episodes", "3"), "--episodes has no effect with --export"),
        (("--speed", "2"), "--speed has no effect without --window"),
        (("--overlay", "--record-episodes", "0"), "--overlay has no effect without --window, and with --record-episodes 0"),
        (("--overlay", "nonsense"), "it takes plain or saliency"),
    ],
)
def test_useless_flags_of_play_give_a_one_line_error(flags, message, tmp_path):
    result = call("play", *flags, cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.process
def test_help_states_default_unit_and_range():
    result = call("train", "--help", cwd=ROOT)
    assert result.returncode == 0
    text = " ".join(result.stdout.split())
    assert "[default 0.99; 0 to 1]" in text
    assert "[default 16; games per worker; 1 to 4,096]" in text
    assert "[default one per CPU; threads; 0 to 1,024]" in text
    assert "[default 0; 0 to 2,147,483,647]" in text  # for the seed
    assert "[default unset; frames; 1 to 64]" in text  # for the frame skip, which the scenario sets


@pytest.mark.process
def test_help_starts_with_common_flags_and_lists_each_once():
    lines = call("train", "--help", cwd=ROOT).stdout.splitlines()
    assert lines[0] == "usage: train.py [flags]"
    titles = [line[:-1] for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["options", "common settings", "settings", "--engine queue", "--engine cluster", titles[-1]]
    flags = [line.split()[0].rstrip(",") for line in lines if line.startswith("  --")]
    assert len(flags) == len(set(flags)) > 60
    usual = lines[lines.index("common settings:") : lines.index("settings:")]
    assert 12 <= sum(line.startswith("  --") for line in usual) <= 14
    assert not {"--no-resume", "--no-list-scenarios", "--no-quiet", "--no-verbose"} & set(flags)


@pytest.mark.process
def test_only_flags_that_a_scenario_can_set_have_a_no_form(tmp_path):
    assert "unknown argument --no-resume" in call("train", "--no-resume", cwd=tmp_path).stderr
    assert "--no-vtrace" in call("train", "--help", cwd=tmp_path).stdout


@pytest.mark.process
def test_version_and_shell_completion_are_printed(tmp_path):
    assert call("play", "--version", cwd=tmp_path).stdout == f"doom_a3c {__version__}\n"
    completion = call("train", "--print-completion", "bash", cwd=tmp_path)
    assert completion.returncode == 0
    checked = subprocess.run(["bash", "-n"], input=completion.stdout, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "--rollout-length" in completion.stdout
    assert call("train", "--print-completion", "fisch", cwd=tmp_path).returncode == 2


@pytest.mark.process
@pytest.mark.parametrize("program", ["train", "play"])
def test_a_python_without_the_packages_gets_instructions(tmp_path, program):
    (tmp_path / "last.ckpt").touch()
    arguments = {"train": (), "play": ("--model", "last.ckpt")}[program]
    bare = [sys.executable, "-S", str(ROOT / f"{program}.py"), *arguments]  # only the standard library
    result = subprocess.run(bare, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
    assert "not installed for" in result.stderr
    assert ". .venv/bin/activate" in result.stderr


BLOCKER = """
import os, sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in os.environ["BLOCKED"].split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
"""
BUT_NUMPY = " ".join({*PACKAGES, "google", "absl", "keras", "h5py"} - {"numpy"})
PLAYED = ("play", "--model", "basic", "--episodes", "1", "--random-episodes", "0")


@pytest.mark.process
@pytest.mark.parametrize(
    ("blocked", "arguments", "packages"),
    [
        (BUT_NUMPY, ("train",), ("tensorflow", "requirements.txt")),
        (BUT_NUMPY, ("play", "--model", "basic"), ("tensorflow", "requirements.txt")),
        ("tensorflow google", ("train",), ("pip install tensorflow ",)),
        ("vizdoom", ("train",), ("pip install vizdoom ",)),
        ("gymnasium", ("train",), ("pip install gymnasium ",)),
        ("ale_py", ("train", "--scenario", "pong"), ("pip install ale-py ",)),
        ("cv2", PLAYED, ("pip install opencv-python-headless ",)),  # in a game process
        ("scipy", PLAYED, ("pip install scipy ",)),
        ("rich", ("play", "--list-models"), ("pip install rich ",)),
        ("google", ("train",), ("pip install protobuf ",)),
    ],
)
def test_missing_packages_are_named_as_pip_installs_them(tmp_path, blocked, arguments, packages):
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    program = [sys.executable, str(ROOT / f"{arguments[0]}.py"), *arguments[1:]]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "BLOCKED": blocked}
    result = subprocess.run(program, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 2, result.stderr
    line = result.stderr.splitlines()[-1]
    assert [token for token in (*packages, "not installed for", "-c constraints.txt") if token not in line] == []
    assert ("google" in line, "Traceback" in result.stderr) == (False, False)


def test_the_named_packages_match_the_requirements():
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    required = {re.split(r"[\[<>=;]", line)[0] for line in lines if line and not line.startswith("#")}
    assert {*PACKAGES.values(), "tomli"} == required


@pytest.mark.process
@pytest.mark.parametrize("name", ["a/b", "..", "~x", "a\nb", "x" * 200, ""])
def test_an_invalid_run_name_gives_a_one_line_error(tmp_path, name):
    result = call("train", "--name", name, cwd=tmp_path)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert "name" in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
@pytest.mark.parametrize(("columns", "widest"), [(80, 80), (200, 100)])
def test_the_scenario_list_describes_each_and_fits_the_terminal(tmp_path, columns, widest):
    result = call("train", "--list-scenarios", cwd=tmp_path, COLUMNS=str(columns))
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    assert widest - 10 < max(map(len, lines)) <= widest
    assert set(list_scenario_files()) < set(lines)
    basic = lines[lines.index("basic") :]
    assert basic[1:3] == [
        "    basic.wad, input 84x84x1, core lstm, budget 600,000 frames",
        "    MOVE_LEFT MOVE_RIGHT ATTACK",
    ]
    assert basic[3].startswith("    score to expect: 80 (mean of 100 episodes); 75 within")
    assert lines[lines.index("pong") + 2] == "    NOOP FIRE RIGHT LEFT RIGHTFIRE LEFTFIRE"
    assert lines[lines.index("cartpole") + 2] == "    2 actions"
    assert lines[lines.index("deadly_corridor") + 2].endswith(" MOVE_LEFT+MOVE_FORWARD+TURN_LEFT ...")
