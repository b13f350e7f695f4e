"""Trains with this program: python train.py --scenario basic.wad, watched through its own summary and TensorBoard points.

The points are reported at the end of the run, with the times at which they were logged.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from report import Report, runner_flags

TRAIN = Path(__file__).resolve().parent.parent.parent / "train.py"
WORKERS = 2


def logged(folder: Path) -> Iterator[tuple[float, int]]:
    """Yields time and frames of every point that a run has logged."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # imports TensorFlow

    events = EventAccumulator(str(next(folder.glob("*/global"))), size_guidance={"tensors": 0}).Reload()
    for event in events.Tensors("Perf/Episodes"):
        yield event.wall_time, event.step


def main() -> None:
    """Trains to the target, or until the time is up."""
    options = runner_flags((__doc__ or "").splitlines()[0]).parse_args()
    shape = [f"--workers={WORKERS}", f"--games={options.games // WORKERS}"]
    folders = [f"--{name}-dir={Path(name).absolute()}" for name in ("models", "frames", "logs")]
    limits = [f"--target-score={options.target_score}", f"--minutes={options.minutes}"]
    game = ["--scenario=basic.wad", f"--frame-skip={options.frame_skip}", f"--seed={options.seed}", *shape]
    start = time.time()
    command = [sys.executable, str(TRAIN), *game, *limits, *folders, "--summary=summary.json", "--quiet"]
    subprocess.run(command, check=True)
    report = Report(options.points)
    for at, frames in logged(Path("logs")):
        report.point(frames, at=at)
    summary = json.loads(Path("summary.json").read_text())
    report.point(summary["frames"], summary["mean_100"], start + summary["seconds"])


if __name__ == "__main__":
    main()
