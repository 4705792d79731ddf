#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What `--preload auto` takes of a program's imports, and what imports must not do: auto_imports.py and the part of
warm_parent.py that say so, nothing started.

usage: test_preload_auto.py FOLDER: with both files
"""
import importlib.util
import os
import random
import sys
import tempfile
import zipfile

spec = importlib.util.spec_from_file_location("sitecustomize", os.path.join(sys.argv[1], "warm_parent.py"))
warm_parent = importlib.util.module_from_spec(spec)
sys.modules["sitecustomize"] = warm_parent  # the name that it has where it is at work
spec.loader.exec_module(warm_parent)
with open(os.path.join(sys.argv[1], "auto_imports.py")) as source_file:
    warm_parent.import_own(compile(source_file.read(), "auto_imports.py", "exec"))
auto_imports = warm_parent.auto_imports
auto_imports.KNOWN_SAFE = {"json", "wave", "xml", "zlib", "email"}  # of those that are everywhere
auto_imports.IMPORTED_LATER = {"wave": "chunk"}


class Folder:
    """A program's files, gone at the end."""

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
check("names from a module: they may be modules or not",
      of_script("from xml import dom, etree as e\nfrom json import *\n"), [("xml", ["dom", "etree"]), ("json", ["*"])])
check("the same one twice is one", of_script("import json\nimport json\nfrom json import loads\n"),
      [("json", []), ("json", ["loads"])])
check("try, its else and finally; not what comes when it fails",
      names(of_script("try:\n import json\nexcept ImportError:\n import xml\nelse:\n import zlib\nfinally:\n import email")),
      ["json", "zlib", "email"])
check("with, and the main part of the program",
      names(of_script("with open('f'):\n import json\nif __name__ == '__main__':\n import zlib\n")), ["json", "zlib"])
check("not what another condition, a function or a class decides",
      of_script("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n import json\ndef f():\n import zlib\n"
                "class C:\n import xml\nif f():\n import email\n"), [])
check("nothing that is not known to be safe", of_script("import decimal\nimport json_of_another\n"), [])
check("what the program's first steps import, too", of_script("import wave\n"), [("wave", []), ("chunk", [])])
check("what modules beside it import, and they themselves not",
      of_script("import model\nimport json\n", model__py="import zlib\nfrom own import layers\n",
                own__in__layers__py="import xml\n", own__in____init____py="import email\n"),
      [("zlib", []), ("email", []), ("xml", []), ("json", [])])
check("modules that import each other", of_script("import own\n", own__py="import train\nimport json\n"), [("json", [])])
check("one beside the program goes before one of its name elsewhere",
      of_script("import json\nimport zlib\n", json__py="import xml\n"), [("xml", []), ("zlib", [])])
check("a folder without __init__.py does not", of_script("import json\n", json__in__data="" ), [("json", [])])
check("source in another encoding",
      of_script("# -*- coding: latin-1 -*-\nname = 'caf\xe9'\nimport json\n".encode("latin-1")), [("json", [])])
check("a program that is wrong, or is none, has no imports: Python will say why",
      [of_script(wrong) for wrong in ("import json\nif x\n", b"import json\n\0\n", b"\xff\xfe", "")], [[], [], [], []])
check("what is wrong beside it hides nothing else",
      [of_script("import own\nimport json\n", own__py=wrong) for wrong in ("def f(:\n", b"\xff\xfe")],
      [[("json", [])]] * 2)
with Folder() as folder:
    check("a program that is not there", folder.chosen(os.path.join(folder.path, "train.py")), [])
    check("a module that is not there", folder.chosen("-m", "is_not_there.at_all"), [])

with Folder(pack__in____init____py="import json\n", pack__in____main____py="from . import layers\nfrom .own import x\n",
            pack__in__layers__py="from ..pack.own import y\nimport zlib\n", pack__in__own__py="import xml\n") as folder:
    check("-m, a package: itself, its __main__, and by their relative names the modules in it",
          names(folder.chosen("-m", "pack")), ["json", "xml", "zlib"])
    check("-m, a module in a package", sorted(names(folder.chosen("-m", "pack.own"))), ["json", "xml"])
    os.chdir("/")
    auto_imports.KNOWN_SAFE.add("pack")
    check("-m, a module of an installed package that is known: that, not its files", names(folder.chosen("-m", "pack")),
          ["json", "pack", "pack.own"])
    auto_imports.KNOWN_SAFE.remove("pack")
    check("a folder, of its __main__ alone", folder.chosen(os.path.join(folder.path, "pack")), [])
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
    """What a module that does this is told, and the generators that it has made."""
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
    check("a variable that each worker has its own is not read",
          refusal(read)[0], f"it read RANK ({here}, line {line}), which each worker has its own")
check("others are", refusal(lambda: (os.environ.get("HOME"), dict(os.environ), os.environ.get("is not there")))[0], "")
made = []
check("no temporary folder is made", refusal(lambda: made.append(tempfile.TemporaryDirectory()))[0],
      "it made a temporary folder, which the first worker to end would remove")
made.clear()
check("nor is one there that has been removed again", refusal(lambda: None)[0], "")
unseeded, seeded, later = random.Random(), random.Random(), random.Random()
check("generators are known that were not seeded",
      refusal(lambda: (unseeded.__init__(), seeded.__init__(7), later.__init__(), later.seed(7)))[1] == [unseeded], True)
check("all is as it was", (random.Random.seed, type(os.environ).__getitem__) == before, True)
