// SPDX-License-Identifier: BSD-3-Clause
// Memory that a process shares with those that are forked from it later. It holds one T, which begins as T() and has no
// destructor to run; T is written by several processes, so its parts are atomic or have one writer each.
#pragma once

#include <sys/mman.h>

#include <new>
#include <string>
#include <type_traits>

#include "rendezvous/base/error.hpp"

namespace ddp::launcher {

template <typename T>
class SharedPage {
 public:
  // Throws rendezvous::Error, which begins with `cannot`, if there is no memory.
  explicit SharedPage(const std::string& cannot = "cannot make shared memory") {
    static_assert(std::is_trivially_destructible_v<T>);
    void* const memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      rendezvous::system_error(cannot);
    }
    content_ = new (memory) T();
  }
  ~SharedPage() { munmap(content_, sizeof(T)); }
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;

  T* get() const { return content_; }
  T* operator->() const { return content_; }

 private:
  T* content_ = nullptr;
};

}  // namespace ddp::launcher
