# SPDX-License-Identifier: BSD-3-Clause
"""A module that makes random generators while it is imported, as some do for the names of runs and
files."""
import random

unseeded = random.Random()
seeded = random.Random()
seeded.seed(7)
