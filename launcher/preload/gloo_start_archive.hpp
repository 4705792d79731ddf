// SPDX-License-Identifier: BSD-3-Clause
// The zip archive with gloo_start.py as its sitecustomize. The source that defines it is made by make_archive.cmake.
#pragma once

#include <string_view>

namespace ddp::launcher {

std::string_view gloo_start_archive();

}  // namespace ddp::launcher
