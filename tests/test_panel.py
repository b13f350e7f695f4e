"""How a run is shown on terminals of any width, and in files and pipes."""

import fcntl
import io
import os
import re
import select
import shutil
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pyte
import pytest
from commands import call
from fakes import until
from rich.console import Console

from doom_a3c.cli import command
from doom_a3c.cli.lines import Lines
from doom_a3c.cli.screen import LivePanel, draw_panel
from doom_a3c.cli.status import draw_sparkline, format_curve, format_rows, format_time_left
from doom_a3c.record.metrics.counters import EvaluationPoint
from doom_a3c.run.reporter import Status
from doom_a3c.settings.errors import UserError

ROOT = Path(__file__).parent.parent
STATUS = Status(
    share=0.234,
    seconds_left=3725.0,
    frames=2_340_000,
    frame_budget=10_000_000,
    frames_per_second=11_585.4,
    episodes=12_304,
    mean_score=75.25,
    mean_of=100,
    mean_new=100,
    means=[-300.0, 0.0, 75.25],
    expected_mean=80.0,
    random_mean=-154.0,
    rated=False,
    evaluation=EvaluationPoint(2_300_000, 70.0, 5.0, 68.0, 5.0),
    evaluations=[],
    best_evaluation=81.3,
    confirmed=False,
    entropy=0.1234,
    engine="2 hosts",
    faults={"engine_died": 1, "server_hung": 2},
    gif=Path("frames/basic-20261122-155611/worker_1-episode_0000000-score_67-20261122-155611.gif"),
)
NOTHING_KNOWN = STATUS._replace(
    share=0.0,
    seconds_left=None,
    frames_per_second=None,
    mean_score=None,
    mean_of=43,
    mean_new=43,
    means=[],
    expected_mean=None,
    random_mean=None,
    evaluation=None,
    best_evaluation=None,
    entropy=None,
    engine="",
    faults={},
    gif=None,
)
QUICK = ("--workers", "1", "--envs-per-worker", "4", "--evaluation-episodes", "2", "--evaluate-every", "1")
SMALL = ("--scenario", "cartpole", *QUICK)
SLOW = ("--scenario", "registered_toys:tests/Slow-v0", *QUICK, "--minutes", "30")  # its time left fits a narrow panel
TOYS = {"PYTHONPATH": str(ROOT / "tests")}


def drawn(status, phase, width, height=None):
    """Returns the lines of a panel on a terminal of the given size."""
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(draw_panel(status, phase, width, height))
    return console.file.getvalue().split("\n")[:-1]


class Terminal:
    """A program on a pseudo-terminal, and its screen in an emulator."""

    def __init__(self, folder, columns, *command, **environment):
        self._master, slave = os.openpty()
        self._screen = pyte.HistoryScreen(columns, 40, history=10_000)
        self._stream = pyte.ByteStream(self._screen)
        self.resize(columns)
        start = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
        self.process = subprocess.Popen(
            [sys.executable, "-c", start, sys.executable, *command],
            cwd=folder,
            env={**os.environ, "TERM": "xterm", **environment},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)

    def resize(self, columns):
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._screen.resize(40, columns)

    def press(self, keys):
        os.write(self._master, keys)

    def wait_for(self, text, seconds=240):
        """Reads output until the screen shows a text; fails after `seconds`, or if the program ends."""
        last = time.monotonic() + seconds
        while text not in "\n".join(self.lines) and time.monotonic() < last and self._read(seconds):
            pass
        assert text in "\n".join(self.lines)

    def end(self):
        """Waits for the program to end; returns its exit status and all lines that remain."""
        while self._read(120):
            pass
        status = self.process.wait(120)
        os.close(self._master)
        return status, self.lines

    def _read(self, seconds):
        ready, _, _ = select.select([self._master], [], [], seconds)
        try:
            data = os.read(self._master, 65536) if ready else b""
        except OSError:  # the program has closed it
            return False
        self._stream.feed(data)
        return bool(data)

    @property
    def lines(self):
        above = ["".join(line[column].data for column in range(self._screen.columns)) for line in self._screen.history.top]
        return [line.rstrip() for line in [*above, *self._screen.display]]

    @property
    def cursor_is_shown(self):
        return not self._screen.cursor.hidden

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.mark.parametrize("width", [1, 2, 10, 20, 21, 40, 80, 200])
@pytest.mark.parametrize("status", [STATUS, NOTHING_KNOWN, None], ids=["all", "nothing", "before"])
def test_each_row_fits_on_one_line_at_any_width(status, width):
    lines = drawn(status, "starting 48 games: 12, loading TensorFlow", width)
    assert all(len(line) <= width for line in lines)
    folded = [line for line in lines[1:] if line.startswith(" " * 10)]  # the rest of the gif's name
    if status is not STATUS or width > 20:
        assert len(lines) - len(folded) == 1 + (0 if status is None else 1 + len(format_rows(status)))


@pytest.mark.parametrize("width", [40, 60, 80])
def test_the_newest_part_of_a_curve_is_drawn(width):
    means = [0.0] * 50 + [100.0]
    (line,) = [line for line in drawn(STATUS._replace(means=means), "", width) if line.startswith("mean of 100")]
    assert line.rstrip().endswith("\u2588")
    assert len(line) <= width


def test_a_panel_begins_with_the_progress_of_the_run():
    first, *others = drawn(STATUS, "saving", 80)
    assert first.rstrip().endswith(" 23.4%  1:02:05 left")
    assert [re.split(r"  +", line.rstrip()) for line in others] == [
        ["frames", "2,340,000/10,000,000, 11,585 a second"],
        ["mean of 100", "75.2", "▁▇█"],
        ["to expect", "a trained agent 80.0, random play -154.0"],
        ["evaluation", "greedy 70.0, sampled 68.0, highest so far 81.3"],
        ["episodes", "12,304"],
        ["entropy", "0.123"],
        ["engine", "2 hosts"],
        ["faults", "engine_died 1, server_hung 2"],
        ["newest gif", STATUS.gif.name],
        ["saving"],
    ]


@pytest.mark.parametrize("width", [30, 66, 80, 200])
def test_the_name_of_the_newest_gif_is_not_cut_off(width):
    text = "".join(line[13:].rstrip() for line in drawn(STATUS, "", width) if line[:13].strip() in ("", "newest gif"))
    assert text == (str(STATUS.gif) if width == 200 else STATUS.gif.name)


def test_a_panel_shows_the_ctrl_c_hint_only_during_the_run(monkeypatch):
    output = fake_terminal(monkeypatch)
    panel = LivePanel()
    panel.show(None, "")
    assert "Ctrl-C" not in output.getvalue()
    panel.show(STATUS, "")
    assert "Ctrl-C saves and ends" in output.getvalue()
    output.truncate(0)
    panel.show(STATUS, "saving")
    panel.close()
    assert "Ctrl-C" not in output.getvalue()


def test_a_panel_drawn_just_before_a_resize_leaves_nothing(monkeypatch):
    output = fake_terminal(monkeypatch)
    panel, screen = LivePanel(), pyte.HistoryScreen(100, 40)
    stream = pyte.Stream(screen)
    for number, width in enumerate((100, 30, 80, 20, 60, 25, 90)):
        panel.log(f"message {number}")
        panel.show(STATUS, "")
        screen.resize(40, width)  # before the terminal has read the output for the previous width
        stream.feed(output.getvalue().replace("\n", "\r\n"))
        output.seek(output.truncate(0))
        panel._console.width = width
    panel.show(STATUS, "")
    panel.close()
    stream.feed(output.getvalue().replace("\n", "\r\n"))
    lines = [line.rstrip() for line in screen.display if line.strip()]
    assert lines[:8] == [*(f"message {number}" for number in range(7)), lines[7]]
    assert len([line for line in lines if line.startswith("frames ")]) == 1
    assert len(lines) == 7 + len(drawn(STATUS, "", 90))
    assert "Ctrl-C" not in "".join(lines)


@pytest.mark.parametrize("height", [1, 2, 3, 7, 8, 12, 40])
@pytest.mark.parametrize("status", [STATUS, NOTHING_KNOWN, None], ids=["all", "nothing", "before"])
@pytest.mark.parametrize("width", [20, 40])
def test_a_low_terminal_keeps_the_first_line_and_the_note(status, height, width):
    whole, lines = drawn(status, "saving", width), drawn(status, "saving", width, height)
    assert len(lines) == min(height, len(whole))
    kept = len(lines) if height == 1 else len(lines) - 1
    assert lines[:kept] == whole[:kept]
    assert height == 1 or lines[-1].rstrip() == "saving"


class KeepingScreen(pyte.HistoryScreen):
    """A screen that saves all its lines to the history when it is erased from the top left, as tmux does."""

    def erase_in_display(self, how=0, *arguments, **options):
        if how == 0 and (self.cursor.x, self.cursor.y) == (0, 0):
            self.history.top.extend(dict(self.buffer[row]) for row in range(self.lines))
        super().erase_in_display(how, *arguments, **options)


@pytest.mark.parametrize("heights", [(8, 8, 8), (1, 2, 3), (8, 24, 8), (24, 4, 24)])
def test_a_low_terminal_shows_a_single_panel(heights, monkeypatch):
    output = fake_terminal(monkeypatch)
    panel, screen = LivePanel(), KeepingScreen(40, heights[0], history=1000)
    stream = pyte.Stream(screen)

    def read():
        stream.feed(output.getvalue().replace("\n", "\r\n"))
        output.seek(output.truncate(0))
        return ["".join(line[at].data if at in line else " " for at in range(40)) for line in screen.history.top]

    for height in heights:
        screen.resize(height, 40)
        panel._console.size = (40, height)
        panel.log(f"{height} lines")
        for frames in range(3):
            panel.show(STATUS._replace(frames=frames), "")
            assert not [line for line in read() if line.startswith("frames ")]
            assert len([line for line in screen.display if " left" in line]) == 1
    panel.close()
    lines = [*read(), *screen.display]
    for name, _ in format_rows(STATUS):
        assert len([line for line in lines if line.startswith(f"{name} ")]) == 1


def test_the_cursor_waits_at_the_start_of_the_panel(monkeypatch):
    """A terminal that rewraps lines keeps the cursor on that line."""
    output = fake_terminal(monkeypatch)
    panel, screen = LivePanel(), pyte.Screen(100, 40)
    stream = pyte.Stream(screen)
    for number in range(3):
        panel.log(f"message {number}")
        panel.show(STATUS, "")
        stream.feed(output.getvalue().replace("\n", "\r\n"))
        output.seek(output.truncate(0))
        panel._console.width = 100
        assert (screen.cursor.x, screen.cursor.y) == (0, number + 1)
        assert " left" in screen.display[number + 1]
    screen.insert_lines(5)  # as if lines of the panel had been wrapped
    panel.close()
    stream.feed(output.getvalue().replace("\n", "\r\n"))
    lines = [line.rstrip() for line in screen.display if line.strip()]
    assert len(lines) == 3 + len(drawn(STATUS, "", 100))
    assert screen.cursor.y == len(lines)


@pytest.mark.parametrize("columns", [30, 60])
def test_errors_on_a_terminal_wrap_between_words(columns, monkeypatch):
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))

    def fail(arguments):
        raise UserError("unknown scenario 'cartpol'; did you mean cartpole? --list-scenarios shows all")

    with os.fdopen(slave, "w") as stream:
        monkeypatch.setattr("sys.stderr", stream)
        assert command.run("train.py", fail, []) == 2
        lines = os.read(master, 10_000).decode().splitlines()
    os.close(master)
    assert all(len(line) <= columns for line in lines)
    assert " ".join(lines) == "train.py: unknown scenario 'cartpol'; did you mean cartpole? --list-scenarios shows all"
    assert len(lines) > 1


def test_unknown_values_are_left_out():
    assert format_rows(NOTHING_KNOWN) == [
        ("frames", "2,340,000/10,000,000"),
        ("mean of 100", "(43 of 100 episodes counted)"),
        ("episodes", "12,304"),
    ]
    assert format_time_left(NOTHING_KNOWN) == ""
    assert dict(format_rows(STATUS._replace(mean_new=3)))["mean of 100"].startswith("75.2 (3 of its 100 episodes ")
    resumed = NOTHING_KNOWN._replace(best_evaluation=5.0)
    assert dict(format_rows(resumed))["evaluation"] == "highest so far 5.00"
    assert dict(format_rows(resumed._replace(confirmed=True)))["evaluation"] == "best 5.00"


def test_evaluations_in_a_league_are_shown_as_ratings():
    rows = dict(format_rows(STATUS._replace(rated=True)))
    assert rows["rating"].startswith("greedy 70.0, sampled 68.0")
    assert "evaluation" not in rows


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.0, "0:00 left"), (59.6, "1:00 left"), (65.0, "1:05 left"), (86_400.0, "24:00:00 left")]
)
def test_time_left_is_in_hours_minutes_and_seconds(seconds, words):
    assert format_time_left(STATUS._replace(seconds_left=seconds)) == words


@pytest.mark.parametrize(
    ("values", "curve"), [([], ""), ([1.0], ""), ([5.0, 5.0], "▁▁"), ([-1e100, 1e100], "▁█"), (range(8), "▁▂▃▄▅▆▇█")]
)
def test_a_curve_is_drawn_as_a_sparkline(values, curve):
    assert draw_sparkline(values) == curve


def test_the_final_curve_is_one_line_with_its_extremes():
    assert format_curve([1.0], 30) == ""
    line = format_curve([-5.0, 30.0, 12.5], 30)
    assert "\n" not in line
    assert "\u2581\u2588\u2585" in line
    assert all(part in line for part in ("min -5.00", "max 30.0"))
    assert format_curve([40.0, 12.5, 1.0, -5.0], 2).split("  ")[1:] == ["\u2588\u2581", "min -5.00, max 40.0"]


@pytest.fixture
def terminal(tmp_path):
    made = []

    def make(columns, *arguments, program="train", settings=SMALL, **environment):
        made.append(Terminal(tmp_path, columns, str(ROOT / f"{program}.py"), *settings, *arguments, **environment))
        return made[-1]

    yield make
    for one in made:
        one.kill()


@pytest.mark.process
def test_a_resized_terminal_shows_a_single_panel(terminal, tmp_path):
    run = terminal(80, settings=SLOW, COLUMNS="80", LINES="40", **TOYS)
    run.wait_for("loading TensorFlow")
    run.wait_for(" left")
    run.wait_for("evaluation at")
    for columns in (30, 100, 45, 120, 25, 80):
        run.resize(columns)
        run.wait_for(" left")
    run.press(b"\x03")
    status, lines = run.end()
    assert status == 130
    assert run.cursor_is_shown
    assert len([line for line in lines if line.startswith("frames ")]) == 1
    assert not [line for line in lines if "nan" in line or "Traceback" in line]
    assert any(line.startswith("ended by SIGINT") for line in lines)
    assert (tmp_path / "models" / "last.ckpt").exists()


@pytest.mark.process
@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")
def test_a_low_resized_tmux_window_keeps_a_single_panel(tmp_path):
    status = STATUS._replace(gif=None)
    (tmp_path / "show.py").write_text(f"""
import os, pathlib, time
from collections import namedtuple
from doom_a3c.cli.screen import LivePanel
from doom_a3c.record.metrics.counters import EvaluationPoint
facts = {status._asdict()}
status, panel = namedtuple("Status", facts)(**facts), LivePanel()  # the real one would load TensorFlow
for frames in range(8):
    panel.log(f"message {{frames}}")
    for more in range(3):
        panel.show(status._replace(frames=10 * frames + more), "")
    while not pathlib.Path(f"{{os.get_terminal_size()}}{{frames}}").exists():  # tmux passes sizes on with a delay
        time.sleep(0.01)
panel.close()
print("the end", flush=True)
time.sleep(60)
""")
    name = f"doom-a3c-{os.getpid()}"

    def tmux(*arguments):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "TMUX_TMPDIR": str(tmp_path)}
        command = ("tmux", "-L", name, "-f", "/dev/null", *arguments)
        return subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout

    tmux("new-session", "-d", "-x", "40", "-y", "8", f"{sys.executable} show.py")
    try:
        for number, (columns, rows) in enumerate([(40, 8)] * 4 + [(100, 24), (60, 5), (40, 1), (100, 24)]):
            tmux("resize-window", "-x", str(columns), "-y", str(rows))
            (tmp_path / f"{os.terminal_size((columns, rows))}{number}").touch()
            shown = f"message {number + 1}" if rows == 1 else f"{number + 1}2/10,"
            shown = "the end" if number == 7 else shown
            until(lambda: shown in tmux("capture-pane", "-p", "-S", "-"), shown)  # noqa: B023
        lines = tmux("capture-pane", "-p", "-S", "-").splitlines()
    finally:
        tmux("kill-server")
    assert [line for line in lines if line.startswith("message ")] == [f"message {number}" for number in range(8)]
    for row, _ in format_rows(status):
        assert len([line for line in lines if line.startswith(f"{row} ")]) == 1


@pytest.mark.process
def test_a_program_shows_one_panel_below_its_own_output(tmp_path):
    (tmp_path / "mine.py").write_text("""
import sys, doom_a3c as dc
from registered_toys import Slow
settings = dict(workers=1, envs_per_worker=4, evaluation_episodes=2, evaluate_every=1.0)

def say(evaluation):
    print("heard of", evaluation.frames)
    print("aside", file=sys.stderr)

print("it is", dc.train(Slow, minutes=0.1, on_evaluation=say, **settings))
dc.train(Slow, frames=50, progress=False, **settings)
""")
    program = Terminal(tmp_path, 100, "mine.py", PYTHONPATH=os.pathsep.join([str(ROOT), *TOYS.values()]))
    status, lines = program.end()
    assert (status, program.cursor_is_shown) == (0, True)
    assert len([line for line in lines if line.startswith("frames ")]) == 1
    for begin in ("heard of ", "aside", "training Slow: ", "evaluation at ", "it is <Agent Slow: "):
        assert any(line.startswith(begin) for line in lines), begin


@pytest.mark.process
def test_a_dumb_terminal_gets_plain_lines(terminal):
    run = terminal(80, "--frames", "300", TERM="dumb")
    status, lines = run.end()
    assert status == 0
    assert "\x1b" not in "".join(lines)
    assert any(line.startswith("ended by frames") for line in lines)


@pytest.mark.process
@pytest.mark.parametrize(("columns", "drawn"), [(80, f"{0:7d} {'':7} "), (20, "\n      0\n")])
def test_a_running_episode_is_shown_until_its_row_replaces_it(columns, drawn, terminal):
    run = terminal(
        columns, "--episodes", "2", "--record-episodes", "2", program="play", settings=("--model", "cartpole"), COLUMNS="80"
    )
    run.wait_for(drawn)  # no score yet
    status, lines = run.end()
    assert status == 0
    shown = " ".join(lines).split()
    assert shown[shown.index("steps") + 1 :][:7] == ["0", "500.0", "500", "1", "500.0", "500", "mean"]


def fake_terminal(monkeypatch):
    """Makes a fake terminal the standard output and returns it. Not a fixture: pytest would replace it again."""
    output = io.StringIO()
    output.isatty = lambda: True
    monkeypatch.setattr("sys.stdout", output)
    return output


@pytest.mark.parametrize(("quiet", "term"), [(True, "xterm"), (False, "dumb")])
def test_no_progress_is_drawn_when_quiet_or_on_a_dumb_terminal(quiet, term, monkeypatch):
    monkeypatch.setenv("TERM", term)
    output = fake_terminal(monkeypatch)
    lines = Lines(quiet)
    lines.show_progress("under way")
    lines("done")
    assert output.getvalue() == ("" if quiet else "done\n")


def test_the_next_line_clears_the_progress_line(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    output = fake_terminal(monkeypatch)
    lines = Lines(False)
    lines.show_progress("under way")
    lines.show_progress("too soon")
    lines("done")
    lines.show_progress("again")
    lines.clear()
    assert output.getvalue() == "\x1b[Kunder way\r\x1b[Kdone\n\x1b[Kagain\r\x1b[K"


@pytest.mark.process
def test_a_pipe_gets_lines_without_escape_codes(tmp_path):
    result = call("train", *SLOW, "--minutes", "0.25", cwd=tmp_path, **TOYS)  # long enough for a line to appear
    assert (result.returncode, result.stderr) == (0, "")
    assert "\x1b" not in result.stdout
    assert "nan" not in result.stdout
    assert re.search(r"^\d+\.\d% \| 0:\d\d left \| frames [\d,]+/[\d,]+, [\d,]+ a second \| ", result.stdout, re.MULTILINE)
