// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/local/page/page_server.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "launcher/local/job_view.hpp"
#include "launcher/local/page/metrics.hpp"
#include "launcher/local/page/page_html.hpp"
#include "rendezvous/net/listen.hpp"
#include "rendezvous/wire/json_text.hpp"

namespace ddp::launcher {

namespace asio = rendezvous::asio;
using rendezvous::Descriptor;

namespace {

constexpr std::size_t kMostSessions = 32;

HttpSession::Response json_response(const JobSource::Answer& answer) {
  if (answer.error.empty()) return {.content_type = "application/json", .body = answer.json + "\n"};
  return {.status = 503,
          .content_type = "application/json",
          .body = rendezvous::JsonObject().text("error", answer.error).str() + "\n"};
}

HttpSession::Response metrics_response(const JobSource::Answer& answer, const std::string& accept) {
  const bool is_open = accept.find("application/openmetrics-text") != std::string::npos;
  const MetricsFormat format = is_open ? MetricsFormat::OpenMetrics : MetricsFormat::Prometheus;
  const auto state = job_view(answer.json);
  if (!state) return {.status = 503, .body = (answer.error.empty() ? "no state came" : answer.error) + "\n"};
  return {.content_type = content_type(format), .body = metrics_text(*state, format)};
}

// Fills in the port, if any free one will do.
Descriptor listen_with(PageServer::Settings& settings) {
  rendezvous::Listeners listeners = rendezvous::listen_on({settings.address}, settings.port);
  settings.port = listeners.port;
  return std::move(listeners.sockets.at(0));
}

}  // namespace

PageServer::PageServer(asio::io_context& io, Settings settings, std::function<Descriptor()> look)
    : io_(io),
      settings_(std::move(settings)),
      source_(io, std::move(look)),
      entrance_(io, listen_with(settings_), [this](Descriptor connected) { welcome(std::move(connected)); }) {}

PageServer::~PageServer() { stop(); }

std::string PageServer::url() const {
  return "http://" + rendezvous::endpoint(settings_.address, settings_.port) + "/";
}

void PageServer::stop() {
  entrance_.close();
  source_.stop();
  for (const auto& session : std::exchange(sessions_, {})) session->close();
}

void PageServer::welcome(Descriptor connected) {
  if (sessions_.size() >= kMostSessions) {
    const auto silent = std::find_if(sessions_.begin(), sessions_.end(), [](const auto& s) { return s->is_silent(); });
    const auto victim = silent == sessions_.end() ? sessions_.begin() : silent;
    (*victim)->close();
    sessions_.erase(victim);
  }
  const Visitor visitor = visitor_at(connected.get());
  const auto session = std::make_shared<HttpSession>(
      io_, std::move(connected),
      HttpSession::Callbacks{
          .on_request = [this, visitor](const HttpSession::Request& request,
                                        const HttpSession::Reply& reply) { answer(visitor, request, reply); },
          .on_over =
              [this](HttpSession* over) { sessions_.remove_if([over](const auto& s) { return s.get() == over; }); }});
  sessions_.push_back(session);
  session->start();
}

Visitor PageServer::visitor_at(int connected) {
  if (settings_.rules.token) return Visitor::Unknown;  // it is not asked who he is
  const auto ends = rendezvous::ends_of(connected);
  if (!ends) return Visitor::Unknown;
  const auto user = peer_users_.of(connected, *ends);
  if (std::holds_alternative<rendezvous::PeerUsers::Elsewhere>(user)) return Visitor::Elsewhere;
  const auto* known = std::get_if<rendezvous::PeerUsers::Known>(&user);
  if (known == nullptr) return Visitor::Unknown;
  return known->uid == ::geteuid() || known->uid == 0 ? Visitor::Own : Visitor::OtherUser;
}

void PageServer::answer(Visitor visitor, const HttpSession::Request& request, const HttpSession::Reply& reply) {
  const PageRequest asked = {.method = request.method,
                             .target = request.target,
                             .host = request.host,
                             .authorization = request.authorization,
                             .has_body = request.has_body};
  const PageAnswer answer = answer_to(asked, visitor, settings_.rules);
  if (answer.status != 200) return reply({.status = answer.status, .body = answer.why + "\n"});
  if (answer.content == PageContent::Page) {
    return reply({.content_type = "text/html; charset=utf-8", .body = std::string(page_html())});
  }
  answer_from_job(answer.content, request.accept, reply);
}

void PageServer::answer_from_job(PageContent content, const std::string& accept, const HttpSession::Reply& reply) {
  source_.get([content, accept, reply](const JobSource::Answer& answer) {
    reply(content == PageContent::JobJson ? json_response(answer) : metrics_response(answer, accept));
  });
}

}  // namespace ddp::launcher
