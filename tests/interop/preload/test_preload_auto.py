#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tests which of a program's imports `--preload auto` chooses (auto_imports.py), and what imports
must not do (warm_parent.py), without starting anything.

usage: test_preload_auto.py FOLDER       FOLDER contains both files
"""
import importlib.util
import os
import random
import sys
import tempfile
import zipfile

spec = importlib.util.spec_from_file_location("sitecustomize", os.path.join(sys.argv[1], "warm_parent.py"))
warm_parent = importlib.util.module_from_spec(spec)
sys.modules["sitecustomize"] = warm_parent  # the name that it has when ddprun uses it
spec.loader.exec_module(warm_parent)
with open(os.path.join(sys.argv[1], "auto_imports.py")) as source_file:
    warm_parent.import_own(compile(source_file.read(), "auto_imports.py", "exec"))
auto_imports = warm_parent.auto_imports
auto_imports.KNOWN_SAFE = {"json", "wave", "xml", "zlib", "email"}  # modules that every Python has
auto_imports.IMPORTED_LATER = {("wave",): ["chunk"]}


class Folder:
    """A temporary folder with a program's files."""

    def __init__(self, **files):
        self.files = files

    def __enter__(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.path = os.path.realpath(self.temporary.name)
        for name, text in self.files.items():
            path = os.path.join(self.path, name.replace("__in__", "/").replace("__py", ".py"))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:
                file.write(text if isinstance(text, bytes) else text.encode())
        self.before = os.getcwd(), sys.path[:]
        os.chdir(self.path)
        sys.path.insert(0, self.path)  # as preload() does
        return self

    def __exit__(self, *_):
        os.chdir(self.before[0])
        sys.path[:] = self.before[1]
        self.temporary.cleanup()

    def chosen(self, *words):
        found = auto_imports.modules_for(["-u", *words])
        imported = {name.partition(".")[0] for name in sys.modules} & {"own", "model", "pack", "train"}
        assert not imported, imported
        return found


def of_script(source, **beside):
    with Folder(train__py=source, **beside) as folder:
        return folder.chosen(os.path.join(folder.path, "train.py"))


def names(chosen):
    return [name for name, _ in chosen]


def check(what, found, expected):
    assert found == expected, f"{what}: {found}, not {expected}"
    print("ok  ", what)


check("a module and its submodule, under other names too",
      of_script("import json, os\nimport xml.dom as dom, xml\n"), [("json", []), ("xml.dom", []), ("xml", [])])
check("names from a module, which may be modules or not",
      of_script("from xml import dom, etree as e\nfrom json import *\n"), [("xml", ["dom", "etree"]), ("json", ["*"])])
check("a module that is imported twice is chosen once", of_script("import json\nimport json\nfrom json import loads\n"),
      [("json", []), ("json", ["loads"])])
check("try, else and finally, but not except",
      names(of_script("try:\n import json\nexcept ImportError:\n import xml\nelse:\n import zlib\nfinally:\n import email")),
      ["json", "zlib", "email"])
check("with, and the main part of the program",
      names(of_script("with open('f'):\n import json\nif __name__ == '__main__':\n import zlib\n")), ["json", "zlib"])
check("nothing below another condition, in a function or in a class",
      of_script("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n import json\ndef f():\n import zlib\n"
                "class C:\n import xml\nif f():\n import email\n"), [])
check("nothing that is not known to be safe", of_script("import decimal\nimport json_of_another\n"), [])
check("modules that a package imports at its first use, too", of_script("import wave\n"), [("wave", []), ("chunk", [])])
check("imports of modules in the program's folder, but not these modules",
      of_script("import model\nimport json\n", model__py="import zlib\nfrom own import layers\n",
                own__in__layers__py="import xml\n", own__in____init____py="import email\n"),
      [("zlib", []), ("email", []), ("xml", []), ("json", [])])
check("modules that import each other", of_script("import own\n", own__py="import train\nimport json\n"), [("json", [])])
check("a module in the program's folder takes precedence over one of the same name elsewhere",
      of_script("import json\nimport zlib\n", json__py="import xml\n"), [("xml", []), ("zlib", [])])
check("a folder without __init__.py takes no precedence", of_script("import json\n", json__in__data="" ), [("json", [])])
check("source in another encoding",
      of_script("# -*- coding: latin-1 -*-\nname = 'caf\xe9'\nimport json\n".encode("latin-1")), [("json", [])])
check("a program with errors has no imports: Python will report them",
      [of_script(wrong) for wrong in ("import json\nif x\n", b"import json\n\0\n", b"\xff\xfe", "")], [[], [], [], []])
check("an error in another module of its folder hides nothing else",
      [of_script("import own\nimport json\n", own__py=wrong) for wrong in ("def f(:\n", b"\xff\xfe")],
      [[("json", [])]] * 2)
with Folder() as folder:
    check("a program that does not exist", folder.chosen(os.path.join(folder.path, "train.py")), [])
    check("a module that does not exist", folder.chosen("-m", "is_not_there.at_all"), [])

with Folder(pack__in____init____py="import json\n", pack__in____main____py="from . import layers\nfrom .own import x\n",
            pack__in__layers__py="from ..pack.own import y\nimport zlib\n", pack__in__own__py="import xml\n") as folder:
    check("-m, a package: itself, its __main__, and modules in it by relative names",
          names(folder.chosen("-m", "pack")), ["json", "xml", "zlib"])
    check("-m, a module in a package", sorted(names(folder.chosen("-m", "pack.own"))), ["json", "xml"])
    os.chdir("/")
    auto_imports.KNOWN_SAFE.add("pack")
    check("-m, a module of an installed package that is known to be safe: the package, not its files",
          names(folder.chosen("-m", "pack")), ["json", "pack", "pack.own"])
    auto_imports.KNOWN_SAFE.remove("pack")
    check("a folder, by its __main__ only", folder.chosen(os.path.join(folder.path, "pack")), [])
with Folder(__main____py="import json\nimport own\n", own__py="import zlib\n") as folder:
    check("a folder with what is in it", names(folder.chosen(folder.path)), ["json", "zlib"])
    archive = os.path.join(folder.path, "program.pyz")
    with zipfile.ZipFile(archive, "w") as file:
        for name in "__main__.py", "own.py":
            file.write(os.path.join(folder.path, name), name)
    os.remove(os.path.join(folder.path, "own.py"))
    check("an archive with what is in it", names(folder.chosen(archive)), ["json", "zlib"])
with Folder(train__py="import json\n") as folder:
    script = os.path.join(folder.path, "train.py")
    check("--run-path", names(auto_imports.modules_for(["-u", "-c", "runpy...", script])), ["json"])


def refusal(act):
    """Returns why a module that does this would be refused, and the unseeded generators that it
    makes."""
    with warm_parent.Imports() as imports:
        act()
        try:
            imports.check("it")
        except warm_parent.Refused as why:
            return str(why), list(imports.unseeded.values())
        return "", list(imports.unseeded.values())


here = os.path.abspath(__file__)
before = random.Random.seed, type(os.environ).__getitem__
for read in (lambda: os.environ.get("RANK"), lambda: os.getenv("RANK"), lambda: "RANK" in os.environ):
    line = read.__code__.co_firstlineno
    check("reading a variable of which each worker has its own is refused",
          refusal(read)[0], f"it read RANK ({here}, line {line}), which each worker has its own")
check("reading other variables is not",
      refusal(lambda: (os.environ.get("HOME"), dict(os.environ), os.environ.get("is not there")))[0], "")
made = []
check("making a temporary folder is refused", refusal(lambda: made.append(tempfile.TemporaryDirectory()))[0],
      "it made a temporary folder, which the first worker to end would remove")
made.clear()
check("after the folder is removed, nothing is refused", refusal(lambda: None)[0], "")
unseeded, seeded, later = random.Random(), random.Random(), random.Random()
check("generators that were not seeded are known",
      refusal(lambda: (unseeded.__init__(), seeded.__init__(7), later.__init__(), later.seed(7)))[1] == [unseeded], True)
check("Imports restores what it replaces", (random.Random.seed, type(os.environ).__getitem__) == before, True)
