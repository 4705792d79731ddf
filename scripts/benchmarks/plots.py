# SPDX-License-Identifier: BSD-3-Clause
"""Plots as SVG: small, the same bytes for the same figures, readable on a light and on a dark page."""
import importlib.util

GREY = "#768390"  # for text and lines: has contrast on white and on black
# One colour a name, on every plot of the page.
COLOURS = {"ddprun": "#2f81f7", "ddprun --preload": "#a371f7", "torchrun": "#f0883e", "Open MPI": "#3fb950",
           "MPICH": "#d4a72c", "shell": "#8b949e", "libddp": "#2f81f7", "torch": "#f0883e", "Gloo": "#db61a2",
           "NCCL": "#57ab5a", "bound": GREY, "ddprun, plain": "#79c0ff", "torchrun, own store": "#db61a2",
           "start": "#39c5cf", "import": "#f0883e", "init": "#8957e5", "all_reduce": "#3fb950", "end": "#8b949e"}
FURTHER = ["#39c5cf", "#f85149", "#6e40c9", "#57ab5a", "#bf8700"]

STYLE = {
    "svg.hashsalt": "ddprun", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9,
    "text.color": GREY, "axes.labelcolor": GREY, "axes.edgecolor": GREY, "xtick.color": GREY, "ytick.color": GREY,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": GREY, "grid.alpha": 0.25,
    "axes.axisbelow": True, "legend.frameon": False, "figure.figsize": (7.2, 3.2), "savefig.transparent": True,
}


def colour(name, index=0):
    return COLOURS.get(name) or COLOURS.get(name.partition(",")[0]) or FURTHER[index % len(FURTHER)]


def save(path, draw):
    """draw(axes) on an empty plot; returns why it could not, or None."""
    if not importlib.util.find_spec("matplotlib"):
        return "python3-matplotlib is missing"
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(layout="constrained")
        draw(axes)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
        pyplot.close(figure)
    return None


def _legend(axes):
    axes.legend(ncols=5, loc="lower center", bbox_to_anchor=(0.5, 1))


def grouped_bars(axes, groups, figure, names, labels=None):
    """A cluster of bars for each group, one for each name; a thin line: the middle half of the runs."""
    width = 0.8 / len(names)
    for index, name in enumerate(names):
        for place, group in enumerate(groups):
            row = group.row(name)
            median = row.median(figure) if row else None
            if median is None:
                continue
            lower, upper = row.quartiles(figure)
            axes.bar(place + (index - (len(names) - 1) / 2) * width, median, 0.9 * width, color=colour(name, index),
                     label=name if name not in axes.get_legend_handles_labels()[1] else None,
                     yerr=[[median - lower], [upper - median]], ecolor=GREY, error_kw={"elinewidth": 1})
    axes.set_xticks(range(len(groups)), labels or [group.name for group in groups])
    axes.grid(axis="x", visible=False)
    _legend(axes)


def stacked_bars(axes, bars, parts):
    """Horizontal bars: {name: {part: value}}, parts in their order from the left."""
    names = list(bars)
    left = [0.0] * len(names)
    for index, part in enumerate(parts):
        values = [bars[name].get(part, 0.0) for name in names]
        axes.barh(range(len(names)), values, 0.6, left=left, label=part, color=colour(part, index))
        left = [start + value for start, value in zip(left, values)]
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    _legend(axes)


def curves(axes, series):
    """{name: [(x, y), ...]} on logarithmic axes."""
    for index, (name, points) in enumerate(series.items()):
        axes.plot(*zip(*sorted(points)), marker="o", markersize=3, linewidth=1.3, color=colour(name, index), label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    _legend(axes)
