"""The panel in a notebook: one output of the cell, redrawn in place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from doom_a3c.cli.layout import wrap
from doom_a3c.cli.screen import draw_panel

if TYPE_CHECKING:
    from doom_a3c.run.reporter import Status  # loads TensorFlow, which the panel must not wait for

_WIDTH = 100  # columns


class NotebookPanel:
    """Redraws the panel, with the newest message below it. Owns an output of the current cell."""

    seconds = 0.5

    def __init__(self) -> None:
        from IPython.display import display  # late: only notebooks have it

        self._console = Console(width=_WIDTH, color_system=None, force_jupyter=False, highlight=False)
        self._message = ""
        self._output = display({"text/plain": ""}, raw=True, display_id=True)

    def show(self, status: Status | None, phase: str) -> None:
        """Draws the panel."""
        with self._console.capture() as capture:
            self._console.print(draw_panel(status, phase, _WIDTH))
        lines = [line.rstrip() for line in capture.get().splitlines()]
        self._output.update({"text/plain": "\n".join([*lines, wrap(self._message, _WIDTH)])}, raw=True)

    def log(self, message: str) -> None:
        """Replaces the message: a long run would fill the notebook with them."""
        self._message = message

    def close(self) -> None:
        """Leaves the panel in the notebook."""
