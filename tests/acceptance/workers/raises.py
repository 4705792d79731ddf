# SPDX-License-Identifier: BSD-3-Clause
"""Raises an error, with or without PyTorch's @record around main. usage: raises.py [record]"""
import os
import sys


def main():
    raise ValueError(f"rank {os.environ['RANK']} of role {os.environ['ROLE_NAME']} has had enough")


if sys.argv[1:] == ["record"]:
    from torch.distributed.elastic.multiprocessing.errors import record
    main = record(main)
main()
