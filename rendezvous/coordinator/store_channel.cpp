// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/store_channel.hpp"

#include <fcntl.h>

#include <utility>

#include "rendezvous/base/random_id.hpp"
#include "rendezvous/base/text.hpp"

namespace ddp::rendezvous {

namespace {

// A message is a letter, the life of the coordinator or '-', and fields, each but the last up to a NUL.
constexpr char kMembers = 'M', kOpen = 'O', kSet = 'S', kOwner = 'W';                         // to ddp-store
constexpr char kOpened = 'P', kFailed = 'F', kLink = 'L', kStoreLost = 'D', kAskOwner = 'A';  // from ddp-store
constexpr std::size_t kMaxHeldLinks = 8192;  // as many as may shake hands at a time
constexpr std::size_t kMaxWords = 16 << 10;

std::string message(char kind, const std::string& life, const std::vector<std::string>& fields) {
  std::string text(1, kind);
  text += life;
  for (const std::string& field : fields) text += '\0' + field;
  return text;
}

// Takes the next field off the front.
std::string take_field(std::string_view& rest) {
  const std::size_t end = std::min(rest.find('\0'), rest.size());
  std::string field(rest.substr(0, end));
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return field;
}

int number_in(const std::string& field) { return parse_number<int>(field).value_or(0); }

}  // namespace

// ---- In the coordinator's process ----

RemoteStores::RemoteStores(asio::io_context& io, int channel, Callbacks callbacks)
    : life_(random_id()),
      callbacks_(std::move(callbacks)),
      channel_(io, channel, [this](DescriptorMessage message) { on_message(std::move(message)); }) {}

void RemoteStores::open(int round, const std::vector<std::string>& members, Opened opened) {
  opened_ = std::move(opened);
  std::vector<std::string> part;
  std::size_t bytes = 0;
  const auto send_part = [&] {
    if (!part.empty()) channel_.send(message(kMembers, life_, part));
    part.clear();
    bytes = 0;
  };
  for (const std::string& member : members) {
    if (bytes + member.size() > kMaxWords) send_part();
    part.push_back(member);
    bytes += member.size() + 1;
  }
  send_part();
  channel_.send(message(kOpen, life_, {std::to_string(round)}));
}

void RemoteStores::set(const std::string& key, const std::string& value) {
  channel_.send(message(kSet, life_, {key, value.substr(0, kMaxWords)}));
}

void RemoteStores::take_owner(const std::string& answer) { channel_.send(message(kOwner, life_, {answer})); }

void RemoteStores::on_message(DescriptorMessage message) {
  std::string_view rest(message.text);
  const char kind = rest.front();
  rest.remove_prefix(1);
  const std::string life = take_field(rest);
  if (kind == kLink && !message.descriptors.empty()) {
    return callbacks_.on_agent_link(std::move(message.descriptors.front()), std::string(rest));
  }
  if (kind == kAskOwner) return callbacks_.ask_owner(std::string(rest));
  if (kind == kStoreLost) {
    const int clients = number_in(take_field(rest));
    return callbacks_.on_lost(clients, std::string(rest));
  }
  if (life != life_ || !opened_) return;  // it answers an earlier life
  const int round = number_in(take_field(rest));
  const int port = kind == kOpened ? number_in(std::string(rest)) : 0;
  opened_(round, static_cast<std::uint16_t>(port), kind == kFailed ? std::string(rest) : "");
}

// ---- In ddp-store ----

namespace {

class Server {
 public:
  explicit Server(StoreProcess process)
      : channel_(io_, process.channel, [this](const DescriptorMessage& message) { on_message(message.text); }) {
    if (!process.why_before.empty()) {
      const std::string clients = std::to_string(process.clients_before);
      channel_.send(message(kStoreLost, "-", {clients, process.why_before.substr(0, kMaxWords)}));
    }
    process.options.server.on_agent_link = [this](Descriptor socket, std::string first_bytes) {
      asio::post(io_, [this, agent = std::move(socket), bytes = std::move(first_bytes)]() mutable {
        if (channel_.waiting() >= kMaxHeldLinks) channel_.drop_oldest();
        channel_.send(message(kLink, "-", {bytes.substr(0, kMaxWords)}), std::move(agent));
      });
    };
    process.options.server.ask_owner = [this](const std::string& connection) {
      asio::post(io_, [this, connection] {
        // It will ask again, and links are not to be dropped for it.
        if (channel_.waiting() < kMaxHeldLinks / 2) channel_.send(message(kAskOwner, "-", {connection}));
      });
    };
    stores_ = std::make_unique<LocalStores>(std::move(process.front), std::move(process.options));
  }
  void run() {
    const auto work = asio::make_work_guard(io_);
    io_.run();
  }

 private:
  void on_message(std::string_view rest) {
    const char kind = rest.front();
    rest.remove_prefix(1);
    const std::string life = take_field(rest);
    if (std::exchange(life_, life) != life) members_.clear();
    if (kind == kMembers) {
      while (!rest.empty()) members_.push_back(take_field(rest));
    } else if (kind == kSet) {
      const std::string key = take_field(rest);
      stores_->set(key, std::string(rest));
    } else if (kind == kOwner) {
      stores_->take_owner(std::string(rest));
    } else if (kind == kOpen) {
      stores_->open(
          number_in(std::string(rest)), std::exchange(members_, {}),
          [&](int round, std::uint16_t port, const std::string& why_not) {
            const std::string answer = why_not.empty() ? std::to_string(port) : why_not.substr(0, kMaxWords);
            channel_.send(message(why_not.empty() ? kOpened : kFailed, life, {std::to_string(round), answer}));
          });
    }
  }

  asio::io_context io_{1};
  std::string life_;  // names the coordinator that has sent the newest message
  std::vector<std::string> members_;
  MessageChannel channel_;
  std::unique_ptr<LocalStores> stores_;  // ends before what it calls
};

}  // namespace

void serve_stores(StoreProcess process) { Server(std::move(process)).run(); }

}  // namespace ddp::rendezvous
