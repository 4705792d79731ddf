// SPDX-License-Identifier: BSD-3-Clause
#include "tests/collectives/host/memory_model/explorer.hpp"

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "tests/collectives/host/memory_model/hooks.hpp"

namespace ddp::collectives::test {
namespace {

constexpr std::size_t kStack = 256 << 10;
constexpr std::size_t kMostEvents = 5000;  // in one run: more than any program has that ends

// What a rank knows, or a store carries.
struct Knowledge {
  std::vector<std::uint32_t> oldest;                // the oldest store of each word that may be read, by its number
  std::array<std::uint32_t, kMostRanks> seen = {};  // how far each rank had come

  void learn(const Knowledge& other) {
    if (oldest.size() < other.oldest.size()) oldest.resize(other.oldest.size());
    for (std::size_t i = 0; i < other.oldest.size(); ++i) oldest[i] = std::max(oldest[i], other.oldest[i]);
    for (std::size_t r = 0; r < kMostRanks; ++r) seen[r] = std::max(seen[r], other.seen[r]);
  }
};

struct Stored {
  std::uint64_t value;
  Knowledge carried;
};

struct Word {
  std::size_t number;  // in the order of first use in this run
  std::size_t offset;
  std::size_t size;
  std::vector<Stored> stores;  // the first is what the word has at the beginning
  std::uint32_t last_sequential = 0;
  std::set<std::size_t> users;
};

// When each rank has last read and written a cell of memory.
constexpr std::size_t kCell = 4;
struct Cell {
  std::array<std::uint32_t, kMostRanks> read = {}, written = {};
};

struct Rank {
  ucontext_t context = {};
  std::vector<char> stack = std::vector<char>(kStack);
  Knowledge knows;
  std::vector<const void*> sleeps_on;
  bool has_ended = false;
};

struct Event {
  std::size_t rank;
  const char* what;
  std::size_t offset;
  std::uint64_t value;
  std::size_t older;  // stores that are newer than the one read
};

// One exploration. The choices of a run are written down, and the next run changes the last one that has an
// alternative.
class Explorer {
 public:
  Explorer(const Program& program, const Bounds& bounds)
      : program_(program), bounds_(bounds), cells_(program.bytes / kCell) {}

  Outcome explore();

  bool covers(const volatile void* place) const {
    const auto* const at = static_cast<const volatile unsigned char*>(place);
    return !is_inside_ && at >= program_.memory && at < program_.memory + program_.bytes;
  }

  std::uint64_t load(const volatile void* address, std::size_t size, std::memory_order order) {
    const Inside inside(*this);
    order = order_of(Operation::Load, address, order);
    Word& word = at_point(address, size);
    return read_word(word, address, order, "reads");
  }

  template <typename Make>
  std::uint64_t change(volatile void* address, std::size_t size, std::memory_order order, bool reads, Make&& make) {
    const Inside inside(*this);
    order = order_of(reads ? Operation::Modify : Operation::Store, address, order);
    Word& word = at_point(address, size);
    const Stored before = word.stores.back();
    const std::optional<std::uint64_t> value = make(before.value);
    Knowledge& knows = ranks_[running_].knows;
    if (reads) {
      if (acquires(order)) knows.learn(before.carried);
      see(word, word.stores.size() - 1);
    }
    if (!value) return note("finds", address, before.value, 0), before.value;
    note(reads ? "changes to" : "stores", address, *value, 0);
    if (word.users.size() > 1) share(word);
    Stored stored = {*value, {}};
    see(word, word.stores.size());
    if (releases(order)) stored.carried = knows;
    if (reads) stored.carried.learn(before.carried);
    stored.carried.oldest.resize(std::max(stored.carried.oldest.size(), word.number + 1));
    stored.carried.oldest[word.number] = static_cast<std::uint32_t>(word.stores.size());
    if (order == std::memory_order_seq_cst) word.last_sequential = static_cast<std::uint32_t>(word.stores.size());
    word.stores.push_back(std::move(stored));
    std::memcpy(const_cast<void*>(address), &*value, size);
    ++knows.seen[running_];
    return before.value;
  }

  void access(const volatile void* place, std::size_t bytes, bool writes) {
    const Inside inside(*this);
    const std::size_t offset = offset_of(place);
    const Knowledge& knows = ranks_[running_].knows;
    note(writes ? "writes bytes" : "reads bytes", place, bytes, 0);
    for (std::size_t i = offset / kCell; i < std::min((offset + bytes + kCell - 1) / kCell, cells_.size()); ++i) {
      Cell& cell = cells_[i];
      touched_.push_back(i);
      for (std::size_t r = 0; r < ranks_.size(); ++r) {
        if (r == running_) continue;
        if (cell.written[r] > knows.seen[r] || (writes && cell.read[r] > knows.seen[r])) {
          return fail("data race at byte " + std::to_string(i * kCell) + " of the segment: rank " +
                      std::to_string(running_) + (writes ? " writes" : " reads") + " while rank " + std::to_string(r) +
                      (cell.written[r] > knows.seen[r] ? " writes" : " reads"));
        }
      }
      (writes ? cell.written : cell.read)[running_] = knows.seen[running_];
    }
  }

  bool futex_wait(const hooks::Futex* words, std::size_t count) {
    const Inside inside(*this);
    Rank& rank = ranks_[running_];
    for (std::size_t i = 0; i < count; ++i) {
      if (i == 0) choose_rank();
      pass_queue(words[i].word);
      Word& word = find(words[i].word, sizeof(std::uint32_t));
      const std::uint64_t value = read_word(word, words[i].word, std::memory_order_relaxed, "sleeps if still");
      if (static_cast<std::uint32_t>(value) != words[i].expected) return false;
    }
    for (std::size_t i = 0; i < count; ++i) rank.sleeps_on.push_back(words[i].word);
    give_way();
    return true;
  }

  void futex_wake(const void* address) {
    const Inside inside(*this);
    choose_rank();
    pass_queue(address);
    note("wakes", address, 0, 0);
    for (Rank& rank : ranks_) {
      const auto& on = rank.sleeps_on;
      if (std::find(on.begin(), on.end(), address) != on.end()) rank.sleeps_on.clear();
    }
  }

 private:
  // The explorer's own accesses concern nobody.
  struct Inside {
    explicit Inside(Explorer& of) : flag(of.is_inside_) { flag = true; }
    ~Inside() { flag = false; }
    bool& flag;
  };

  static bool acquires(std::memory_order order) {
    return order != std::memory_order_relaxed && order != std::memory_order_release;
  }
  static bool releases(std::memory_order order) {
    return order == std::memory_order_release || order == std::memory_order_acq_rel ||
           order == std::memory_order_seq_cst;
  }
  std::memory_order order_of(Operation operation, const volatile void* word, std::memory_order order) const {
    return program_.orders ? program_.orders(operation, const_cast<const void*>(word), order) : order;
  }
  std::size_t offset_of(const volatile void* place) const {
    return static_cast<std::size_t>(static_cast<const volatile unsigned char*>(place) - program_.memory);
  }

  Word& find(const volatile void* address, std::size_t size) {
    const std::size_t offset = offset_of(address);
    if (const auto found = words_.find(offset); found != words_.end()) return found->second;
    std::uint64_t value = 0;
    std::memcpy(&value, const_cast<const void*>(address), size);
    return words_.emplace(offset, Word{words_.size(), offset, size, {{value, {}}}, 0, {}}).first->second;
  }

  // A place where another rank may go on: before each access to a word that several ranks use and one of them changes.
  Word& at_point(const volatile void* address, std::size_t size) {
    Word& word = find(address, size);
    if (shared_.contains(word.offset)) choose_rank();
    word.users.insert(running_);
    if (word.users.size() > 1 && word.stores.size() > 1) share(word);
    return word;
  }
  void share(const Word& word) { has_found_shared_ = shared_.insert(word.offset).second || has_found_shared_; }

  void see(const Word& word, std::size_t store) {
    auto& oldest = ranks_[running_].knows.oldest;
    if (oldest.size() <= word.number) oldest.resize(word.number + 1);
    oldest[word.number] = static_cast<std::uint32_t>(store);
  }

  std::uint64_t read_word(Word& word, const volatile void* address, std::memory_order order, const char* what) {
    Knowledge& knows = ranks_[running_].knows;
    std::size_t oldest = word.number < knows.oldest.size() ? knows.oldest[word.number] : 0;
    if (order == std::memory_order_seq_cst) oldest = std::max<std::size_t>(oldest, word.last_sequential);
    const std::size_t newest = word.stores.size() - 1;
    const std::size_t older = old_values_ < bounds_.old_values ? choose(newest - oldest + 1) : 0;
    if (older > 0) ++old_values_;
    const Stored& stored = word.stores[newest - older];
    see(word, newest - older);
    if (acquires(order)) knows.learn(stored.carried);
    note(what, address, stored.value, older);
    return stored.value;
  }

  // The kernel's queue of those that sleep on a word: a rank that locks it learns what those before it knew.
  void pass_queue(const void* address) {
    Knowledge& queue = queues_[offset_of(address)];
    Knowledge& knows = ranks_[running_].knows;
    knows.learn(queue);
    queue = knows;
    ++knows.seen[running_];
  }

  // Returns a number below `options`, which run after run becomes each of them.
  std::size_t choose(std::size_t options) {
    if (options <= 1) return 0;
    if (next_choice_ == choices_.size()) choices_.push_back({0, options});
    const Choice& choice = choices_[next_choice_++];
    if (choice.options != options) {
      fail("the program is not the same in each run");
      return 0;
    }
    return choice.taken;
  }

  std::vector<std::size_t> ready_ranks() const {
    std::vector<std::size_t> ready;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      if (!ranks_[r].has_ended && ranks_[r].sleeps_on.empty()) ready.push_back(r);
    }
    return ready;
  }

  // The running rank can go on, but another one may come first.
  void choose_rank() {
    if (switches_ == bounds_.switches) return;
    std::vector<std::size_t> ready = ready_ranks();
    std::erase(ready, running_);
    const std::size_t taken = choose(ready.size() + 1);
    if (taken == 0) return;
    ++switches_;
    go_to(ready[taken - 1]);
  }

  // The running rank sleeps or has ended.
  void give_way() {
    std::vector<std::size_t> ready = ready_ranks();
    if (ready.empty()) {
      const bool all_ended = std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.has_ended; });
      if (all_ended) return leave_run();
      if (timeouts_++ == program_.most_timeouts) return fail("a wake-up is lost: all ranks that go on sleep");
      for (Rank& rank : ranks_) rank.sleeps_on.clear();
      ready = ready_ranks();
    }
    // The next rank in turn, or after a switch another one.
    const auto next = std::upper_bound(ready.begin(), ready.end(), running_);
    std::rotate(ready.begin(), next, ready.end());
    const std::size_t taken = switches_ < bounds_.switches ? choose(ready.size()) : 0;
    if (taken > 0) ++switches_;
    if (ready[taken] != running_) go_to(ready[taken]);
  }

  void go_to(std::size_t rank) {
    const std::size_t from = std::exchange(running_, rank);
    swapcontext(&ranks_[from].context, &ranks_[rank].context);
    is_inside_ = true;
  }
  void leave_run() { setcontext(&main_); }

  void note(const char* what, const volatile void* address, std::uint64_t value, std::size_t older) {
    events_.push_back({running_, what, offset_of(address), value, older});
    if (events_.size() > kMostEvents) fail("the run does not end");
  }
  void fail(const std::string& why) {
    if (wrong_.empty()) wrong_ = why + '\n' + events();
    leave_run();
  }
  std::string events() const {
    std::string text;
    for (const Event& event : events_) {
      const bool is_known = !program_.name_of || !program_.name_of(event.offset).empty();
      const std::string name =
          program_.name_of && is_known ? program_.name_of(event.offset) : "byte " + std::to_string(event.offset);
      text += "  rank " + std::to_string(event.rank) + ": " + name + ": " + event.what + ' ' +
              std::to_string(event.value) + (event.older > 0 ? ", an old value" : "") + '\n';
    }
    return text;
  }

  static void run_rank();
  void run_once();
  void start_run();

  struct Choice {
    std::size_t taken, options;
  };

  const Program& program_;
  const Bounds bounds_;
  std::vector<Choice> choices_;
  std::set<std::size_t> shared_;  // offsets of words that several ranks use and one changes
  bool has_found_shared_ = false;

  // What one run changes.
  std::size_t next_choice_ = 0;
  std::map<std::size_t, Word> words_;  // by offset
  std::map<std::size_t, Knowledge> queues_;
  std::vector<Cell> cells_;
  std::vector<std::size_t> touched_;
  std::vector<Rank> ranks_;
  std::vector<Event> events_;
  std::size_t running_ = 0;
  int switches_ = 0, old_values_ = 0, timeouts_ = 0;
  bool is_inside_ = false;
  std::string wrong_;
  ucontext_t main_ = {};
};

Explorer* current = nullptr;

void Explorer::run_rank() {
  Explorer& explorer = *current;
  const std::size_t rank = explorer.running_;
  explorer.is_inside_ = false;
  try {
    explorer.program_.ranks[rank]();
  } catch (const std::exception& e) {
    const Inside inside(explorer);
    explorer.fail("rank " + std::to_string(rank) + " ends with: " + e.what());
  }
  explorer.is_inside_ = true;
  explorer.ranks_[rank].has_ended = true;
  explorer.give_way();
}

void Explorer::start_run() {
  words_.clear();
  queues_.clear();
  events_.clear();
  for (const std::size_t i : touched_) cells_[i] = {};
  touched_.clear();
  next_choice_ = 0;
  switches_ = old_values_ = timeouts_ = 0;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    rank.knows = {};
    rank.knows.seen[r] = 1;
    rank.sleeps_on.clear();
    rank.has_ended = false;
    getcontext(&rank.context);
    rank.context.uc_stack.ss_sp = rank.stack.data();
    rank.context.uc_stack.ss_size = rank.stack.size();
    makecontext(&rank.context, &Explorer::run_rank, 0);
  }
  is_inside_ = true;
}

// Runs the ranks until all have ended or something is wrong.
void Explorer::run_once() {
  start_run();
  volatile bool has_run = false;
  getcontext(&main_);  // leave_run() comes back to here
  if (!has_run) {
    has_run = true;
    running_ = choose(ranks_.size());
    setcontext(&ranks_[running_].context);
  }
  // The next run begins with the words as they were.
  for (const auto& [offset, word] : words_) {
    std::memcpy(program_.memory + offset, &word.stores.front().value, word.size);
  }
}

Outcome Explorer::explore() {
  Outcome outcome;
  ranks_.resize(program_.ranks.size());
  current = this;
  do {
    run_once();
    ++outcome.runs;
    if (wrong_.empty()) {
      const std::string verdict = program_.verdict();
      if (!verdict.empty()) wrong_ = verdict + '\n' + events();
    }
    if (std::exchange(has_found_shared_, false)) {
      choices_.clear();  // there are more places where another rank may go on: begin again
      continue;
    }
    while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().options) choices_.pop_back();
    if (choices_.empty()) break;
    ++choices_.back().taken;
  } while (wrong_.empty());
  current = nullptr;
  outcome.wrong = wrong_;
  return outcome;
}

}  // namespace

Outcome explore(const Program& program, const Bounds& bounds) { return Explorer(program, bounds).explore(); }

namespace hooks {

bool concerns(const volatile void* place) { return current != nullptr && current->covers(place); }

std::uint64_t load(const volatile void* word, std::size_t size, std::memory_order order) {
  return current->load(word, size, order);
}

void store(volatile void* word, std::size_t size, std::uint64_t value, std::memory_order order) {
  current->change(word, size, order, false, [value](std::uint64_t) { return value; });
}

std::uint64_t modify(volatile void* word, std::size_t size, std::memory_order order, Change change,
                     std::uint64_t operand) {
  return current->change(word, size, order, true,
                         [change, operand](std::uint64_t before) { return change(before, operand); });
}

std::uint64_t compare_exchange(volatile void* word, std::size_t size, std::uint64_t expected, std::uint64_t desired,
                               std::memory_order order) {
  return current->change(word, size, order, true, [expected, desired](std::uint64_t before) {
    return before == expected ? std::optional(desired) : std::nullopt;
  });
}

void read(const volatile void* from, std::size_t bytes) { current->access(from, bytes, false); }
void write(const volatile void* to, std::size_t bytes) { current->access(to, bytes, true); }

bool futex_wait(const Futex* words, std::size_t count) { return current->futex_wait(words, count); }
void futex_wake(const void* word) { current->futex_wake(word); }

}  // namespace hooks
}  // namespace ddp::collectives::test
