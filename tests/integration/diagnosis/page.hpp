// SPDX-License-Identifier: BSD-3-Clause
// A job with a page (--serve), and requests to it.
#pragma once

#include <signal.h>

#include <stdexcept>
#include <string>
#include <string_view>

#include "tests/integration/ddprun.hpp"
#include "tests/rendezvous/store/raw_connection.hpp"

namespace ddp::testing {

// Two workers that run until end().
class PageJob {
 public:
  explicit PageJob(const Words& options = {}, const Process::Options& process = {})
      : process_(ddprun(Words{"--nproc-per-node=2", "--rdzv-id=shown", "--serve=0"} + options, kUntilTold), process) {
    process_.wait_for("up", 2);
    process_.wait_for("the page of this job is at http://");
    const std::string& said = process_.err();
    const auto url = said.find("http://");
    port_ = std::stoi(said.substr(said.find(':', url + 8) + 1));
  }

  Process& process() { return process_; }
  int port() const { return port_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  rendezvous::RawConnection connect() const { return rendezvous::RawConnection::to(static_cast<std::uint16_t>(port_)); }
  Result end() {
    tell_workers(process_);
    return process_.wait();
  }

 private:
  Process process_;
  int port_ = 0;
};

// Returns a request; `headers` end with \r\n each.
inline std::string page_request(const std::string& path, const std::string& headers = "",
                                const std::string& host = "127.0.0.1") {
  return "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n" + headers + "\r\n";
}

// Sends bytes and returns all that comes until the other side closes.
inline std::string exchange(rendezvous::RawConnection connection, std::string_view bytes) {
  connection.send(bytes);
  return connection.receive(64 << 20);
}

inline int status_of(const std::string& response) {
  return response.starts_with("HTTP/1.1 ") ? std::stoi(response.substr(9, 3)) : 0;
}
inline std::string body_of(const std::string& response) {
  const auto end = response.find("\r\n\r\n");
  return end == std::string::npos ? "" : response.substr(end + 4);
}

}  // namespace ddp::testing
