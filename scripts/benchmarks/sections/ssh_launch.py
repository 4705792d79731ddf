# SPDX-License-Identifier: BSD-3-Clause
"""Start and end of a job on several hosts by ssh: beside MPI's launchers, pdsh with torchrun, and plain ssh."""
import glob
import os
import shutil
import uuid

from .. import machine, plots, stamps
from ..page import Column
from ..processes import DEADLINE, timed
from ..rounds import Contender, WrongResult
from ..ssh_hosts import PROGRAMS, SHARED, SshHosts

TITLE = "Launch by ssh"
ABOUT = """
One command starts a job with one worker on each of N hosts, which have a real sshd (OpenSSH), a key without a password and
a home that they share. The hosts are namespaces of this machine (`scripts/clusters/ssh`), so all of them share its CPUs: on
machines of their own each of these would be faster, and those that do more on the hosts by more.

* `true`: from the command's start to its end, of workers that do nothing. first all_reduce: until each worker has the sum of
  its first one (of 8 bytes).
* CPU: of the command with what it starts, and of all that runs on the hosts, sshd too. Open MPI's mpirun ends before its ssh
  do, whose time is missing.
* ddprun: `ddprun --hosts`. It runs on the hosts what it has put into `~/.cache` there; first time: that is missing.
* shell: an ssh for each host in the background, and a wait. pdsh: the same in one program. Neither gives ranks, or tells the
  others when one fails. torchrun: one on each host, started by pdsh.
* × ddprun, × shell: the first column, divided by the figure of ddprun or the shell in the same turn.
* Checked: the exit code, that each host has had one worker and each rank was there once, and that nothing but sshd runs on a
  host afterwards.
"""
SHELL = ('command=$1; shift; for host; do ssh "$host" "$command" & pids="$pids $!"; done; '
         'for pid in $pids; do wait "$pid" || exit; done')
NAMES = ["ddprun", "ddprun, first time", "Open MPI", "MPICH", "pdsh, torchrun", "pdsh", "shell"]
# Adds a line with its rank, if it has one, and its host.
SAY_RANK = f"""#!/bin/sh
echo "${{RANK-${{OMPI_COMM_WORLD_RANK-${{PMI_RANK-none}}}}}} $(hostname)" >>{SHARED}/ranks
"""
MPI_DEADLINE = 20  # seconds: MPICH now and then hangs in MPI_Finalize
RANKS_OF_NOBODY = ["pdsh", "shell"]


def prefix(bench, name, hosts):
    """Returns what comes before the worker's program on these hosts; its version; why it is not here."""
    listed = ",".join(hosts)
    if name.startswith("ddprun"):
        return ["ddprun", "--hosts", listed], bench.launcher("ddprun", 1).version, ""
    if name == "Open MPI":
        launcher = bench.launcher(name, len(hosts))
        words = ["mpirun.openmpi", "--bind-to", "none", "--host", listed, "-n", str(len(hosts))]
        return words, launcher.version, launcher.not_run
    if name == "MPICH":
        launcher = bench.launcher(name, len(hosts))
        words = ["mpiexec.mpich", "-launcher", "ssh", "-hosts", listed, "-n", str(len(hosts))]
        return words, launcher.version, launcher.not_run
    if name == "shell":
        return ["sh", "-c", SHELL, "sh"], machine.package_version("openssh-client"), ""
    not_run = "" if shutil.which("pdsh") else "no pdsh here (Debian's pdsh)"
    words = ["pdsh", "-S", "-R", "ssh", "-w", listed]
    if name == "pdsh, torchrun":
        torchrun = bench.launcher("torchrun", 1)
        words += [*torchrun.prefix, "--nnodes", str(len(hosts)), "--node_rank", "%n", "--master_addr", hosts[0],
                  "--master_port", "29500", "--no-python"]
        return words, torchrun.version, not_run or torchrun.not_run
    return words, machine.package_version("pdsh"), not_run


def command_of(before, name, hosts, *program):
    return [*before, *program, *(hosts if name == "shell" else [])]


class Job:
    """One contender's job on some of the hosts."""

    def __init__(self, bench, cluster, name, count):
        self.bench, self.cluster, self.name, self.hosts = bench, cluster, name, cluster.names[:count]
        self.before, self.version, not_run = prefix(bench, name, self.hosts)
        self.not_run = cluster.not_run or not_run
        if not self.not_run and name == "pdsh, torchrun" and not cluster.run_on_head("test", "-x", self.before[6]):
            self.not_run = "the hosts do not see this machine's Python with PyTorch"
        self.has_right_ranks = False

    def run(self, *program):
        """Returns times; with the CPU time of the hosts, if that is known."""
        if self.name == "ddprun, first time":
            self.cluster.run_on_head("rm", "-rf", ".cache")
        before = self.cluster.cpu_ms()
        times = timed(self.cluster.on_head(command_of(self.before, self.name, self.hosts, *program)),
                      self.cluster.environment, MPI_DEADLINE if "MPI" in self.name else DEADLINE,
                      grace=0 if self.name.startswith("ddprun") else DEADLINE)
        self.cluster.until_empty()
        if before is not None:
            times.cpu_ms += self.cluster.cpu_ms() - before
        return times

    def check_ranks(self):
        """Runs a job whose workers write down what they are, the first time."""
        if self.has_right_ranks:
            return
        path = self.cluster.shared("ranks")
        if os.path.exists(path):
            os.remove(path)
        self.run(f"{SHARED}/say_rank")
        with open(path) as file:
            workers = sorted(tuple(line.split()) for line in file)
        count = len(self.hosts)
        wanted = ["none"] * count if self.name in RANKS_OF_NOBODY else sorted(map(str, range(count)))
        if [rank for rank, _ in workers] != wanted or sorted(host for _, host in workers) != sorted(self.hosts):
            raise WrongResult(f"one worker on each of {self.hosts} was asked for, and there were {workers}")
        self.has_right_ranks = True

    def of_true(self):
        def measure():
            self.check_ranks()
            times = self.run("true")
            return {"wall_ms": times.wall_ms, "cpu_ms": times.cpu_ms}

        return self._contender(["true"], measure)

    def of_first_all_reduce(self, program, *words):
        def measure():
            name = f"stamps-{uuid.uuid4().hex}"
            times = self.run(f"{PROGRAMS}/{program}", *(f"{SHARED}/{name}" if word == "FILE" else word for word in words))
            stamped = stamps.read(self.cluster.shared(name))
            if not stamps.all_ranks(stamped, "reduced", len(self.hosts)):
                raise WrongResult(f"{len(self.hosts)} ranks were to have the sum; these had: {stamped}")
            return {"reduced_ms": 1e3 * (stamps.last(stamped, "reduced") - times.started), "cpu_ms": times.cpu_ms}

        return self._contender([program, *words], measure)

    def _contender(self, program, measure):
        return Contender(self.name, command_of(self.before, self.name, self.hosts, *program), measure, self.version,
                         self.not_run, ours=self.name.startswith("ddprun"))


def runs_on(count):
    return 3 if count > 8 else 5


def measure(bench):
    counts = [2] if bench.quick else [4, 8, 32]
    workers = {"ddprun": ["bench_worker", "FILE", "first"], "Open MPI": ["bench_worker_openmpi", "FILE"],
               "MPICH": ["bench_worker_mpich", "FILE"]}
    workers = {name: words for name, words in workers.items() if os.path.exists(bench.binary(words[0]))}
    programs = [bench.binary(name) for name in ("ddprun", *(words[0] for words in workers.values()))]
    groups = []
    with SshHosts(bench.root, max(counts), programs, glob.glob(os.path.join(bench.build, "lib/libddp*.so.*"))) as cluster:
        if not cluster.not_run:
            with open(cluster.shared("say_rank"), "w") as file:
                file.write(SAY_RANK)
            os.chmod(cluster.shared("say_rank"), 0o755)
        for count in counts:
            # A torchrun takes seconds of a CPU on each host.
            jobs = [Job(bench, cluster, name, count) for name in NAMES if name != "pdsh, torchrun" or count == 4]
            groups.append(bench.in_turn(f"`true` on {count} hosts", [job.of_true() for job in jobs],
                                        runs_on(count), {"hosts": count}))
        # 33 hosts that all know each other have more neighbours than one kernel keeps (1024, net.ipv4.neigh.default.gc_thresh3).
        for count in (count for count in counts if count <= 8):
            contenders = [Job(bench, cluster, name, count).of_first_all_reduce(*words) for name, words in workers.items()]
            groups.append(bench.in_turn(f"first all_reduce, {count} hosts", contenders, runs=3))
    return groups


def write(page, groups):
    launches = [group for group in groups if "hosts" in group.facts]
    for group in groups:
        first = Column("wall ms", "wall_ms", 0) if group in launches else Column("to first all_reduce ms", "reduced_ms", 0)
        page.rows(group, [first, Column("CPU ms", "cpu_ms", 0)], base=("ddprun", "shell"))
    names = list(dict.fromkeys(row.name for group in launches for row in group.rows if row.samples("wall_ms")))
    labels = [f"{group.facts['hosts']} hosts" for group in launches]

    def draw(axes):
        plots.grouped_bars(axes, launches, "wall_ms", names, labels)
        axes.set_yscale("log")
        axes.set_ylabel("ms from start to exit")

    if names:
        page.plot("ssh_launch", "Start and end by ssh of workers that do nothing, in ms", draw)
    page.commands(groups)
