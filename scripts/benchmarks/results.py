# SPDX-License-Identifier: BSD-3-Clause
"""What a section measured, as JSON beside the page: the page can be made again without measuring."""
import dataclasses
import json
import os

from .rounds import Group, Row


@dataclasses.dataclass
class Measured:
    command: str  # that makes it again
    machine: str
    commit: str
    day: str
    load: list  # average of the last minute, before and after
    groups: list


def _path(folder, section):
    return os.path.join(folder, f"{section}.json")


def _rounded(value):
    """Six digits: more are noise, and make the file change for nothing."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def _one_line_each_run(value, indent=""):
    """JSON to be read and compared: lists of figures, and dictionaries of them, each on a line."""
    inner = indent + " "
    if isinstance(value, dict) and any(isinstance(item, (dict, list)) for item in value.values()):
        items = [f"{inner}{json.dumps(key)}: {_one_line_each_run(item, inner)}" for key, item in value.items()]
        return "{\n" + ",\n".join(items) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        return "[\n" + ",\n".join(inner + _one_line_each_run(item, inner) for item in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False)


def has_figures(groups):
    """Whether a run of any contender gave figures."""
    return any(run for group in groups for row in group.rows for run in row.runs)


def keep(folder, section, measured):
    os.makedirs(folder, exist_ok=True)
    with open(_path(folder, section), "w") as file:
        file.write(_one_line_each_run(_rounded(dataclasses.asdict(measured))) + "\n")


def find(folder, section):
    """None: it was not measured yet."""
    if not os.path.exists(_path(folder, section)):
        return None
    with open(_path(folder, section)) as file:
        fields = json.load(file)
    groups = [Group(g["name"], [Row(**row) for row in g["rows"]], g["facts"]) for g in fields.pop("groups")]
    return Measured(groups=groups, **fields)
