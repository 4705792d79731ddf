# SPDX-License-Identifier: BSD-3-Clause
"""Where and with what was measured: what a reader needs to judge a figure, or to repeat it."""
import os
import platform
import re
import subprocess


def printed(*command):
    """By a program that succeeds; '' if there is none such."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def first_line(*command):
    return printed(*command).partition("\n")[0].strip()


def _from_file(path, pattern):
    try:
        with open(path) as file:
            found = re.search(pattern, file.read(), re.MULTILINE)
    except OSError:
        return ""
    return found.group(1) if found else ""


def machine():
    """One line: processor, memory, GPU, kernel, distribution."""
    memory = int(_from_file("/proc/meminfo", r"^MemTotal:\s*(\d+)") or 0) / 2**20
    processor = _from_file("/proc/cpuinfo", r"^model name\s*: (.*)") or platform.machine()
    virtual = " of a virtual machine" if re.search(r"^flags.*\bhypervisor\b", open("/proc/cpuinfo").read(), re.M) else ""
    gpu = first_line("nvidia-smi", "--query-gpu=name", "--format=csv,noheader") or "no GPU"
    system = _from_file("/etc/os-release", r'^PRETTY_NAME="?([^"\n]*)')
    return (f"{os.cpu_count()} CPUs{virtual} ({processor}), {memory:.0f} GiB, {gpu}; Linux {platform.release()}, "
            f"{system}")


def commit(root):
    """Of the repository, with a mark if something in it was changed since, other than what is written here."""
    changed = printed("git", "-C", root, "status", "--porcelain", "--untracked-files=no", "--", ":/", ":!/docs/benchmarks*")
    short = first_line("git", "-C", root, "rev-parse", "--short", "HEAD")
    return f"{short}{'-dirty' if changed else ''}" if short else "not in a git repository"


def load():
    return round(os.getloadavg()[0], 1)


def package_version(package):
    """Of a Debian package."""
    return first_line("dpkg-query", "-W", "-f", "${Version}", package)
