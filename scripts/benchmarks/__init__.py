# SPDX-License-Identifier: BSD-3-Clause
"""What scripts/bench measures: a module for each section (sections/), in the order of the page, and their frame.

A section is a module with
  TITLE            of its part of the page
  ABOUT            what is measured and what each column means, in Markdown
  measure(bench)   runs the contenders, and returns a list of rounds.Group; wrong results raise rounds.WrongResult
  write(page, groups)   tables, plots and words from what was measured, now or another day

frame: bench.py (what a section is given), rounds.py (A B A B, medians, ratios), processes.py (a program with its time
and its end), machine.py (where it was measured), page.py (Markdown), plots.py (SVG), results.py (as JSON).

The files without an ending are commands that print one table each, in more detail than the page has.
"""
SECTIONS = ["launch", "ssh_launch", "first_all_reduce", "recovery", "kept_memory", "fail_over", "detection", "stacks",
            "shipped", "store", "rendezvous", "collectives", "two_nodes", "torch_collectives", "ddp", "nccl"]
