// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/coordinator/store_channel.hpp"

#include <utility>
#include <variant>

#include "rendezvous/base/random_id.hpp"
#include "rendezvous/wire/message.hpp"

namespace ddp::rendezvous {

namespace {

constexpr std::size_t kMaxHeldLinks = 8192;  // as many as may shake hands at a time

// ---- Messages ----

// To ddp-store: open an empty store. The members' addresses may take several messages.
struct OpenRequest {
  static constexpr FrameKind kKind = FrameKind::OpenStore;
  std::string life;  // names the coordinator's process
  int round = 0;
  std::vector<std::string> members;
  bool is_last = false;
};
struct OpenAnswer {
  static constexpr FrameKind kKind = FrameKind::StoreOpened;
  std::string life;  // as in the request
  int round = 0;
  std::uint16_t port = 0;
  std::string why_not;
};
// To ddp-store.
struct KeyToSet {
  static constexpr FrameKind kKind = FrameKind::SetKey;
  std::string key, value;
};
// From ddp-store the question whose a connection is, and to ddp-store the answer.
struct OwnerWords {
  static constexpr FrameKind kKind = FrameKind::Owner;
  std::string text;
};
// From another life of ddp-store.
struct OtherStore {
  static constexpr FrameKind kKind = FrameKind::OtherStore;
  int clients_before = 0;
  std::string why;
};

template <typename Json>
void members(Json& json, OpenRequest& request) {
  json.must("life", request.life).must("round", request.round).must("members", request.members);
  json.must("is_last", request.is_last);
}
template <typename Json>
void members(Json& json, OpenAnswer& answer) {
  json.must("life", answer.life).must("round", answer.round).must("port", answer.port).rest("why_not", answer.why_not);
}
template <typename Json>
void members(Json& json, KeyToSet& set) {
  json.must("key", set.key).must("value", set.value);
}
template <typename Json>
void members(Json& json, OwnerWords& owner) {
  json.must("text", owner.text);
}
template <typename Json>
void members(Json& json, OtherStore& store) {
  json.must("clients_before", store.clients_before).must("why", store.why);
}

}  // namespace

// ---- In the coordinator's process ----

RemoteStores::RemoteStores(asio::io_context& io, int channel, Callbacks callbacks)
    : life_(random_id()),
      callbacks_(std::move(callbacks)),
      channel_(io, channel, [this](DescriptorMessage message) { on_message(std::move(message)); }) {}

void RemoteStores::open(int round, const std::vector<std::string>& members, Opened opened) {
  opened_ = std::move(opened);
  OpenRequest part{.life = life_, .round = round, .members = {}};
  std::size_t bytes = 0;
  for (const std::string& member : members) {
    bytes += member.size();
    if (bytes > kMaxChannelWords) {
      channel_.send(to_frame(part));
      part.members.clear();
      bytes = member.size();
    }
    part.members.push_back(member);
  }
  part.is_last = true;
  channel_.send(to_frame(part));
}

void RemoteStores::set(const std::string& key, const std::string& value) {
  channel_.send(to_frame(KeyToSet{key, value.substr(0, kMaxChannelWords)}));
}

void RemoteStores::take_owner(const std::string& answer) {
  channel_.send(to_frame(OwnerWords{answer.substr(0, kMaxChannelWords)}));
}

void RemoteStores::on_message(DescriptorMessage message) {
  if (!message.descriptors.empty()) {
    return callbacks_.on_agent_link(std::move(message.descriptors.front()), std::move(message.text));
  }
  const auto read = read_datagram<OpenAnswer, OwnerWords, OtherStore>(message.text);
  if (const auto* owner = std::get_if<OwnerWords>(&read)) callbacks_.ask_owner(owner->text);
  if (const auto* store = std::get_if<OtherStore>(&read)) callbacks_.on_lost(store->clients_before, store->why);
  const auto* const answer = std::get_if<OpenAnswer>(&read);
  const bool is_own = answer && answer->life == life_ && opened_;  // else it answers an earlier life
  if (is_own) opened_(answer->round, answer->port, answer->why_not);
}

// ---- In ddp-store ----

namespace {

class Server {
 public:
  explicit Server(StoreProcess process)
      : channel_(io_, process.channel, [this](const DescriptorMessage& message) { on_message(message.text); }) {
    if (!process.why_before.empty()) channel_.send(to_frame(OtherStore{process.clients_before, process.why_before}));
    process.options.server.on_agent_link = [this](Descriptor socket, std::string first_bytes) {
      asio::post(io_, [this, agent = std::move(socket), bytes = std::move(first_bytes)]() mutable {
        if (channel_.waiting() >= kMaxHeldLinks) channel_.drop_oldest();
        channel_.send(bytes.substr(0, kMaxChannelWords), std::move(agent));
      });
    };
    process.options.server.ask_owner = [this](const std::string& connection) {
      asio::post(io_, [this, connection] {
        // It will ask again, and links are not to be dropped for it.
        if (channel_.waiting() < kMaxHeldLinks / 2) channel_.send(to_frame(OwnerWords{connection}));
      });
    };
    stores_ = std::make_unique<LocalStores>(std::move(process.front), std::move(process.options));
  }
  void run() {
    const auto work = asio::make_work_guard(io_);
    io_.run();
  }

 private:
  void on_message(const std::string& text) {
    const auto read = read_datagram<OpenRequest, KeyToSet, OwnerWords>(text);
    if (const auto* request = std::get_if<OpenRequest>(&read)) open(*request);
    if (const auto* set = std::get_if<KeyToSet>(&read)) stores_->set(set->key, set->value);
    if (const auto* owner = std::get_if<OwnerWords>(&read)) stores_->take_owner(owner->text);
  }
  void open(const OpenRequest& request) {
    if (std::exchange(life_, request.life) != request.life) members_.clear();
    members_.insert(members_.end(), request.members.begin(), request.members.end());
    if (!request.is_last) return;
    stores_->open(request.round, std::exchange(members_, {}),
                  [&](int round, std::uint16_t port, const std::string& why_not) {
                    channel_.send(to_frame(OpenAnswer{life_, round, port, why_not.substr(0, kMaxChannelWords)}));
                  });
  }

  asio::io_context io_{1};
  std::string life_;  // names the coordinator that has sent the newest request
  std::vector<std::string> members_;
  MessageChannel channel_;
  std::unique_ptr<LocalStores> stores_;  // ends before what it calls
};

}  // namespace

void serve_stores(StoreProcess process) { Server(std::move(process)).run(); }

}  // namespace ddp::rendezvous
