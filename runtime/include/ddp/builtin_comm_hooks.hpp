// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Communication hooks that libddp has: arguments for
/// DistributedDataParallel::register_comm_hook().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ddp/ddp.h"

namespace ddp {

/// A communication hook without options.
enum class BuiltinCommHook : std::int32_t {
  AllReduce = DDP_ALLREDUCE_HOOK,         ///< the average, as without a hook
  FP16Compress = DDP_FP16_COMPRESS_HOOK,  ///< the average of gradients rounded to float16
  BF16Compress = DDP_BF16_COMPRESS_HOOK   ///< the average of gradients rounded to bfloat16
};

/// Hook that averages, as without a hook. Source: PyTorch's default_hooks.allreduce_hook.
inline constexpr BuiltinCommHook allreduce_hook = BuiltinCommHook::AllReduce;
/// Hook that averages gradients rounded to 16-bit IEEE floating point; 65520 and more become
/// infinite. Source: PyTorch's default_hooks.fp16_compress_hook.
inline constexpr BuiltinCommHook fp16_compress_hook = BuiltinCommHook::FP16Compress;
/// Hook that averages gradients rounded to the upper 16 bits of a float; nothing overflows. Source:
/// PyTorch's default_hooks.bf16_compress_hook.
inline constexpr BuiltinCommHook bf16_compress_hook = BuiltinCommHook::BF16Compress;

/// Hook that sends gradients as products of thin matrices: PowerSGD (Vogels, Karimireddy and Jaggi,
/// 2019). A gradient is the matrix of its first dimension against all others (Parameter::shape);
/// one that would not become smaller, as a vector never does, is sent as it is. All fields are the
/// same on every rank; their names and defaults are those of PyTorch's PowerSGDState.
struct PowerSGD {
  std::size_t matrix_approximation_rank = 1;  ///< columns of P and Q; more cost more and lose less
  std::uint64_t start_powersgd_iter = 1000;   ///< number of first steps that send plain averages, at least 1
  double min_compression_rate = 2;  ///< a gradient whose P and Q are not this much smaller goes as it is; not 0
  bool use_error_feedback = true;   ///< what a step leaves out of the gradients is added to the next step's
  bool warm_start = true;           ///< a step begins with the last one's Q, not with random numbers
  std::uint64_t random_seed = 0;    ///< seed of the first Q; equal on all ranks

  /// Returns the struct of ddp.h.
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
