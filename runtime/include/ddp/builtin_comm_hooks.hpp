// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// Communication hooks that libddp has: arguments for
/// DistributedDataParallel::register_comm_hook().
#pragma once

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
/// infinite. For gradients in CPU memory, and for modules of libtorch anywhere. Source: PyTorch's
/// default_hooks.fp16_compress_hook.
inline constexpr BuiltinCommHook fp16_compress_hook = BuiltinCommHook::FP16Compress;
/// Hook that averages gradients rounded to the upper 16 bits of a float; nothing overflows. For
/// gradients in CPU memory, and for modules of libtorch anywhere. Source: PyTorch's
/// default_hooks.bf16_compress_hook.
inline constexpr BuiltinCommHook bf16_compress_hook = BuiltinCommHook::BF16Compress;

}  // namespace ddp
