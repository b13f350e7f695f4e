"""Draws a flame graph of where training's worker threads spend their time.

    python -m benchmarks.flame --setting 2x16 --out docs/flame.svg

Samples the Python stacks of all workers a few hundred times a second while they train as in `benchmarks.throughput`. A
box is a function, its width the share of samples in which it or a callee was running or waiting. Wide boxes that wait for
games (`_read_exactly`) cost nothing while other workers compute. A sample needs the GIL, which workers release while they
wait or compute, so time in Python itself is underestimated.
"""

from __future__ import annotations

import html
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

from benchmarks.common.command import make_parser, run_command
from benchmarks.common.paths import ROOT
from benchmarks.common.speed import Parts, parse_settings
from doom_a3c.run.imports import import_tensorflow
from doom_a3c.settings import catalog
from doom_a3c.settings.config import cpu_count
from doom_a3c.settings.scenarios import apply_overrides

WIDTH, ROW = 1200, 18  # pixels
UPDATE = "threads._update"  # a worker's main loop, once its games have started
Stack = tuple[str, ...]  # functions, outermost first


def read_stack(frame: FrameType | None) -> Stack:
    """Returns a thread's stack of this project's functions, and the outside function that they called."""
    names: list[str] = []
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(str(ROOT / "doom_a3c")):
            names.append(f"{Path(code.co_filename).stem}.{code.co_name}")
        elif not names:
            names = [f"({Path(code.co_filename).stem}.{code.co_name})"]
        frame = frame.f_back
    return tuple(reversed(names))


def sample_stacks(parts: Parts, seconds: float, pause: float = 0.003) -> Counter[Stack]:
    """Counts how often each stack occurs during training."""
    seen: Counter[Stack] = Counter()
    stop = threading.Event()

    def sample() -> None:
        while not stop.wait(pause):
            for frame in sys._current_frames().values():
                names = read_stack(frame)
                if UPDATE in names:
                    seen[names[names.index(UPDATE) + 1 :]] += 1

    watcher = threading.Thread(target=sample)
    parts.training(seconds)  # compiles
    watcher.start()
    try:
        parts.training(seconds)
    finally:
        stop.set()
        watcher.join()
    return seen


def draw_svg(seen: Counter[Stack]) -> str:
    """Returns the flame graph of stacks and their counts, callers above callees."""
    total, boxes = sum(seen.values()), []

    def draw(stacks: Counter[Stack], depth: int, left: float) -> None:
        callees: dict[str, Counter[Stack]] = {}
        for names, count in stacks.items():
            if names:
                callees.setdefault(names[0], Counter())[names[1:]] += count
        for name, inner in sorted(callees.items(), key=lambda item: -item[1].total()):
            width = WIDTH * inner.total() / total
            if width >= 2:
                label = html.escape(f"{name} {inner.total() / total:.0%}")
                hue = 10 + sum(map(ord, name)) % 45
                boxes.append(
                    f'<g><title>{label}</title><rect x="{left:.1f}" y="{depth * ROW}" width="{width:.1f}" '
                    f'height="{ROW - 1}" fill="hsl({hue},75%,65%)"/><svg x="{left:.1f}" y="{depth * ROW}" '
                    f'width="{width:.1f}" height="{ROW}"><text x="3" y="13">{label}</text></svg></g>'
                )
                draw(inner, depth + 1, left)
            left += width

    draw(seen, 0, 0.0)
    height = ROW * max(map(len, seen))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="11">'
    return "\n".join([head, *boxes, "</svg>\n"])


def main() -> None:
    """Samples and draws."""
    parser = make_parser("flame", __doc__)
    parser.add_argument("--scenario", default="basic", help="scenario to train (default basic)")
    parser.add_argument(
        "--setting",
        type=lambda text: parse_settings(text)[0],
        default="2x16",
        help="workers x games (x processes), default 2x16",
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds to sample for (default 10)")
    parser.add_argument("--out", type=Path, required=True, help="the .svg file to write")
    options = parser.parse_args()
    import_tensorflow(cpu_count(), verbose=False, device="auto")
    found = catalog.find(options.scenario)
    scenario, config = apply_overrides(found, found.training, found.name)
    parts = Parts(scenario, config, *options.setting)
    start = time.monotonic()
    seen = sample_stacks(parts, options.seconds)
    options.out.write_text(draw_svg(seen))
    print(f"{sum(seen.values())} samples in {time.monotonic() - start:.0f} s: {options.out}")


if __name__ == "__main__":
    run_command("flame", main)
