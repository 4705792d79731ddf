# SPDX-License-Identifier: BSD-3-Clause
"""Writes what a PyTorch worker finds in its process, as a line of JSON: facts that are equal in all
fresh interpreters, and random values."""
import ctypes
import json
import multiprocessing
import os
import random
import sys
import threading
import traceback
import warnings

import numpy
import preload_observed
import torch

drawn = {
    "torch's seed": torch.initial_seed(),
    "torch": torch.rand(1).item(),
    "numpy": numpy.random.rand(),
    "a generator of numpy's": numpy.random.default_rng().random(),
    "random": random.random(),
    "a module's generator": preload_observed.unseeded.random(),
    "authkey": multiprocessing.current_process().authkey.hex(),
}
facts = {
    "arguments": [sys.argv, sys.orig_argv, __file__, __name__, str(__spec__)],
    "import": [sys.path, [type(finder).__name__ for finder in sys.meta_path], "sitecustomize" in sys.modules],
    "flags": str(sys.flags),
    "warnings": list(map(str, warnings.filters)),
    "hooks": [str(sys.excepthook), str(threading.excepthook), str(sys.unraisablehook)],
    "main thread": [threading.active_count(), threading.main_thread().native_id == os.getpid()],
    "process": [str(multiprocessing.parent_process()), multiprocessing.current_process().name],
    "variables": sorted(name for name in os.environ if name.startswith(("PYTHON", "DDPRUN", "OPENBLAS", "OMP"))),
    "of C": [ctypes.CDLL(None).getenv(name) for name in (b"DDPRUN_WARM_PARENT", b"OPENBLAS_NUM_THREADS")],
    "torch's threads": [torch.get_num_threads(), torch.get_num_interop_threads(), torch.__config__.parallel_info()],
    "cuda": [torch.cuda.is_available(), torch.cuda.is_initialized(), torch.cuda.device_count()],
    "a module's seed": preload_observed.seeded.random(),
    "defaults": [str(torch.get_default_dtype()), str(torch.get_default_device()), torch.is_grad_enabled(),
                 torch.are_deterministic_algorithms_enabled()],
}
square = torch.rand(400, 400, requires_grad=True)
(square @ square).sum().backward()  # on autograd's own threads
numpy.ones((400, 400)) @ numpy.ones((400, 400))
facts["threads after work"] = len(os.listdir("/proc/self/task"))
try:
    torch.zeros(2) + torch.zeros(3)
except RuntimeError:
    facts["traceback"] = traceback.format_exc()
print(json.dumps({"facts": facts, "drawn": drawn}), flush=True)
