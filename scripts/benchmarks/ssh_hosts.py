# SPDX-License-Identifier: BSD-3-Clause
"""Hosts with a real sshd each on this machine (scripts/clusters/ssh), to which a launcher goes from their head."""
import glob
import os
import subprocess
import tempfile

from .processes import until
from .rounds import WrongResult

SHARED = "/run/cluster/shared"  # on all hosts
PROGRAMS = "/run/cluster/programs/bin"
ENDED_WITHIN = 60  # seconds


class SshHosts:
    """A context: the hosts end with it, and when this process ends. not_run: why there are none here, or ''."""

    def __init__(self, root, count, programs, libraries):
        self._folder = tempfile.TemporaryDirectory()
        self._cluster = os.path.join(self._folder.name, "cluster")
        self.names = [f"n{number}" for number in range(1, count + 1)]
        self._command = [os.path.join(root, "scripts/clusters/ssh"), "up", self._cluster, str(count)]
        self._command += [word for program in programs for word in ("--program", program)]
        self._command += [word for library in libraries for word in ("--library", library)]
        self._process = None
        self.not_run = ""

    def __enter__(self):
        # A session of its own: Ctrl-C reaches it as the end of its stdin.
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, text=True, start_new_session=True)
        if self._process.stdout.readline() != "up\n":
            _, said = self._process.communicate()
            if self._process.returncode != 77:
                raise WrongResult(f"the hosts did not come up: {said}")
            self.not_run = said.strip().removeprefix("ssh: ")
        return self

    def __exit__(self, *_):
        if not self.not_run:
            _, said = self._process.communicate(timeout=120)  # after the end of its stdin
            if self._process.returncode != 0:
                raise WrongResult(f"the hosts did not end well: {said}")
        self._folder.cleanup()

    def on_head(self, command):
        """Returns the command that becomes this one on the head, as the ordinary user in the home that all share."""
        owner = str(os.stat(os.path.join(self._cluster, "home")).st_uid)
        return ["nsenter", "--target", self._pid_of("head"), "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup",
                "--wdns=/run/cluster/home", "--", "setpriv", "--reuid", owner, "--regid", owner, "--clear-groups",
                "--inh-caps=-all", *command]

    @property
    def environment(self):
        return {"HOME": "/run/cluster/home", "USER": "ada", "LOGNAME": "ada", "SHELL": "/bin/bash",
                "PATH": f"{PROGRAMS}:/usr/sbin:/usr/bin:/sbin:/bin"}

    def run_on_head(self, *command):
        """Returns whether it ends with 0."""
        return subprocess.run(self.on_head(list(command)), env={**os.environ, **self.environment}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def shared(self, name):
        """Returns where this machine sees a file of the folder that all hosts share."""
        return os.path.join(self._cluster, "shared", name)

    def until_empty(self):
        """Waits until nothing runs on the hosts but what was there before: process 1 and sshd."""
        try:
            until(lambda: not self._others(), "end of everything on the hosts", ENDED_WITHIN)
        except AssertionError as late:
            raise WrongResult(f"{late}: {self._others()}") from None

    def cpu_ms(self):
        """CPU time of all that has run on the hosts other than the head; None where no control group counts it."""
        times = [self._cpu_ms_of(name) for name in self.names]
        return None if None in times else sum(times)

    def _pid_of(self, host):
        with open(os.path.join(self._cluster, "pids", host)) as file:
            return file.read().strip()

    def _others(self):
        """Returns the processes of the hosts other than those that belong there: {pid: command line}."""
        spaces = {_namespace(self._pid_of(name)) for name in self.names}
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if _namespace(pid) in spaces:
                    with open(f"/proc/{pid}/cmdline", "rb") as file:
                        found[pid] = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                pass  # it has ended
        return {pid: words for pid, words in found.items()
                if words and words != "sleep infinity" and not words.startswith("sshd: /usr/sbin/sshd -D")}

    def _cpu_ms_of(self, host):
        group = f"cluster{self._cluster.replace('/', '_')}-{host}"
        for path in glob.glob(f"/sys/fs/cgroup/*/{group}/cpuacct.usage"):
            with open(path) as file:
                return int(file.read()) / 1e6
        for path in [*glob.glob(f"/sys/fs/cgroup/{group}/cpu.stat"), *glob.glob(f"/sys/fs/cgroup/*/{group}/cpu.stat")]:
            with open(path) as file:
                return next((int(line.split()[1]) / 1e3 for line in file if line.startswith("usage_usec")), None)
        return None


def _namespace(pid):
    return os.readlink(f"/proc/{pid}/ns/pid")
