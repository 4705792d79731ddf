# SPDX-License-Identifier: BSD-3-Clause
"""The page of numbers, in Markdown: a part a section, with what it takes to repeat it."""
import dataclasses
import os

from . import plots


@dataclasses.dataclass
class Column:
    """Of a table: the median of a figure, and between which values the middle half of the runs lies."""
    title: str
    figure: str
    digits: int = 1
    spread: bool = True


def number(value, digits):
    return "–" if value is None else f"{value:,.{digits}f}"


def times(ratio):
    """Two or three digits: of a ratio no more are known."""
    return "–" if ratio is None else number(ratio, 2 if ratio < 1 else 1 if ratio < 100 else 0)


def cell(row, column):
    median, quartiles = row.median(column.figure), row.quartiles(column.figure)
    if median is None:
        return "–"
    if not column.spread or len(row.samples(column.figure)) < 2:
        return number(median, column.digits)
    lower, upper = quartiles
    return f"{number(median, column.digits)} ({number(lower, column.digits)}–{number(upper, column.digits)})"


class Page:
    """Collects lines; folder is where its plots go, beside the page."""

    def __init__(self, folder):
        self.lines = []
        self.folder = folder

    def text(self, *paragraphs):
        for paragraph in paragraphs:
            self.lines += [paragraph.strip(), ""]

    def heading(self, level, title):
        self.text(f"{'#' * level} {title}")

    def table(self, head, rows, left=1):
        """Cells are text; the first `left` columns are aligned to the left."""
        self.lines.append("| " + " | ".join(head) + " |")
        self.lines.append("|" + "|".join("---" if i < left else "---:" for i in range(len(head))) + "|")
        self.lines += ["| " + " | ".join(cells) + " |" for cells in rows]
        self.lines.append("")

    def rows(self, group, columns, base=None, ratio_of=None, title=None):
        """The table of a group. With a base, or several: how many times its figure another row's is, pair by pair."""
        figure = ratio_of or (columns[0].figure if columns else None)
        bases = [name for name in ([base] if isinstance(base, str) else base or []) if group.row(name)]
        head = [title or group.name, "runs", *(column.title for column in columns), *(f"× {name}" for name in bases)]
        cells = []
        for row in group.rows:
            if row.not_run:
                cells.append([row.name, f"not run: {row.not_run}"] + [""] * (len(head) - 2))
                continue
            worked = len(row.runs) - len(row.failures)
            line = [row.name, f"{worked} of {len(row.runs)}" if row.failures else str(len(row.runs))]
            line += [cell(row, column) for column in columns]
            line += ["" if row.name == name else times(row.ratio(group.row(name), figure)) for name in bases]
            cells.append(line)
        self.table(head, cells)

    def across(self, title, groups, name, columns):
        """The table of one contender: a line for each group."""
        rows = [(group, group.row(name)) for group in groups]
        self.table([title, "runs", *(column.title for column in columns)],
                   [[group.name, str(len(row.runs)), *(cell(row, column) for column in columns)] for group, row in rows])

    def commands(self, groups):
        """What was run under each name, once each, and why some runs gave no figure."""
        seen, failures = {}, {}
        for row in (row for group in groups for row in group.rows):
            if row.command and not row.not_run:
                seen.setdefault((row.name, row.version), []).append(row.command)
            for reason in row.failures:
                failures.setdefault(row.name, []).append(reason)
        if seen:
            self.lines += ["<details><summary>Commands</summary>", ""]
            for (name, version), commands in seen.items():
                shown = ", ".join(f"`{command}`" for command in dict.fromkeys(commands))
                self.lines.append(f"* {name}{f' ({version})' if version else ''}: {shown}")
            self.lines += ["", "</details>"]
        for name, reasons in failures.items():
            self.lines.append(f"* {name}, runs without a figure: {'; '.join(dict.fromkeys(reasons))}")
        self.lines.append("")

    def plot(self, name, says, draw):
        """draw(axes) draws it; says: what there is to see, for those who do not."""
        why_not = plots.save(os.path.join(self.folder, f"{name}.svg"), draw)
        self.text(f"(not drawn: {why_not})" if why_not else f"![{says}]({os.path.basename(self.folder)}/{name}.svg)")

    def origin(self, measured):
        before, after = measured.load
        self.text(f"<sub>`{measured.command}` on {measured.day} at {measured.commit}; {measured.machine}; load {before} "
                  f"before, {after} after.</sub>")

    def __str__(self):
        return "\n".join(self.lines).rstrip() + "\n"
