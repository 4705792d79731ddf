# SPDX-License-Identifier: BSD-3-Clause
"""LaunchConfig mirrors ddprun's options."""
import ast
import re
import subprocess

from promises import promise

# Options that say which program ddprun runs, that have it run on other hosts, or that make it print something: they
# mean nothing for a function of this process.
NOT_FOR_FUNCTIONS = {
    "module", "no_python", "run_path", "legacy_local_rank", "use_env", "logs_specs", "start_method",
    "hosts", "hostfile", "include", "exclude", "export", "launch_agent", "make_secret",
    "print", "print_completion", "version", "help",
}
# A value that ddprun takes for each option, and how it is spelled there. They go together in one job.
VALUES = {
    "nproc_per_node": (1, "1"), "gpus": ([0, 1], "0,1"), "virtual_local_rank": (True, None),
    "numa_binding": ("node", "node"), "role": ("trainer", "trainer"), "preload": (["json", "random"], "json,random"),
    "preload_timeout": (60, "60"), "gloo": ("ddp", "ddp"), "keep_memory": ("shadow", "shadow"),
    "redirects": ("0:3", "0:3"), "tee": (3, "3"), "log_dir": ("logs", "logs"),
    "log_line_prefix_template": ("[${rank}] ", "[${rank}] "), "local_ranks_filter": ([0], "0"),
    "duplicate_stdout_filters": (["a", "b"], "a,b"), "duplicate_stderr_filters": ("c", "c"), "stdin": ("none", "none"),
    "max_restarts": (2, "2"), "shutdown_timeout": (5, "5"), "monitor_interval": (0.1, "0.1"),
    "on_failure": ("restart", "restart"), "restart_window": ("1h", "1h"), "exclude_after": (0, "0"), "topology": ("", ""),
    "stacks_timeout": (0.2, "0.2"), "hang_timeout": (600, "600"), "on_hang": ("tell", "tell"),
    "signals_to_handle": (["SIGTERM", "SIGINT"], "SIGTERM,SIGINT"), "nnodes": (1, "1"), "node_rank": (0, "0"),
    "master_addr": ("127.0.0.1", "127.0.0.1"), "master_port": (0, "0"), "standalone": (True, None),
    "rdzv_backend": ("c10d", "c10d"), "rdzv_endpoint": ("localhost:0", "localhost:0"), "rdzv_id": ("job", "job"),
    "rdzv_conf": ({"join_timeout": 60, "last_call_timeout": 1}, "join_timeout=60,last_call_timeout=1"),
    "local_addr": ("127.0.0.1", "127.0.0.1"), "secret": ("none", "none"), "any_user": (True, None),
    "log_level": ("error", "error"), "log_format": ("json", "json"), "event_log_handler": ("null", "null"),
    "event_log_file": ("events", "events"), "report_file": ("report", "report"),
    "serve": ("127.0.0.1:0", "127.0.0.1:0"), "serve_token": ("", ""), "trace": ("trace.json", "trace.json"),
}


def fields_of(callers):
    return ast.literal_eval(callers.run("-c", "import dataclasses, ddprun\n"
                                              "print([f.name for f in dataclasses.fields(ddprun.LaunchConfig)])"))


@promise("LaunchConfig has exactly those of ddprun's options that mean something for a function")
def _(callers):
    page = subprocess.run([callers.ddprun, "--help"], stdout=subprocess.PIPE, check=True, timeout=60,
                          universal_newlines=True).stdout
    options = {name.replace("-", "_") for name in re.findall(r"^  (?:-\w, )?--([a-z-]+)", page, re.MULTILINE)}
    assert len(options) > 40, options
    assert NOT_FOR_FUNCTIONS < options, NOT_FOR_FUNCTIONS - options
    fields = fields_of(callers)
    assert set(fields) == options - NOT_FOR_FUNCTIONS, set(fields) ^ (options - NOT_FOR_FUNCTIONS)


@promise("LaunchConfig writes each option as ddprun reads it, and ddprun takes them")
def _(callers):
    assert set(VALUES) == set(fields_of(callers))
    values = {name: value for name, (value, _) in VALUES.items()}
    words = [f"--{name.replace('_', '-')}" + ("" if text is None else f"={text}") for name, (_, text) in VALUES.items()]
    said = callers.run("-c", f"import ddprun\nprint(ddprun.LaunchConfig(**{values!r}).arguments())\n"
                             "print(ddprun.LaunchConfig().arguments())").splitlines()
    assert sorted(ast.literal_eval(said[0])) == sorted(words), said[0]
    assert said[1] == "[]", said[1]
    del values["gpus"]  # numa_binding asks NVIDIA's driver where they are
    assert callers.script(f"print(ddprun.launch(os.getenv, ('ROLE_NAME',), **{values!r}))\n") == "{0: 'trainer'}\n"


@promise("launch has options in a config and by name, which count more, and knows no others")
def _(callers):
    assert callers.script("""
config = ddprun.LaunchConfig(nproc_per_node=3, role="a")
print(ddprun.launch(os.getenv, ("ROLE_NAME",), config=config, nproc_per_node=2), config.nproc_per_node)
try:
    ddprun.launch(os.getpid, nproc_per_nodes=2)
except TypeError as error:
    print("nproc_per_nodes" in str(error))
""") == "{0: 'a', 1: 'a'} 3\nTrue\n"


@promise("launch raises ddprun's own words about an option that it refuses")
def _(callers):
    assert callers.script("""
try:
    ddprun.launch(os.getpid, nnodes="few")
except ddprun.LaunchError as error:
    print(type(error).__name__, error.exit_code, error)
""") == "LaunchError 2 --nnodes few: give a number of nodes, or MIN:MAX with 0 < MIN <= MAX\n"
