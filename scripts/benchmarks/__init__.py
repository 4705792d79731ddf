# SPDX-License-Identifier: BSD-3-Clause
"""What scripts/bench measures: a module a section, in the order of the page, and the frame they share.

A section is a module with
  TITLE            of its part of the page
  ABOUT            what is measured and what each column means, in Markdown
  measure(bench)   runs the contenders, and returns a list of rounds.Group; wrong results raise rounds.WrongResult
  write(page, groups)   tables, plots and words from what was measured, now or another day

frame: bench.py (what a section is given), rounds.py (A B A B, medians, ratios), processes.py (a program with its time
and its end), machine.py (where it was measured), page.py (Markdown), plots.py (SVG), kept.py (results as JSON).
"""
SECTIONS = ["launch", "first_all_reduce", "recovery", "detection",
            "store", "rendezvous", "collectives", "ddp", "nccl"]
