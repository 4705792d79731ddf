# SPDX-License-Identifier: BSD-3-Clause
"""What a section is given: how much to measure, and where the contenders are."""
import dataclasses
import functools
import os
import shutil

from . import machine, rounds

SHELL = 'n=$1; shift; while [ $n -gt 0 ]; do "$@" & n=$((n-1)); done; wait'


@dataclasses.dataclass
class Launcher:
    name: str
    prefix: list  # what comes before the worker's command
    version: str = ""
    not_run: str = ""  # why this machine cannot


@dataclasses.dataclass
class Bench:
    root: str  # the repository
    build: str  # folder with bin/ and lib/ to measure
    quick: bool  # shape only: whether it works, not how long it takes
    python: str = ""  # one with PyTorch; '' if there is none
    only: list = ()  # run the contenders with one of these words in their names; empty: all
    given_runs: int = 0  # instead of what a section wants
    beside: str = ""  # folder with the build that the files that ship are compared with

    def runs(self, full):
        """How many runs a contender gets."""
        return self.given_runs or (1 if self.quick else full)

    def binary(self, name):
        return os.path.join(self.build, "bin", name)

    def shown(self, word):
        """A word of a command, without this machine's folders."""
        pythons = [os.path.dirname(python or "/nowhere/python") for python in (self.python, self.torchft_python)]
        for folder in (self.root, *pythons):
            word = word.replace(self.build + "/bin/", "").replace(folder + "/", "")
        return word

    def in_turn(self, name, contenders, runs, facts=None):
        contenders = [c for c in contenders if not self.only or any(word in c.name for word in self.only)]
        return rounds.in_turn(name, contenders, self.runs(runs), show=self.shown, warm_up=not self.quick, facts=facts)

    def launcher(self, name, workers):
        """By its name on the page."""
        return getattr(self, "_" + name.lower().replace(" --", "_").replace(" ", "_"))(str(workers))

    def _ddprun(self, workers):
        return Launcher("ddprun", [self.binary("ddprun"), "--nproc_per_node", workers], self._ddprun_version)

    def _ddprun_preload(self, workers):
        why_not = self.no_torch or ("" if self._has_preload else "this ddprun has no --preload")
        return Launcher("ddprun --preload", [self.binary("ddprun"), "--preload", "torch", "--nproc_per_node", workers],
                        self._ddprun_version, why_not)

    def _torchrun(self, workers):
        torchrun = os.path.join(os.path.dirname(self.python), "torchrun")
        return Launcher("torchrun", [torchrun, "--nproc_per_node", workers], self.torch_version, self.no_torch)

    def _open_mpi(self, workers):
        return self._mpi("Open MPI", "mpirun.openmpi", "openmpi-bin", ["--oversubscribe", "--bind-to", "none"], workers)

    def _mpich(self, workers):
        return self._mpi("MPICH", "mpiexec.mpich", "mpich", [], workers)

    @staticmethod
    def _mpi(name, program, package, options, workers):
        why_not = "" if shutil.which(program) else f"no {program} here (Debian's {package})"
        return Launcher(name, [program, *options, "-n", workers], machine.package_version(package), why_not)

    def _shell(self, workers):
        return Launcher("shell", ["sh", "-c", SHELL, "sh", workers], os.path.basename(os.path.realpath("/bin/sh")))

    @functools.cached_property
    def _ddprun_version(self):
        return machine.first_line(self.binary("ddprun"), "--version").removeprefix("ddprun ")

    @functools.cached_property
    def _has_preload(self):
        return "--preload" in machine.printed(self.binary("ddprun"), "--help")

    @functools.cached_property
    def torch_version(self):
        return machine.first_line(self.python, "-c",
                                  "import importlib.metadata as m; print('torch ' + m.version('torch'))")

    @functools.cached_property
    def torchft_python(self):
        """The Python that has torchft: TORCHFT_PYTHON, since it may want another release of PyTorch; '' if there is none."""
        python = os.environ.get("TORCHFT_PYTHON", self.python)
        found = "import importlib.util as i; print(i.find_spec('torchft') is not None)"
        return python if python and machine.first_line(python, "-c", found) == "True" else ""

    @property
    def no_torchft(self):
        return "" if self.torchft_python else "no Python with torchft here (pip install torchft; TORCHFT_PYTHON)"

    @property
    def no_torch(self):
        return "" if self.python else "no Python with PyTorch here (--python)"
