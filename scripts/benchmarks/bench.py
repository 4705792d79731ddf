# SPDX-License-Identifier: BSD-3-Clause
"""What a section is given: how much to measure, and where the contenders are."""
import dataclasses
import functools
import os
import shutil

from . import machine, rounds


@dataclasses.dataclass
class Bench:
    root: str  # of the repository
    build: str  # folder with bin/ and lib/
    quick: bool  # shape only: whether it works, not how long it takes
    python: str = ""  # one with PyTorch; '' if there is none

    def runs(self, full):
        """How many runs a contender gets."""
        return 1 if self.quick else full

    def binary(self, name):
        return os.path.join(self.build, "bin", name)

    def shown(self, word):
        """A word of a command, without this machine's folders."""
        for folder in (self.root, os.path.dirname(self.python or "/nowhere/python")):
            word = word.replace(self.build + "/bin/", "").replace(folder + "/", "")
        return word

    def in_turn(self, name, contenders, runs, facts=None):
        return rounds.in_turn(name, contenders, self.runs(runs), show=self.shown, warm_up=not self.quick, facts=facts)

    # Contenders, each with a reason why it cannot be run, or none.

    @functools.cached_property
    def ddprun_version(self):
        return machine.first_line(self.binary("ddprun"), "--version").removeprefix("ddprun ")

    @property
    def torchrun(self):
        return os.path.join(os.path.dirname(self.python), "torchrun") if self.python else ""

    @functools.cached_property
    def torch_version(self):
        return machine.first_line(self.python, "-c",
                                  "import importlib.metadata as m; print('torch ' + m.version('torch'))")

    @property
    def no_torch(self):
        return "" if self.python else "no Python with PyTorch here (--python)"

    @functools.cached_property
    def openmpi(self):
        """(command, version, why not)"""
        return self._mpi("mpirun.openmpi", "openmpi-bin", "--version", ["--oversubscribe", "--bind-to", "none"])

    @functools.cached_property
    def mpich(self):
        return self._mpi("mpiexec.mpich", "mpich", "--version", [])

    @staticmethod
    def _mpi(program, package, ask, options):
        if not shutil.which(program):
            return [program], "", f"no {program} here (Debian's {package})"
        return [program, *options], machine.package_version(package), ""
