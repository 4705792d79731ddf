// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/process_manager/exchange.hpp"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <optional>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/pipe.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/base/text_stream.hpp"
#include "rendezvous/net/addresses/own_address.hpp"
#include "rendezvous/process_manager/clients.hpp"

namespace ddp::rendezvous {
namespace {

using Clock = std::chrono::steady_clock;

// What the child writes: one of these and the text, or the reason why there is none.
constexpr char kFound = '+', kFailed = '-';

// Runs in the child: libpmix starts threads and may hang, and neither is for the caller.
[[noreturn]] void run_child(KeyValueStore store, int rank, const std::string& text, int out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::string answer;
  try {
    answer = kFound + (store == KeyValueStore::Pmi ? exchange_by_pmi(rank, text) : exchange_by_pmix(rank, text));
  } catch (const std::exception& error) {
    answer = kFailed + std::string(error.what());
  }
  _exit(::write(out, answer.data(), answer.size()) < 0 ? 1 : 0);
}

// Reads until the child has ended. Returns what was read; nothing if the time is over.
std::optional<std::string> read_all(int in, std::chrono::milliseconds timeout) {
  const auto end = Clock::now() + timeout;
  std::string text;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    pollfd waited{in, POLLIN, 0};
    const int ready = ::poll(&waited, 1, static_cast<int>(std::max<decltype(left)>(left, 0)));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    char bytes[1024];
    const ssize_t count = ::read(in, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(bytes, static_cast<std::size_t>(count));
  }
}

void close_pmi_socket() {
  const char* text = getenv("PMI_FD");
  if (const auto number = parse_number<int>(text ? text : "")) ::close(*number);
}

}  // namespace

std::string exchange(KeyValueStore store, int rank, const std::string& text, std::chrono::milliseconds timeout) {
  Pipe answers = make_pipe("for the starter's answer");
  const pid_t child = ::fork();
  if (child < 0) system_error("cannot fork");
  if (child == 0) run_child(store, rank, text, answers.write_end.get());
  answers.write_end.close();
  const std::optional<std::string> answer = read_all(answers.read_end.get(), timeout);
  if (!answer) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (store == KeyValueStore::Pmi) close_pmi_socket();
  if (answer && answer->starts_with(kFound)) return answer->substr(1);
  const std::string why = !answer           ? "not all ranks took part within " + to_string(timeout)
                          : answer->empty() ? "the process that asks was killed by " + signal_name(WTERMSIG(status))
                                            : answer->substr(1);
  throw Error(answer ? ErrorCode::System : ErrorCode::Timeout, std::string("asking the starter of this process, by ") +
                                                                   (store == KeyValueStore::Pmi ? "PMI" : "PMIx") +
                                                                   ", for what rank 0 says: " + why);
}

namespace {

constexpr std::chrono::seconds kTimeout{60};  // all processes of the starter are there, or it has failed

}  // namespace

MeetingPoint meeting_point(KeyValueStore store, int rank, const std::string& note) {
  std::string own;
  if (rank == 0) own = own_reachable_address() + "," + std::to_string(reserve_port()) + "," + note;
  TextStream words(exchange(store, rank, own, kTimeout));
  MeetingPoint point;
  std::string port;
  std::getline(words, point.host, ',');
  std::getline(words, port, ',');
  std::getline(words, point.note);
  const auto number = parse_number<std::uint16_t>(port);
  if (point.host.empty() || !number) {
    throw Error(ErrorCode::Corrupt,
                "rank 0 says \"" + words.str() + "\", which is no address (is it another program?)");
  }
  point.port = *number;
  return point;
}

}  // namespace ddp::rendezvous
