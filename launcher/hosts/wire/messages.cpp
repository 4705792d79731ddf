// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/hosts/wire/messages.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "rendezvous/base/error.hpp"
#include "rendezvous/wire/message.hpp"

namespace ddp::launcher {

template <typename Json>
static void members(Json& json, HostPlace& place) {
  json.within("nodes", place.nodes, 1, 100'000).within("node_rank", place.node_rank, 0, 99'999);
  json.must("master_addr", place.master_addr).must("master_port", place.master_port).must("id", place.id);
  std::string secret = place.secret ? rendezvous::digits_of(*place.secret) : "";
  json.rest("secret", secret).rest("workers", place.workers).rest("gpus", place.gpus);
  if (Json::kReads && !secret.empty()) place.secret = rendezvous::secret_of(secret);
  if (!secret.empty() && !place.secret) throw std::range_error("a secret that is not 64 hexadecimal digits");
}

template <typename Json>
static void members(Json& json, JobHeader& header) {
  json.must("place", header.place).bytes("arguments", header.arguments).bytes("variables", header.variables);
  json.bytes("folder", header.folder).bytes("called_as", header.called_as).bytes("own_folder", header.own_folder);
  json.bytes("python", header.python).within("shutdown_timeout_s", header.shutdown_timeout, 0, 1'000'000);
  json.within("silence_s", header.silence, 1, 1'000'000);
}

template <typename Json>
static void members(Json& json, Hello& hello) {
  json.must("host", hello.host).must("address", hello.address).must("caller_address", hello.caller_address);
  json.within("port", hello.port, 1, 65535).must("machine", hello.machine);
}

static std::optional<std::string> accept(const JobHeader& header) {
  const HostPlace& place = header.place;
  const auto has_no_name = [](const std::string& variable) {
    return variable.find('=') == std::string::npos || variable.front() == '=';
  };
  if (place.node_rank >= place.nodes) return "a node rank that is not below the number of nodes";
  if (place.workers && (*place.workers < 1 || *place.workers > 100'000)) return "a number of workers that is none";
  if (header.arguments.empty()) return "no arguments";
  if (!header.folder.starts_with('/')) return "no folder";
  if (std::any_of(header.variables.begin(), header.variables.end(), has_no_name)) return "a variable without a name";
  if (place.nodes > 1 && (place.master_addr.empty() || place.master_port == 0 || !place.secret)) {
    return "no address, port or secret for several nodes";
  }
  return std::nullopt;
}

static std::optional<std::string> accept(const Hello& hello) {
  return hello.address.empty() ? std::optional<std::string>("no address") : std::nullopt;
}

template <typename Message>
static Message message_from(std::string_view text) {
  auto message = rendezvous::read_checked<Message>(text);
  if (const auto* wrong = std::get_if<rendezvous::Malformed>(&message)) {
    throw rendezvous::Error(rendezvous::ErrorCode::Corrupt, wrong->why);
  }
  return std::move(std::get<Message>(message));
}

std::string to_text(const JobHeader& header) { return rendezvous::json_of(header); }
JobHeader job_header_from(std::string_view text) { return message_from<JobHeader>(text); }
std::string to_text(const Hello& hello) { return rendezvous::json_of(hello); }
Hello hello_from(std::string_view text) { return message_from<Hello>(text); }

}  // namespace ddp::launcher
