# SPDX-License-Identifier: BSD-3-Clause
"""Chooses what `--preload auto` imports: the modules that the program imports and that are known to
be safe. Reads the program's source without running it. warm_parent.py imports them."""
import ast
import os
import sys
from importlib.machinery import PathFinder
from pkgutil import get_importer

# Packages that are known to leave no thread, socket or CUDA context behind when they are imported
# (which warm_parent.py checks each time). They were tried by scripts/preloadable with PyTorch 2.15
# and the releases of that time: transformers 5.23, datasets 5.2, pandas 3.1, pyarrow 26,
# scikit-learn 1.9, accelerate 1.15. Not in the list are lightning and torchmetrics, which read
# LOCAL_RANK, wandb and timm, which make a temporary folder, polars, which starts threads, and jax.
KNOWN_SAFE = {
    "PIL", "accelerate", "cv2", "datasets", "ddprun", "einops", "evaluate", "h5py", "huggingface_hub", "hydra",
    "matplotlib", "numpy", "omegaconf", "pandas", "peft", "pyarrow", "regex", "requests", "safetensors", "scipy", "sentencepiece",
    "sklearn", "tiktoken", "tokenizers", "torch", "torchvision", "tqdm", "transformers", "webdataset", "yaml"}
# Modules that packages import at their first use, for programs that import all of these. An optimizer
# or DistributedDataParallel imports torch._dynamo, which takes as long as PyTorch itself.
IMPORTED_LATER = {("torch",): ["torch._dynamo"], ("torch", "ddprun"): ["ddprun.torch", "ddprun.recovery"]}


def imports_of(source):
    """Returns what running a module's source would import: [(number of leading dots, module,
    names from it)]. Reads top-level statements, and enters `try`, `with` and `if __name__ ==
    ...`."""
    found = []

    def is_main(test):
        return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"

    def look_at(statements):
        for statement in statements:
            if isinstance(statement, ast.Import):
                found.extend((0, alias.name, []) for alias in statement.names)
            elif isinstance(statement, ast.ImportFrom):
                found.append((statement.level, statement.module or "", [alias.name for alias in statement.names]))
            elif isinstance(statement, ast.Try):
                look_at(statement.body + statement.orelse + statement.finalbody)
            elif isinstance(statement, ast.With) or isinstance(statement, ast.If) and is_main(statement.test):
                look_at(statement.body)  # the outcome of other conditions is not known here

    look_at(ast.parse(source).body)
    return found


def sources_of(module, path):
    """Returns [(package, source)] of a module and of the packages that contain it, without
    importing them; [] if there is no such module."""
    found, name = [], ""
    for part in module.split("."):
        package, name = name, name + "." + part if name else part
        spec = PathFinder.find_spec(name, path)
        if spec is None:
            break  # perhaps a name that its package defines
        path = spec.submodule_search_locations
        if hasattr(spec.loader, "get_source"):  # a folder without __init__.py has none
            found.append((package if path is None else name, spec.loader.get_source(name) or ""))
        if path is None:
            break
    return found


def sources_of_program(words):
    if words[:2] == ["-u", "-c"]:  # --run-path
        program = words[3]
    elif words[1] == "-m":
        found = sources_of(words[2], None)
        main = sources_of(words[2] + ".__main__", None)
        return found + main[len(found):]
    else:
        program = words[1]
    importer = get_importer(program)  # for a folder or an archive
    if importer is not None:
        spec = importer.find_spec("__main__")
        return [("", spec.loader.get_source("__main__"))] if spec else []
    with open(program, "rb") as file:
        return [("", file.read())]


def modules_for(words):
    """Returns [(module, names from it)] for `auto`: what the program and the modules of its own
    folder import, as far as it is known to be safe. `words` are the program's command line from
    -u on."""
    own_path = path_of_program(words)
    own_package = words[2].partition(".")[0] if words[1] == "-m" else None
    if own_package in KNOWN_SAFE:
        own_package = None  # python -m torch.distributed.run
    chosen, seen = [], set()

    def own_sources(module):
        try:
            if module.partition(".")[0] == own_package:
                return sources_of(module, None)
            return sources_of(module, [own_path]) if own_path is not None else []
        except (ImportError, SyntaxError, ValueError):  # its source has not the encoding that it declares
            return []

    def look_at(package, source):
        for level, module, names in imports_of(source):
            if level > 0:
                above = package.split(".")[:len(package.split(".")) + 1 - level]
                module = ".".join(above + [module] if module else above)
            if (module, *names) in seen:
                continue
            seen.add((module, *names))
            own = own_sources(module)
            if not own and module.partition(".")[0] in KNOWN_SAFE:
                chosen.append((module, names))
            for name in [""] + names if own else []:
                look_at_all(own_sources(module + "." + name) if name else own)

    def look_at_all(sources):
        for package, source in sources:
            if (package, source) in seen:
                continue
            seen.add((package, source))
            try:
                look_at(package, source)
            except (SyntaxError, ValueError):
                pass  # Python will report the error

    try:
        look_at_all(sources_of_program(words))
    except (ImportError, OSError, SyntaxError, ValueError):
        pass
    packages = {name.partition(".")[0] for name, _ in chosen}
    for needed, later in IMPORTED_LATER.items():
        if packages.issuperset(needed):
            chosen.extend((name, []) for name in later)
    return chosen


def path_of_program(words):
    """Returns what the interpreter will insert before sys.path for the program; None for nothing."""
    if getattr(sys.flags, "safe_path", False):
        return None
    if words[1] == "-m":
        return os.getcwd()
    if words[1] == "-c":
        return ""
    program = os.path.realpath(words[1])
    return program if os.path.isdir(program) or program.endswith((".zip", ".pyz")) else os.path.dirname(program)
