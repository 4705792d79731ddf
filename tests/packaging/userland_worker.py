"""A worker without PyTorch: it opens libddp, talks to the job's store, and fails where its argument says so."""
import ctypes
import os
import sys

rank = os.environ["RANK"]
what = sys.argv[1] if len(sys.argv) > 1 else ""
if rank == "1" and (what == "always" or what == "once" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"):
    raise RuntimeError("this one fails")
library = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib", "libddp.so.1"))
library.ddp_version.restype = ctypes.c_char_p
print("libddp", library.ddp_version().decode(), "rank", rank, "of", os.environ["WORLD_SIZE"])
