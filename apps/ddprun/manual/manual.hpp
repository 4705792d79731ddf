// SPDX-License-Identifier: BSD-3-Clause
// The words of ddprun's manual that are not about single options. help.cpp shows them on a terminal, man_page.cpp in
// roff; both get the options from where they are declared.
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
    "Starts --nproc-per-node copies of the program, tells each its RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and "
    "MASTER_PORT, hosts the store through which they find each other (PyTorch's c10d TCPStore protocol), and ends or "
    "restarts all of them when one fails. It takes the place of PyTorch's torchrun.",
    "The program is a Python script (x.py, a folder with __main__.py, or -m module), run as `python -u` by "
    "PYTHON_EXEC, the virtual or conda environment that ddprun lies in, the active one, or python3; or any "
    "executable: a path, a file here, in PATH, or beside ddprun. Everything after it belongs to it; $local_rank in an "
    "argument becomes the local rank.",
    "Options may be spelled with dashes or underscores and abbreviated. [NAME] is the environment variable that sets "
    "the default.",
};

inline constexpr std::array kExamples = {
    Entry{"ddprun --nproc_per_node 8 train", "Eight workers of the example job on this machine:"},
    Entry{"ddprun --nproc_per_node gpu --max-restarts 3 train.py --lr 3e-4",
          "A PyTorch script on all GPUs, restarted up to three times:"},
    Entry{"ddprun --nproc_per_node 2 --gpus 4,5 --virtual-local-rank -m my.trainer",
          "A module on two of the GPUs, each worker seeing only its own:"},
};

inline constexpr std::array kExitCodes = {
    Entry{"0", "every worker exited with 0"},
    Entry{"1", "ddprun itself could not go on"},
    Entry{"2", "wrong usage; nothing was started"},
    Entry{"126, 127", "the program cannot be executed, was not found; nothing was started"},
    Entry{"128+n",
          "the first failure was a worker killed by signal n, or ddprun was told to stop by signal n (130: Ctrl-C)"},
    Entry{"other", "the exit code of the worker that failed first"},
};
// Said wherever exit codes are.
inline constexpr char kAsTorchrun[] =
    "Called by the name torchrun (ln -s ddprun torchrun), the exit code of every failure is 1, but for wrong usage; "
    "the "
    "program is run by Python unless --no-python is given; and a failed job is also told in torchrun's words.";

// Variables that are not the default of one option. Workers' are in the description.
inline constexpr std::array kVariables = {
    Entry{"PYTHON_EXEC", "the Python interpreter, before all others"},
    Entry{"VIRTUAL_ENV, CONDA_PREFIX", "where an active environment's Python is"},
    Entry{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "the default of --shutdown-timeout, as with torchrun"},
    Entry{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "the default of --log-line-prefix-template, as with torchrun"},
    Entry{"DDPRUN_SECRET_FILE", "the job's secret: only nodes that have it are let in; see --make-secret"},
    Entry{"TMPDIR", "where logs are if --log-dir does not say"},
};

}  // namespace ddp::apps::manual
