#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks that every page (*.md) of the repository refers to things that exist:

  * relative links and images lead to a file or folder, and their #anchors to a heading;
  * a list of contents at the beginning of a page has all of its headings;
  * each path in backticks that begins with a folder of the repository exists (`launcher/process/guardian` stands for
    guardian.hpp and guardian.cpp, `*` and `{a,b}` are expanded), and so does each public header (`ddp/session.hpp`).
    A path may also be relative to the folder of its page.

usage: links_test.py REPOSITORY
"""
import glob
import itertools
import os
import re
import sys

LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)[^)]*\)|^\[[^\]]+\]:\s*(\S+)", re.M)
CODE = re.compile(r"(`+)(.+?)\1", re.S)
FENCE = re.compile(r"^( *)(```+|~~~+).*?^ *\2 *$", re.M | re.S)
PATH = re.compile(r"[\w.*{},+-]+(?:/[\w.*{},+-]+)+/?")


def pages(root):
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if f not in ("build", "dist", ".git", "__pycache__")]
        yield from (os.path.join(folder, name) for name in files if name.endswith(".md"))


def anchors(text):
    """Names that GitHub gives to the headings of a page."""
    found, seen = set(), {}
    for title in re.findall(r"^#{1,6} +(.+?) *#*$", FENCE.sub("", text), re.M):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        name = re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")
        found.add(name if name not in seen else f"{name}-{seen[name]}")
        seen[name] = seen.get(name, 0) + 1
    return found


def expanded(path):
    """`a/{b,c}` is a/b and a/c."""
    parts = [part[1:-1].split(",") if part.startswith("{") else [part] for part in re.split(r"(\{[^{}]*\})", path)]
    return ["".join(words) for words in itertools.product(*parts)]


def exists(root, path):
    full = os.path.join(root, path)
    return bool(glob.glob(full) or glob.glob(full + ".*"))


def dead_links(root, page, text):
    for found in LINK.finditer(CODE.sub("", FENCE.sub("", text))):
        target = found.group(1) or found.group(2)
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        full = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(full):
            yield f"the link {target} leads nowhere"
        elif anchor and full.endswith(".md"):
            with open(full) as file:
                if anchor not in anchors(file.read()):
                    yield f"the link {target}: no heading has this name"


def left_out_of_contents(text):
    beginning, _, _ = FENCE.sub("", text).partition("\n## ")
    contents = re.findall(r"\]\(#([^)]+)\)", beginning)
    if len(contents) < 3:
        return
    for title in re.findall(r"^## +(.+?) *$", FENCE.sub("", text), re.M):
        if not anchors(f"## {title}") & set(contents):
            yield f"the contents at the beginning lack \"{title}\""


def dead_paths(root, folders, page, text):
    for code in CODE.finditer(FENCE.sub("", text)):
        for word in code.group(2).split():
            word = re.sub(r":\d+(-\d+)?$", "", word.strip("()[],;:'\"")).rstrip(".,")
            if not PATH.fullmatch(word) or "..." in word:
                continue
            if word.split("/")[0] in folders:
                base = root
            elif re.fullmatch(r"ddp/.+\.(h|hpp|cuh)", word):
                kit = os.path.join(root, "runtime/training_kit/include")
                base = kit if exists(kit, word) else os.path.join(root, "runtime/include")
            else:
                continue
            for path in expanded(word.rstrip("/")):
                if not exists(base, path) and not exists(os.path.dirname(page), path):
                    yield f"`{word}` does not exist"


def main(root):
    folders = {name for name in os.listdir(root)
               if os.path.isdir(os.path.join(root, name)) and not name.startswith(".") and name not in ("build", "dist")}
    checked, bad = 0, 0
    for page in sorted(pages(root)):
        with open(page) as file:
            text = file.read()
        checked += 1
        for what in dict.fromkeys(itertools.chain(dead_links(root, page, text), left_out_of_contents(text),
                                                  dead_paths(root, folders, page, text))):
            print(f"{os.path.relpath(page, root)}: {what}")
            bad += 1
    print(f"{checked} pages, {bad} dead references")
    return 1 if bad or checked < 5 else 0


if __name__ == "__main__":
    sys.exit(main(os.path.abspath(sys.argv[1])))
