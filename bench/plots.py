"""Pictures of growth: one PNG a table. Without matplotlib there are none."""

# mypy: disable-error-code="import-not-found,import-untyped"

from __future__ import annotations

import importlib.util
from pathlib import Path

from .figures import Growth

_SPAN = 10.0  # every picture shows at least this factor


def can_draw() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def draw(growth: Growth, path: Path) -> None:
    """One panel for each plotted column; both axes are logarithmic, so a straight flat line is the aim."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    across, count = growth.columns[0], len(growth.plotted)
    figure, panels = pyplot.subplots(
        1, count, figsize=(4.5 * count, 3.5), squeeze=False, layout="constrained"
    )
    for panel, column in zip(panels[0], growth.plotted, strict=True):
        index = list(growth.columns).index(column)
        panel.plot([row[0] for row in growth.rows], [row[index] for row in growth.rows], marker="o")
        panel.set(xlabel=across, ylabel=column, xscale="log", yscale="log")
        low, high = panel.get_ylim()
        if high / low < _SPAN:  # small changes must look small
            panel.set_ylim(low / _SPAN**0.5, high * _SPAN**0.5)
        panel.grid(visible=True, which="major", alpha=0.3)
    figure.suptitle(growth.name)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
