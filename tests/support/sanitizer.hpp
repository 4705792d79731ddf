// SPDX-License-Identifier: BSD-3-Clause
// Whether a sanitizer is in this build's programs: it takes memory and time, and ends a program that crashes.
#pragma once

namespace ddp::testing {

#if defined(__SANITIZE_THREAD__)
inline constexpr bool kIsThreadSanitized = true;
#else
inline constexpr bool kIsThreadSanitized = false;
#endif

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = kIsThreadSanitized;
#endif

}  // namespace ddp::testing
