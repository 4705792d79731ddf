// SPDX-License-Identifier: BSD-3-Clause
// The zip archive of the warm parent's Python modules, which make_archive.cmake writes when ddprun
// is built: warm_parent.py as "sitecustomize", and auto_imports.py. Python imports from it as from
// a folder.
#pragma once

#include <string_view>

namespace ddp::launcher {

std::string_view warm_parent_archive();

}  // namespace ddp::launcher
