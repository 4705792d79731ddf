// SPDX-License-Identifier: BSD-3-Clause
// Catch2's main and nothing else: it takes 13 s to compile.
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
