// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/kept_memories.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/file_limit.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/machine/memory_left.hpp"

namespace ddp::launcher {

using rendezvous::Descriptor;
using rendezvous::KeptFacts;
using rendezvous::KeptHeader;

namespace {

[[noreturn]] void kept_memory_failed(const char* step) {
  rendezvous::system_error(std::string("memory to keep: ") + step);
}

bool is_name(const std::string& name) {
  const auto may_be = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  };
  return !name.empty() && name.size() <= KeptMemories::kLongestName && std::all_of(name.begin(), name.end(), may_be);
}

// Returns the memory that the machine has left; nothing if the system does not say.
std::optional<std::uint64_t> available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (std::uint64_t kib = 0; file >> name >> kib;) {
    if (name == "MemAvailable:") return kib * 1024;
    std::getline(file, unit);
  }
  return std::nullopt;
}

}  // namespace

// ---- One memory ----

KeptMemories::Memory::Memory(std::size_t bytes)
    : bytes_(bytes), descriptor_(memfd_create("ddprun_kept", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (!descriptor_) kept_memory_failed("memfd_create");
  if (ftruncate(descriptor_.get(), static_cast<off_t>(bytes)) != 0) kept_memory_failed("ftruncate");
  if (fcntl(descriptor_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    kept_memory_failed("sealing its size");
  }
  const std::string place = "/proc/self/fd/" + std::to_string(descriptor_.get());
  for_reading_ = Descriptor(open(place.c_str(), O_RDONLY | O_CLOEXEC));
  if (!for_reading_) kept_memory_failed("opening it for reading");
  void* const page = mmap(nullptr, sizeof(KeptHeader), PROT_READ, MAP_SHARED, descriptor_.get(), 0);
  if (page == MAP_FAILED) kept_memory_failed("mmap");
  header_ = static_cast<const KeptHeader*>(page);
}

KeptMemories::Memory::~Memory() {
  if (header_ != nullptr) munmap(const_cast<KeptHeader*>(header_), sizeof *header_);
}

KeptMemories::Memory::Memory(Memory&& other) noexcept
    : bytes_(other.bytes_),
      descriptor_(std::move(other.descriptor_)),
      for_reading_(std::move(other.for_reading_)),
      header_(std::exchange(other.header_, nullptr)) {}

// Returns the bytes that its worker has asked for and not touched yet, which no control group counts.
std::size_t KeptMemories::Memory::not_allocated() const {
  struct stat facts = {};
  if (fstat(descriptor_.get(), &facts) != 0) return 0;
  const auto allocated = static_cast<std::size_t>(facts.st_blocks) * 512;
  return bytes_ > allocated ? bytes_ - allocated : 0;
}

// ---- All of them ----

std::vector<std::string> KeptMemories::begin_round(int base_rank, int world_size) {
  std::vector<std::string> lines;
  for (auto& [name, kept] : kept_) {
    std::vector<KeptFacts> facts;
    for (Slot& slot : kept.slots) {
      facts.push_back(slot.memory ? facts_of(slot.memory->header()) : KeptFacts());
      slot.is_handed_out = slot.is_new = false;
    }
    kept.plan = rendezvous::plan_recovery(facts, base_rank, world_size);
    lines.push_back("kept memory \"" + name +
                    "\": " + (kept.plan.usable() ? "" : "not used, so that the program starts from its checkpoint: ") +
                    kept.plan.reason +
                    (world_size > workers_ ? " (on this node; ranks compare what all nodes have)" : ""));
  }
  return lines;
}

// Returns why a request is refused; empty: it is not.
std::string KeptMemories::why_not(int local_rank, const std::string& name, std::int64_t bytes) const {
  if (!is_name(name)) {
    return "a name of memory to keep has 1 to " + std::to_string(kLongestName) +
           " letters, digits, dots, dashes and underscores";
  }
  if (bytes < static_cast<std::int64_t>(sizeof(KeptHeader)) ||
      bytes % static_cast<std::int64_t>(rendezvous::kKeptPage) != 0) {
    return "memory to keep has whole pages, at least one, and not " + std::to_string(bytes) + " bytes";
  }
  const auto found = kept_.find(name);
  if (found != kept_.end() && found->second.slots[static_cast<std::size_t>(local_rank)].is_handed_out) {
    return "this worker has the memory \"" + name + "\" already";
  }
  if (found == kept_.end() && kept_.size() == kMostNames) {
    return "no more than " + std::to_string(kMostNames) + " names can be kept";
  }
  return "";
}

std::string KeptMemories::why_no_room(std::size_t bytes) const {
  std::size_t promised = bytes;
  for (const auto& [name, kept] : kept_) {
    for (const Slot& slot : kept.slots) promised += slot.memory ? slot.memory->not_allocated() : 0;
  }
  const std::string needed =
      rendezvous::describe_bytes(promised) + " are needed, what was promised to other workers " + "included, and ";
  if (const auto left = rendezvous::least_memory_left(); left && left->bytes < promised) {
    return needed + "control group " + left->group + " has " + rendezvous::describe_bytes(left->bytes) + " of its " +
           rendezvous::describe_bytes(left->limit) + " left (raise its memory limit, or leave out --keep-memory)";
  }
  if (const auto left = available_memory(); left && *left < promised) {
    return needed + "this machine has " + rendezvous::describe_bytes(*left) + " left (leave out --keep-memory)";
  }
  return "";
}

std::string KeptMemories::why_no_files() const {
  constexpr std::size_t kOfMemory = 2;
  std::error_code unknown;
  const auto open = std::distance(std::filesystem::directory_iterator("/proc/self/fd", unknown), {});
  const std::size_t needed = static_cast<std::size_t>(open) + kOfMemory + files_of_round_;
  if (needed <= rendezvous::file_limit()) return "";
  return "ddprun would have " + std::to_string(needed) + " open files in the next round, and may have " +
         std::to_string(rendezvous::file_limit()) + " (raise the hard limit: ulimit -n, or keep fewer memories)";
}

std::variant<KeptMemories::Handed, std::string> KeptMemories::hand_out(int local_rank, const std::string& name,
                                                                       std::int64_t bytes) {
  if (std::string why = why_not(local_rank, name, bytes); !why.empty()) return why;
  const auto size = static_cast<std::size_t>(bytes);
  const auto known = kept_.find(name);
  std::optional<Memory>* memory =
      known != kept_.end() ? &known->second.slots[static_cast<std::size_t>(local_rank)].memory : nullptr;
  const bool is_new = memory == nullptr || !*memory || (*memory)->bytes() != size;
  if (is_new) {
    // Another size is another model: what was kept is of no use to anybody.
    if (memory != nullptr) memory->reset();
    std::string why = why_no_room(size);
    if (why.empty()) why = why_no_files();
    if (!why.empty()) return "memory to keep as \"" + name + "\": " + why;
  }
  try {
    Kept& kept = kept_[name];
    kept.slots.resize(static_cast<std::size_t>(workers_));
    Slot& slot = kept.slots[static_cast<std::size_t>(local_rank)];
    if (is_new) slot.memory.emplace(size);
    slot.is_new = is_new;
    slot.is_handed_out = true;
    Handed handed = {.own = slot.memory->descriptor(), .is_new = is_new};
    if (!is_new && kept.plan.usable()) hand_plan(kept, static_cast<std::size_t>(local_rank), handed);
    return handed;
  } catch (const rendezvous::Error& error) {
    return error.what();
  }
}

int KeptMemories::find(int local_rank, const std::string& name) const {
  const auto found = kept_.find(name);
  if (found == kept_.end()) return -1;
  const auto& memory = found->second.slots[static_cast<std::size_t>(local_rank)].memory;
  return memory ? memory->for_reading() : -1;
}

bool KeptMemories::is_sharded(const Slot& slot) { return slot.memory && facts_of(slot.memory->header()).is_sharded; }

// Returns the workers that have the parts of the shadow, in the order of parts; none if one is missing.
std::vector<int> KeptMemories::holders_of_parts(const Kept& kept) {
  std::vector<int> holders(kept.slots.size(), -1);
  std::size_t parts = 0;
  for (std::size_t i = 0; i < kept.slots.size(); ++i) {
    if (!kept.slots[i].memory) return {};
    const KeptFacts facts = facts_of(kept.slots[i].memory->header());
    parts = static_cast<std::size_t>(
        std::clamp<std::int64_t>(facts.shadow_parts, 0, static_cast<std::int64_t>(holders.size())));
    if (facts.shadow_part >= 0 && static_cast<std::size_t>(facts.shadow_part) < parts) {
      holders[static_cast<std::size_t>(facts.shadow_part)] = static_cast<int>(i);
    }
  }
  holders.resize(parts);
  const bool is_whole = std::find(holders.begin(), holders.end(), -1) == holders.end();
  return is_whole ? holders : std::vector<int>();
}

// Says what the plan has for a worker, unless memory that it takes its tensors from was replaced in this round.
void KeptMemories::hand_plan(const Kept& kept, std::size_t local_rank, Handed& handed) {
  const bool has_own = is_sharded(kept.slots[local_rank]);
  std::vector<int> sources = has_own ? holders_of_parts(kept) : kept.plan.parts;
  if (!has_own && kept.plan.source >= 0) sources.push_back(kept.plan.source);
  for (int& source : sources) {
    const Slot& slot = kept.slots[static_cast<std::size_t>(source)];
    if (!slot.memory || slot.is_new) return;
    source = slot.memory->for_reading();
  }
  handed.go_on = kept.plan.go_on;
  handed.step = kept.plan.step;
  if (has_own) {
    handed.parts = std::move(sources);
  } else if (kept.plan.copies[local_rank] && kept.plan.source >= 0) {
    handed.source = sources.back();
  } else if (kept.plan.copies[local_rank]) {
    handed.parts = std::move(sources);
  }
}

bool KeptMemories::is_updating(int local_rank) const {
  return std::any_of(kept_.begin(), kept_.end(), [&](const auto& entry) {
    const auto& memory = entry.second.slots[static_cast<std::size_t>(local_rank)].memory;
    return memory && rendezvous::is_update_worth_finishing(facts_of(memory->header()));
  });
}

std::size_t KeptMemories::bytes() const {
  std::size_t sum = 0;
  for (const auto& [name, kept] : kept_) {
    for (const Slot& slot : kept.slots) sum += slot.memory ? slot.memory->bytes() : 0;
  }
  return sum;
}

}  // namespace ddp::launcher
