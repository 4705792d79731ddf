// SPDX-License-Identifier: BSD-3-Clause
// The text of ddprun's manual, except for the options. help.cpp formats it for a terminal, man_page.cpp as roff; both
// take the options from where they are declared.
#pragma once

#include <array>

namespace ddp::apps::manual {

struct Entry {
  const char* term;
  const char* text;
};

inline constexpr char kSummary[] = "start, watch and restart the workers of a distributed training job";
inline constexpr char kUsage[] = "[options] program [arguments]";

inline constexpr std::array kDescription = {
    "ddprun starts --nproc-per-node copies of the program on each node, sets RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR "
    "and MASTER_PORT for each of them, and hosts the store through which they find each other (PyTorch's c10d TCPStore "
    "protocol). When one of them fails, it stops or restarts all of them. It replaces PyTorch's torchrun.",
    "The program is a Python script or any executable. A script is x.py, a folder with __main__.py, or a module with "
    "-m; it is run as `python -u` by PYTHON_EXEC, the Python of the virtual or conda environment that ddprun is "
    "installed in, the one of the active environment, or python3. An executable is a path or a name, which is looked "
    "up in this folder, in PATH, and in ddprun's folder. Everything after the program is passed to it; $local_rank in "
    "an argument is replaced by the local rank.",
    "Options may be spelled with dashes or underscores, and abbreviated. The environment variable in brackets, [NAME], "
    "sets the default. A TIME is a number of seconds, or has a unit: 500ms, 90s, 5m or 2h.",
    "`ddprun ps` lists this user's jobs that have an agent on this machine, and `ddprun ps --json` prints one line of "
    "JSON for each. `ddprun ps JOB [--watch 1s]` shows one job on all of its nodes, with --watch again and again, "
    "`ddprun stacks JOB` shows what each worker is doing, `ddprun logs JOB [--rank N] [-f]` "
    "prints the files of workers on this machine, and `ddprun report JOB` prints all that is known, without secrets, "
    "to paste into an issue; ps, stacks and report know --json. `ddprun stop JOB` ends a job on all of its nodes, as a "
    "SIGTERM does; with --save SIGUSR1 its workers get that signal first and have time to save (--within 60s). JOB is "
    "the job's id, the beginning of it, or its PID, and may be left out where there is one job; any node of a job "
    "shows all of it. A program that is itself called ps, stacks, logs, report, stop or chaos is started as ./ps.",
    "`ddprun chaos` kills processes of such a job on purpose, to test that it recovers: `ddprun chaos JOB --every 30s` "
    "kills a worker that is drawn at random every 30 s, with SIGKILL, until the job ends or --count kills are done. "
    "With --kind agent it kills the job's agent on this machine, with --kind node the agent and all of its workers. "
    "--seed repeats the draws. It kills nothing but processes of that job.",
};

inline constexpr std::array kExamples = {
    Entry{"ddprun --nproc_per_node 4 sh -c 'echo rank $RANK of $WORLD_SIZE'", "Run four workers on this machine:"},
    Entry{"ddprun --nproc_per_node gpu --max-restarts 3 train.py --lr 3e-4",
          "Run a PyTorch script on all GPUs, and restart it up to three times:"},
    Entry{"ddprun --nproc_per_node 2 --gpus 4,5 --virtual-local-rank -m my.trainer",
          "Run a module on two of the GPUs, where each worker sees only its own:"},
};

inline constexpr std::array kExitCodes = {
    Entry{"0", "every worker exited with 0"},
    Entry{"1", "ddprun itself failed"},
    Entry{"2", "wrong usage; nothing was started"},
    Entry{"75", "a node was lost or did not come, and the job could not go on without it: start it again"},
    Entry{"126, 127", "the program cannot be executed, or was not found; nothing was started"},
    Entry{"128+n", "the first worker to fail was killed by signal n, or ddprun was stopped by signal n (130: Ctrl-C)"},
    Entry{"other", "the exit code of the worker that failed first"},
};
// The note that goes with the exit codes.
inline constexpr char kAsTorchrun[] =
    "If ddprun is called torchrun (ln -s ddprun torchrun), every failure except wrong usage has exit code 1, the "
    "program is run by Python unless --no-python is given, and a failed job is also reported in torchrun's format.";

// The variables that do more than set the default of one option. Workers' variables are in the description.
inline constexpr std::array kVariables = {
    Entry{"PYTHON_EXEC", "the Python interpreter; it takes precedence over all others"},
    Entry{"VIRTUAL_ENV, CONDA_PREFIX", "the active environment, whose Python is used"},
    Entry{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "default of --shutdown-timeout, as in torchrun"},
    Entry{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "default of --log-line-prefix-template, as in torchrun"},
    Entry{"DDPRUN_SECRET_FILE", "file with the job's secret: only nodes that have it may join; see --secret"},
    Entry{"TMPDIR", "folder for logs if --log-dir is not given"},
};

}  // namespace ddp::apps::manual
