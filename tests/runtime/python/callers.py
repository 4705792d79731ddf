# SPDX-License-Identifier: BSD-3-Clause
"""Python programs that use the package ddprun, each in a process of its own, with a temporary folder of their own."""
import os
import subprocess

from jobs import FolderOfJobs, Job, until

PACKAGE = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))), "runtime", "python"
)
# Variables of this process's environment that must not affect a test.
CLEARED = ("PET_", "TORCHELASTIC_", "TORCH_", "SLURM_", "OMP_NUM_THREADS", "MASTER_", "LOGLEVEL", "PYTHON", "DDPRUN_",
           "VIRTUAL_ENV")


class Callers(FolderOfJobs):
    """The argument of a test."""

    def __init__(self, ddprun, python):
        super().__init__("python_package_")
        self.ddprun, self.python = ddprun, python
        self.temporary = self.path("tmp")  # TMPDIR: must be empty at the end
        self.folder = self.path("work")
        os.mkdir(self.folder)
        os.mkdir(self.temporary)
        self.environment = {
            "PATH": os.path.dirname(ddprun) + os.pathsep + os.environ["PATH"],
            "PYTHONPATH": PACKAGE,
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": self.temporary,
        }

    def start(self, *arguments, environment=None, command=None):
        """Starts Python with these arguments, or another command."""
        job = Job(*(command or [self.python]), *arguments, without=CLEARED, cwd=self.folder,
                  environment={**self.environment, **(environment or {})})
        self.jobs.append(job)
        return job

    def run(self, *arguments, code=0, **options):
        """Runs Python to its end, checks its exit code, and returns what it printed on stdout."""
        return super().run(*arguments, code=code, **options).out()

    def script(self, text, **options):
        """Runs the text as a script, which begins with `import ddprun, os, sys`."""
        return self.run(self.write("script.py", "import ddprun, os, sys\n" + text), **options)

    def ask(self, expression):
        """Returns what the Python under test prints for an expression."""
        return subprocess.run([self.python, "-c", f"import sys; print({expression})"], check=True, timeout=60,
                              stdout=subprocess.PIPE, universal_newlines=True).stdout.strip()

    def check_nothing_left(self):
        """Checks that no process is left, nor a file in the folder for temporary ones."""
        for job in self.jobs:
            until(lambda job=job: not job.running() and not job.left_over(), f"end of {job.left_over()}; {job.said()}")
        assert not os.listdir(self.temporary), os.listdir(self.temporary)
