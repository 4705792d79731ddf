// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <string_view>

namespace ddp::launcher {

// Returns page.html, which the build makes a constant: ddprun is one file.
std::string_view page_html();

}  // namespace ddp::launcher
