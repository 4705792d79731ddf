// SPDX-License-Identifier: BSD-3-Clause
#include "collectives/backend_loader.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <system_error>
#include <tuple>

#include "collectives/backend_error.hpp"
#include "collectives/host/backend.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/worker_contract.hpp"

namespace ddp::collectives {
namespace {

using rendezvous::Error;
using rendezvous::ErrorCode;

const std::string kFileBegins = "libddp_";
const std::string kFileEnds = ".so";

// Returns the folder of the shared object (or program) that this code was linked into.
std::string own_folder() {
  Dl_info info = {};
  if (dladdr(reinterpret_cast<const void*>(&backend_search_path), &info) == 0 || info.dli_fname == nullptr) return ".";
  const std::string file = info.dli_fname;
  const std::size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : file.substr(0, slash);
}

// RTLD_DEEPBIND keeps the module's Gloo apart from the one libtorch exports. Sanitizer runtimes refuse it, and they may
// have come with the user's program, so the check for them is made at run time.
int open_flags() {
  for (const char* symbol : {"__asan_init", "__tsan_init", "__msan_init"}) {
    if (dlsym(RTLD_DEFAULT, symbol) != nullptr) return RTLD_NOW | RTLD_LOCAL;
  }
  return RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND;
}

// Replaces a function that a backend lacks by one that fails with a reason.
template <typename... Arguments>
void fill_in(ddp_backend_status (*&function)(Arguments...)) {
  if (function != nullptr) return;
  function = [](Arguments... arguments) {
    set_text(std::get<sizeof...(Arguments) - 1>(std::tuple(arguments...)), "the backend lacks this operation");
    return DDP_BACKEND_UNSUPPORTED;
  };
}

// Returns the table with a function for each operation.
const ddp_backend_table& completed(const ddp_backend_table& given) {
  static std::mutex mutex;
  static auto& tables = *new std::map<const ddp_backend_table*, ddp_backend_table>;  // threads may outlive main()
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = tables.try_emplace(&given);
  ddp_backend_table& table = found->second;
  if (!is_new) return table;
  std::memcpy(&table, &given, std::min<std::size_t>(given.struct_size, sizeof table));
  fill_in(table.all_reduce);
  fill_in(table.reduce);
  fill_in(table.broadcast);
  fill_in(table.all_gather);
  fill_in(table.gather);
  fill_in(table.scatter);
  fill_in(table.reduce_scatter);
  fill_in(table.all_to_all);
  fill_in(table.barrier);
  fill_in(table.all_gatherv);
  fill_in(table.send);
  fill_in(table.receive);
  return table;
}

const ddp_backend_table& open_module(const std::string& path) {
  void* module = dlopen(path.c_str(), open_flags());
  if (module == nullptr) {
    const char* why = dlerror();
    throw Error(ErrorCode::System, "backend module " + path + " cannot be opened: " + (why ? why : "unknown reason") +
                                       " (is libgloo installed? Debian: apt install libgloo0)");
  }
  const auto open = reinterpret_cast<ddp_backend_open_function>(dlsym(module, DDP_BACKEND_OPEN_SYMBOL));
  const ddp_backend_table* table = open != nullptr ? open(DDP_BACKEND_ABI_VERSION) : nullptr;
  if (table == nullptr || table->abi_version != DDP_BACKEND_ABI_VERSION ||
      table->struct_size < offsetof(ddp_backend_table, features)) {
    throw Error(ErrorCode::System, "backend module " + path + " does not speak version " +
                                       std::to_string(DDP_BACKEND_ABI_VERSION) +
                                       " of the backend table: it belongs to another version of libddp");
  }
  return completed(*table);
}

// Returns the names of the backends that have a module in these folders.
std::vector<std::string> names_in(const std::vector<std::string>& folders) {
  std::set<std::string> names;
  for (const std::string& folder : folders) {
    std::error_code unreadable;
    for (const auto& entry : std::filesystem::directory_iterator(folder, unreadable)) {
      const std::string file = entry.path().filename();
      if (!file.starts_with(kFileBegins) || !file.ends_with(kFileEnds)) continue;
      names.insert(file.substr(kFileBegins.size(), file.size() - kFileBegins.size() - kFileEnds.size()));
    }
  }
  return {names.begin(), names.end()};
}

// Says what to do if a backend has no module: ddprun brings gloo's, nccl needs none, and all others are plug-ins.
std::string advice(const std::string& name, const std::vector<std::string>& there) {
  if (name == "gloo" && !DDP_HAS_GLOO) {
    return "this build of libddp, a portable one as in ddprun's wheel, comes without Gloo: use \"ddp\", "
           "\"nccl\" for GPUs, or build libddp from source and set " +
           std::string(rendezvous::contract::kBackendPath) + " to the folder of its " + kFileBegins + name + kFileEnds;
  }
  if (name == "gloo") return "it comes with libddp: is that installed completely?";
  std::vector<std::string> known = {"ddp", "gloo", "nccl"};  // first: of two that are equally near, they are meant
  known.insert(known.end(), there.begin(), there.end());
  const auto meant = rendezvous::nearest(name, known);
  return (meant ? "did you mean \"" + *meant + "\"? If it is" : "if it is") + " a plug-in of yours, set " +
         rendezvous::contract::kBackendPath + " to the folder of its module";
}

}  // namespace

std::vector<std::string> backend_search_path() {
  std::vector<std::string> folders;
  if (const char* path = std::getenv(rendezvous::contract::kBackendPath); path != nullptr && *path != '\0') {
    folders.emplace_back(path);
  }
  const std::string own = own_folder();
  for (const char* below : {"", "/ddprun", "/../lib", "/../lib/ddprun"}) folders.push_back(own + below);
  return folders;
}

const ddp_backend_table& load_backend(const std::string& name) {
  if (name == host_backend().name) return host_backend();
  const std::string file = kFileBegins + name + kFileEnds;
  const std::vector<std::string> folders = backend_search_path();
  for (const std::string& folder : folders) {
    const std::string path = folder + "/" + file;
    if (access(path.c_str(), F_OK) == 0) return open_module(path);
  }
  const std::vector<std::string> there = names_in(folders);
  throw Error(ErrorCode::System, "backend \"" + name + "\": no " + file + " in " + rendezvous::list_of(folders) +
                                     "; backends there: " + (there.empty() ? "none" : rendezvous::list_of(there)) +
                                     " (" + advice(name, there) + ")");
}

std::uint64_t features_of(const ddp_backend_table& backend) {
  const bool has = backend.struct_size >= offsetof(ddp_backend_table, features) + sizeof(backend.features);
  return has ? backend.features : 0;
}

bool allocates(const ddp_backend_table& backend) {
  return backend.struct_size >= offsetof(ddp_backend_table, release) + sizeof(backend.release) &&
         backend.allocate != nullptr && backend.release != nullptr;
}

}  // namespace ddp::collectives
