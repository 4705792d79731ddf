// SPDX-License-Identifier: BSD-3-Clause
// What the compiler calls in code that is compiled with -fsanitize=thread (gcc/sanitizer.def, tsan_interface.h of
// compiler-rt), and the functions of the C library that the linker replaces by --wrap. What does not concern the
// segment, or happens outside a run, is done as ever.
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#include <array>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/collectives/host/memory_model/hooks.hpp"

using namespace ddp::collectives::test;

namespace {

// The numbers of memory orders in these calls are those of C++: relaxed 0, consume 1, acquire 2, release 3, acq_rel 4,
// seq_cst 5. GCC sets a bit above for transactions.
std::memory_order order_of(int number) { return static_cast<std::memory_order>(number & 7); }

std::uint64_t replaced(std::uint64_t, std::uint64_t operand) { return operand; }
std::uint64_t sum(std::uint64_t before, std::uint64_t operand) { return before + operand; }
std::uint64_t difference(std::uint64_t before, std::uint64_t operand) { return before - operand; }
std::uint64_t both(std::uint64_t before, std::uint64_t operand) { return before & operand; }
std::uint64_t either(std::uint64_t before, std::uint64_t operand) { return before | operand; }

}  // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}

// ---- accesses that are not atomic ----
#define DDP_PLAIN(NAME, BYTES)                              \
  void __tsan_read##NAME(void* place) {                     \
    if (hooks::concerns(place)) hooks::read(place, BYTES);  \
  }                                                         \
  void __tsan_write##NAME(void* place) {                    \
    if (hooks::concerns(place)) hooks::write(place, BYTES); \
  }
DDP_PLAIN(1, 1)
DDP_PLAIN(2, 2)
DDP_PLAIN(4, 4)
DDP_PLAIN(8, 8)
DDP_PLAIN(16, 16)
void __tsan_unaligned_read2(void* place) { __tsan_read2(place); }
void __tsan_unaligned_read4(void* place) { __tsan_read4(place); }
void __tsan_unaligned_read8(void* place) { __tsan_read8(place); }
void __tsan_unaligned_read16(void* place) { __tsan_read16(place); }
void __tsan_unaligned_write2(void* place) { __tsan_write2(place); }
void __tsan_unaligned_write4(void* place) { __tsan_write4(place); }
void __tsan_unaligned_write8(void* place) { __tsan_write8(place); }
void __tsan_unaligned_write16(void* place) { __tsan_write16(place); }
void __tsan_read_range(void* place, std::size_t bytes) {
  if (hooks::concerns(place)) hooks::read(place, bytes);
}
void __tsan_write_range(void* place, std::size_t bytes) {
  if (hooks::concerns(place)) hooks::write(place, bytes);
}

// ---- atomics ----
#define DDP_ATOMIC_CHANGE(BITS, NAME, BUILTIN, CHANGE)                                                              \
  std::uint##BITS##_t __tsan_atomic##BITS##_##NAME(volatile std::uint##BITS##_t* word, std::uint##BITS##_t operand, \
                                                   int order) {                                                     \
    if (!hooks::concerns(word)) return BUILTIN(word, operand, __ATOMIC_SEQ_CST);                                    \
    return static_cast<std::uint##BITS##_t>(hooks::modify(word, sizeof *word, order_of(order), CHANGE, operand));   \
  }
#define DDP_ATOMIC(BITS)                                                                                               \
  std::uint##BITS##_t __tsan_atomic##BITS##_load(const volatile std::uint##BITS##_t* word, int order) {                \
    if (!hooks::concerns(word)) return __atomic_load_n(word, __ATOMIC_SEQ_CST);                                        \
    return static_cast<std::uint##BITS##_t>(hooks::load(word, sizeof *word, order_of(order)));                         \
  }                                                                                                                    \
  void __tsan_atomic##BITS##_store(volatile std::uint##BITS##_t* word, std::uint##BITS##_t value, int order) {         \
    if (!hooks::concerns(word)) return __atomic_store_n(word, value, __ATOMIC_SEQ_CST);                                \
    hooks::store(word, sizeof *word, value, order_of(order));                                                          \
  }                                                                                                                    \
  DDP_ATOMIC_CHANGE(BITS, exchange, __atomic_exchange_n, replaced)                                                     \
  DDP_ATOMIC_CHANGE(BITS, fetch_add, __atomic_fetch_add, sum)                                                          \
  DDP_ATOMIC_CHANGE(BITS, fetch_sub, __atomic_fetch_sub, difference)                                                   \
  DDP_ATOMIC_CHANGE(BITS, fetch_and, __atomic_fetch_and, both)                                                         \
  DDP_ATOMIC_CHANGE(BITS, fetch_or, __atomic_fetch_or, either)                                                         \
  int __tsan_atomic##BITS##_compare_exchange_strong(volatile std::uint##BITS##_t* word, std::uint##BITS##_t* expected, \
                                                    std::uint##BITS##_t desired, int order,                            \
                                                    int /*order if it fails*/) {                                       \
    if (!hooks::concerns(word))                                                                                        \
      return __atomic_compare_exchange_n(word, expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);          \
    const std::uint64_t before = hooks::compare_exchange(word, sizeof *word, *expected, desired, order_of(order));     \
    const bool is_equal = before == *expected;                                                                         \
    *expected = static_cast<std::uint##BITS##_t>(before);                                                              \
    return is_equal ? 1 : 0;                                                                                           \
  }                                                                                                                    \
  int __tsan_atomic##BITS##_compare_exchange_weak(volatile std::uint##BITS##_t* word, std::uint##BITS##_t* expected,   \
                                                  std::uint##BITS##_t desired, int order, int otherwise) {             \
    return __tsan_atomic##BITS##_compare_exchange_strong(word, expected, desired, order, otherwise);                   \
  }
DDP_ATOMIC(8)
DDP_ATOMIC(16)
DDP_ATOMIC(32)
DDP_ATOMIC(64)

void __tsan_atomic_thread_fence(int) {
  std::fputs("the explorer knows no fences: teach it, or use the orders of loads and stores\n", stderr);
  std::abort();
}

// ---- the C library ----
void* __real_memcpy(void* to, const void* from, std::size_t bytes);
void* __wrap_memcpy(void* to, const void* from, std::size_t bytes) {
  __tsan_read_range(const_cast<void*>(from), bytes);
  __tsan_write_range(to, bytes);
  return __real_memcpy(to, from, bytes);
}
void* __real_memmove(void* to, const void* from, std::size_t bytes);
void* __wrap_memmove(void* to, const void* from, std::size_t bytes) {
  __tsan_read_range(const_cast<void*>(from), bytes);
  __tsan_write_range(to, bytes);
  return __real_memmove(to, from, bytes);
}
void* __real_memset(void* to, int value, std::size_t bytes);
void* __wrap_memset(void* to, int value, std::size_t bytes) {
  __tsan_write_range(to, bytes);
  return __real_memset(to, value, bytes);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
  std::array<long, 6> values;
  va_list list;
  va_start(list, number);
  for (long& value : values) value = va_arg(list, long);
  va_end(list);
  const void* const word = reinterpret_cast<const void*>(values[0]);
  if (number == SYS_futex && hooks::concerns(word)) {
    if ((values[1] & FUTEX_CMD_MASK) == FUTEX_WAKE) {
      hooks::futex_wake(word);
      return 0;
    }
    const hooks::Futex futex = {word, static_cast<std::uint32_t>(values[2])};
    if (hooks::futex_wait(&futex, 1)) return 0;
    errno = EAGAIN;
    return -1;
  }
  constexpr long kFutexWaitV = 449;
  struct WaitV {
    std::uint64_t value, address;
    std::uint32_t flags, reserved;
  };
  const auto* const waits = static_cast<const WaitV*>(word);
  if (number == kFutexWaitV && hooks::concerns(reinterpret_cast<const void*>(waits[0].address))) {
    std::array<hooks::Futex, 128> futexes;
    const auto count = static_cast<std::size_t>(values[1]);
    for (std::size_t i = 0; i < count; ++i) {
      futexes[i] = {reinterpret_cast<const void*>(waits[i].address), static_cast<std::uint32_t>(waits[i].value)};
    }
    if (hooks::futex_wait(futexes.data(), count)) return 0;
    errno = EAGAIN;
    return -1;
  }
  return __real_syscall(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}

}  // extern "C"
