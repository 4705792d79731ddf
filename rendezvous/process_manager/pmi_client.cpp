// SPDX-License-Identifier: BSD-3-Clause
// PMI-1's wire protocol, https://flux-framework.readthedocs.io/projects/flux-rfc, number 13: lines of words KEY=VALUE
// on a socket that the starter has left open.
//
//     cmd=init pmi_version=1 pmi_subversion=1          cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0
//     cmd=get_my_kvsname                               cmd=my_kvsname kvsname=kvs_4711_0
//     cmd=put kvsname=kvs_4711_0 key=K value=V         cmd=put_result rc=0 msg=success
//     cmd=barrier_in                                   cmd=barrier_out
//     cmd=get kvsname=kvs_4711_0 key=K                 cmd=get_result rc=0 msg=success value=V
//     cmd=finalize                                     cmd=finalize_ack
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/base/text_stream.hpp"
#include "rendezvous/process_manager/clients.hpp"

namespace ddp::rendezvous {
namespace {

class PmiClient {
 public:
  PmiClient() {
    const char* text = getenv("PMI_FD");
    const auto number = parse_number<int>(text ? text : "");
    if (!number) throw Error(ErrorCode::System, "PMI_FD is not set, or not the number of a descriptor");
    socket_ = *number;
  }

  // Sends a command and returns the value of `wanted` in the answer, which must be `answer`.
  std::string ask(const std::string& command, const std::string& answer, const std::string& wanted = "") {
    send("cmd=" + command + "\n");
    const std::string line = read_line();
    TextStream words(line);
    std::string name, code = "0", value;
    for (std::string word; words >> word;) {
      if (word.starts_with("cmd=")) name = word.substr(4);
      if (word.starts_with("rc=")) code = word.substr(3);
      if (word.starts_with(wanted + "=")) value = word.substr(wanted.size() + 1);
    }
    if (name == answer && code == "0" && (wanted.empty() || !value.empty())) return value;
    throw Error(ErrorCode::System, "its starter answered \"" + line + "\" to \"" + command + "\"");
  }

 private:
  void send(const std::string& text) const {
    for (std::size_t done = 0; done < text.size();) {
      const ssize_t count = ::send(socket_, text.data() + done, text.size() - done, MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) system_error("PMI_FD");
      done += static_cast<std::size_t>(count);
    }
  }

  // Nothing is sent before a command is answered, so what is read is one line.
  std::string read_line() const {
    constexpr std::size_t kLongest = 4096;
    std::string line;
    for (char c = 0; line.size() < kLongest;) {
      const ssize_t count = ::read(socket_, &c, 1);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) throw Error(ErrorCode::System, "its starter closed the socket of PMI_FD");
      if (c == '\n') return line;
      line += c;
    }
    throw Error(ErrorCode::System, "its starter sent a line of more than 4096 bytes");
  }

  int socket_ = -1;
};

}  // namespace

std::string exchange_by_pmi(int rank, const std::string& text) {
  PmiClient starter;
  starter.ask("init pmi_version=1 pmi_subversion=1", "response_to_init");
  const std::string name = starter.ask("get_my_kvsname", "my_kvsname", "kvsname");
  const std::string place = " kvsname=" + name + " key=" + kExchangeKey;
  if (rank == 0) starter.ask("put" + place + " value=" + text, "put_result");
  starter.ask("barrier_in", "barrier_out");
  const std::string found = starter.ask("get" + place, "get_result", "value");
  starter.ask("finalize", "finalize_ack");
  return found;
}

}  // namespace ddp::rendezvous
