// SPDX-License-Identifier: BSD-3-Clause
// Prints a port on which no process listens, for test scripts.
#include <iostream>

#include "tests/runtime/job/job.hpp"

int main() { std::cout << ddp::test::free_port() << "\n"; }
