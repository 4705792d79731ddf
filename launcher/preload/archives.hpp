// SPDX-License-Identifier: BSD-3-Clause
// Zip archives of Python modules, from which Python imports as from a folder. make_archive.cmake writes the sources
// that define them when ddprun is built.
#pragma once

#include <string_view>

namespace ddp::launcher {

std::string_view warm_parent_archive();  // warm_parent.py as "sitecustomize", and auto_imports.py
std::string_view gloo_start_archive();   // gloo_start.py as "sitecustomize"

}  // namespace ddp::launcher
