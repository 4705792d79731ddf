# SPDX-License-Identifier: BSD-3-Clause
"""Serves the name "gloo" of torch.distributed with the backend "ddp" (--gloo=ddp). It runs in the
user's interpreter.

    PYTHONPATH=/proc/AGENT/fd/N:...    this file is the sitecustomize of that archive, a file in the agent's memory

It runs before the program, and does little: it leaves sys.path, but not PYTHONPATH, so that Pythons
which a worker starts find it too; it runs the sitecustomize that it hides; and it watches the
imports for torch.distributed. When that is imported, "gloo" becomes make(), which imports the
package ddprun when the first group is made. So a program that needs no group pays for none, and
nothing is imported that the program does not import.
"""
import os
import sys

C10D = "torch.distributed.distributed_c10d"


def make(options, backend_options):
    """Makes a group for torch.distributed, in place of PyTorch's own function for "gloo"."""
    try:
        from ddprun.torch._gloo import make_gloo
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("ddprun"):
            raise
        raise RuntimeError('--gloo=ddp: "gloo" is served by the Python package ddprun, which %s lacks: %s -m pip '
                           "install ddprun, or leave --gloo=ddp (PET_GLOO=ddp) out" % ((sys.executable,) * 2)
                           ) from None
    return make_gloo(options, backend_options)


def rank_at_start(process):
    """Returns RANK as the process was started with it, or b"". os.environ would tell this process its
    own, but --preload refuses modules in whose import RANK is read."""
    try:
        with open("/proc/%s/environ" % process, "rb") as file:
            words = file.read().split(b"\0")
    except OSError:
        return b""
    return next((word for word in words if word.startswith(b"RANK=")), b"")


def speaks_for_job():
    """Returns whether this process is the one that says what all ranks would: rank 0 or --preload's,
    and none that rank 0 has started."""
    return rank_at_start("self") in (b"", b"RANK=0") and not rank_at_start(os.getppid())


def serve(module):
    """Takes the name "gloo" in torch.distributed, which has just been imported."""
    if not hasattr(module, "Backend"):
        return  # a PyTorch without torch.distributed
    try:
        sys.modules["torch._C._distributed_c10d"].Backend(0, 1)
    except TypeError:  # no backend can be written in Python
        if speaks_for_job():
            print("ddprun: --gloo=ddp: gloo stays PyTorch's own, since PyTorch %s is older than 2.14"
                  % sys.modules["torch"].__version__, file=sys.stderr)
    else:
        module.Backend.register_backend("gloo", make, extended_api=True, devices=["cpu", "cuda"])


class Watch:
    """A finder that has serve() called when torch.distributed is imported."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != C10D:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not cls else None
            if spec is not None:
                cls.serve_after(spec.loader)
                return spec
        return None

    @classmethod
    def serve_after(cls, loader):
        execute = loader.exec_module

        def exec_module(module):
            del loader.exec_module
            execute(module)
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not cls]
            serve(module)

        loader.exec_module = exec_module


def leave_path():
    """Takes the archive of this file off the path, and runs the sitecustomize that this file hides:
    the user's, or one of the Python's installation."""
    import site
    own = os.path.dirname(__file__)
    sys.path[:] = [entry for entry in sys.path if entry != own]
    sys.path_importer_cache.pop(own, None)
    del sys.modules["sitecustomize"]
    site.execsitecustomize()


# A worker that runs ddprun itself has the archive of the outer job, too.
if not any(getattr(finder, "__name__", "") == "Watch" for finder in sys.meta_path) and C10D not in sys.modules:
    sys.meta_path.insert(0, Watch)
leave_path()
if "sitecustomize" not in sys.modules:
    sys.modules["sitecustomize"] = None  # the importer removes it, and zipimport of Python 3.9 needs it there
    raise ImportError(name="sitecustomize")  # as if there were none
