// SPDX-License-Identifier: BSD-3-Clause
// The page of a job: a web page at /, the state of the job as JSON at /job.json, and metrics at /metrics. It runs on
// the agent's loop, in the agent of the node that coordinates: a job has one page. Nothing runs while nobody looks.
//
// A visitor costs the agent a connection of 32, 8 KiB and, twice a second at most, a question to all nodes. Who is
// silent gives way to others. page_access.hpp says who is answered.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "launcher/local/entrance.hpp"
#include "launcher/local/page/http_session.hpp"
#include "launcher/local/page/job_source.hpp"
#include "launcher/local/page/page_access.hpp"
#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/net/asio.hpp"
#include "rendezvous/net/peer_user.hpp"

namespace ddp::launcher {

class PageServer {
 public:
  struct Settings {
    std::string address;     // numeric
    std::uint16_t port = 0;  // 0: any free one
    PageRules rules;
  };

  // Listens. Throws rendezvous::Error if it cannot. `look` is JobSource's.
  PageServer(rendezvous::asio::io_context& io, Settings settings, std::function<rendezvous::Descriptor()> look);
  ~PageServer();
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;

  // Returns where the page is: `http://127.0.0.1:8080/`.
  std::string url() const;
  // Closes all connections, so that nothing here keeps io running.
  void stop();

 private:
  void welcome(rendezvous::Descriptor connected);
  Visitor visitor_at(int connected);
  void answer(Visitor visitor, const HttpSession::Request& request, const HttpSession::Reply& reply);
  void answer_from_job(PageContent content, const std::string& accept, const HttpSession::Reply& reply);

  rendezvous::asio::io_context& io_;
  Settings settings_;
  JobSource source_;
  rendezvous::PeerUsers peer_users_;
  Entrance entrance_;
  std::list<std::shared_ptr<HttpSession>> sessions_{};  // the oldest first
};

}  // namespace ddp::launcher
