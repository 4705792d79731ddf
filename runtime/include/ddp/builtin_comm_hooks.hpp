// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Communication hooks that libddp brings along: to be given to DistributedDataParallel::register_comm_hook().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ddp/ddp.h"

namespace ddp {

/// One without options.
enum class BuiltinCommHook : std::int32_t {
  AllReduce = DDP_ALLREDUCE_HOOK,         ///< see allreduce_hook
  FP16Compress = DDP_FP16_COMPRESS_HOOK,  ///< see fp16_compress_hook
  BF16Compress = DDP_BF16_COMPRESS_HOOK   ///< see bf16_compress_hook
};

/// The average, as without a hook. PyTorch's default_hooks.allreduce_hook.
inline constexpr BuiltinCommHook allreduce_hook = BuiltinCommHook::AllReduce;
/// The average of gradients that are rounded to 16-bit IEEE floating point; 65520 and more become infinite. PyTorch's
/// default_hooks.fp16_compress_hook.
inline constexpr BuiltinCommHook fp16_compress_hook = BuiltinCommHook::FP16Compress;
/// The average of gradients of which only the upper 16 bits of a float are left, rounded; nothing overflows. PyTorch's
/// default_hooks.bf16_compress_hook.
inline constexpr BuiltinCommHook bf16_compress_hook = BuiltinCommHook::BF16Compress;

/// Gradients travel as products of thin matrices: PowerSGD, of Vogels, Karimireddy and Jaggi (2019). A gradient is the
/// matrix of its first dimension against all others (Parameter::shape); one that is not worth it, as a vector never is,
/// travels as it is. All that is set here is the same on every rank. PyTorch's PowerSGDState with powerSGD_hook, whose
/// names and defaults these are.
struct PowerSGD {
  std::size_t matrix_approximation_rank = 1;  ///< columns of P and Q; more cost more and lose less
  std::uint64_t start_powersgd_iter = 1000;   ///< so many steps, one at least, go as plain averages first
  double min_compression_rate = 2;  ///< a gradient whose P and Q are not this much smaller goes as it is; not 0
  bool use_error_feedback = true;   ///< what a step leaves out of the gradients is added to the next step's
  bool warm_start = true;           ///< a step begins with the last one's Q, not with random numbers
  std::uint64_t random_seed = 0;    ///< for the first Q, which is the same on every rank

  /// For ddp.h.
  ddp_powersgd_options c() const {
    return {sizeof(ddp_powersgd_options),
            matrix_approximation_rank,
            std::max<std::uint64_t>(start_powersgd_iter, 1),
            min_compression_rate,
            use_error_feedback ? 0 : 1,
            warm_start ? 0 : 1,
            random_seed};
  }
};

}  // namespace ddp
