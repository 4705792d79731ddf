// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/etcd/client.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <deque>
#include <exception>
#include <utility>

#include "rendezvous/base/descriptor.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/etcd/connection.hpp"
#include "rendezvous/etcd/request_course.hpp"
#include "rendezvous/net/asio.hpp"
#include "rendezvous/net/listen.hpp"

namespace ddp::rendezvous {

namespace {

using Kind = EtcdRefusal::Kind;

constexpr std::size_t kMostPasswordBytes = 1024;

std::string name_of(const EtcdEndpoint& one) { return endpoint(one.host, one.port); }

std::vector<std::string> names_of(const std::vector<EtcdEndpoint>& endpoints) {
  std::vector<std::string> names;
  for (const EtcdEndpoint& one : endpoints) names.push_back(name_of(one));
  return names;
}

std::string http_request(const EtcdEndpoint& to, const RequestCourse::Step& step, const EtcdRequest& request) {
  const RequestWords words = words_of(request);
  const bool is_get = step.what == RequestCourse::What::Version;
  std::string text = is_get ? "GET " : "POST " + std::string(step.api);
  text += words.path;
  text += " HTTP/1.1\r\nHost: " + name_of(to) + "\r\nUser-Agent: ddprun\r\n";
  if (!step.token.empty()) text += "Authorization: " + step.token + "\r\n";
  if (is_get) return text + "\r\n";
  text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(words.body.size()) + "\r\n\r\n";
  return text + words.body;
}

}  // namespace

// Pending handlers keep it alive. Each step has a number, by which a late callback of an earlier one is known.
class EtcdClient::Loop : public std::enable_shared_from_this<EtcdClient::Loop> {
 public:
  Loop(asio::io_context& io, EtcdSettings settings)
      : io_(io),
        settings_(std::move(settings)),
        course_(names_of(settings_.endpoints), !settings_.user.empty()),
        members_(settings_.endpoints.size()),
        timer_(io) {}

  void add(EtcdRequest request, News news, Done done) {
    queue_.push_back({std::move(request), std::move(news), std::move(done)});
    if (queue_.size() > 1) return;
    asio::post(io_, [self = shared_from_this()] { self->begin(); });
  }

  void stop() {
    is_over_ = true;
    ++step_number_;
    timer_.cancel();
    drop_connection();
    for (Member& member : members_) member.lookup.reset();
    queue_.clear();
  }

 private:
  struct Asked {
    EtcdRequest request;
    News news;  // empty, but for a watch
    Done done;
  };
  struct Member {
    std::unique_ptr<NameLookup> lookup;  // one that took too long in an earlier step is waited for again
    std::vector<FoundAddress> addresses;
    std::size_t tries = 0;  // each fails over to the next address
  };

  void begin() {
    if (is_over_ || queue_.empty()) return;
    step_ = course_.begin();
    take_step();
  }

  const EtcdRequest& request_of_step() const {
    if (step_.what == RequestCourse::What::Token) return login_;
    if (step_.what == RequestCourse::What::Version) return version_;
    return queue_.front().request;
  }

  void take_step() {
    const std::uint64_t number = ++step_number_;
    timer_.expires_after(settings_.deadline);
    timer_.async_wait([self = shared_from_this(), number](const boost::system::error_code& error) {
      if (!error && number == self->step_number_) self->too_late();
    });
    if (connection_ && connected_to_ == step_.member && connection_->is_usable()) return ask();
    drop_connection();
    look_up();
  }

  void look_up() {
    Member& member = members_[step_.member];
    if (!member.addresses.empty()) return connect();
    try {
      if (!member.lookup) {
        const EtcdEndpoint& to = settings_.endpoints[step_.member];
        member.lookup = std::make_unique<NameLookup>(io_, std::vector{to.host}, std::vector{to.port});
        member.lookup->async_wait([self = shared_from_this(), index = step_.member] { self->looked_up(index); });
      }
    } catch (const std::exception& error) {
      member.lookup.reset();
      failed_later(error.what());
    }
  }

  // A step may wait for another member by now; the addresses are kept all the same.
  void looked_up(std::size_t index) {
    Member& member = members_[index];
    if (is_over_ || !member.lookup) return;
    const auto lookup = std::exchange(member.lookup, nullptr);
    member.addresses = lookup->addresses();
    if (index != step_.member || connection_ || queue_.empty()) return;
    if (member.addresses.empty()) return failed("its name cannot be resolved: " + lookup->error(), false);
    connect();
  }

  void connect() {
    const Member& member = members_[step_.member];
    const std::uint64_t number = step_number_;
    connected_to_ = step_.member;
    try {
      if (settings_.tls && !tls_) tls_ = std::make_unique<TlsContext>(*settings_.tls);
    } catch (const Error& error) {
      return failed_later(error.what());
    }
    std::weak_ptr<Loop> weak = weak_from_this();
    connection_ = std::make_shared<EtcdConnection>(
        io_, tls_.get(), settings_.endpoints[step_.member].host,
        EtcdConnection::Callbacks{.on_answer =
                                      [weak](unsigned status, const std::string& body) {
                                        if (const auto self = weak.lock()) self->answered(status, body);
                                      },
                                  .on_line =
                                      [weak](const std::string& line) {
                                        if (const auto self = weak.lock()) self->take_line(line);
                                      },
                                  .on_failed =
                                      [weak](const std::string& why, bool was_sent) {
                                        if (const auto self = weak.lock()) self->failed(why, was_sent);
                                      }});
    ask();
    if (number == step_number_) connection_->open(member.addresses[member.tries % member.addresses.size()]);
  }

  void ask() {
    try {
      if (step_.what == RequestCourse::What::Token) {
        login_ = Authenticate{settings_.user, read_password(settings_.password_file)};
      }
    } catch (const Error& error) {
      return failed_later(error.what());
    }
    const bool is_watch = std::holds_alternative<WatchKey>(request_of_step());
    connection_->ask(http_request(settings_.endpoints[step_.member], step_, request_of_step()),
                     is_watch ? HttpAnswer::Shape::Lines : HttpAnswer::Shape::Whole);
  }

  void answered(unsigned status, const std::string& body) {
    if (is_over_) return;
    came(read_answer(request_of_step(), status, body));
  }

  void take_line(const std::string& line) {
    if (is_over_ || queue_.empty()) return;
    timer_.cancel();  // the stream has begun
    auto news = read_news(line);
    const auto* told = std::get_if<WatchNews>(&news);
    if (told == nullptr) {
      drop_connection();
      return came(std::get<EtcdRefusal>(news));
    }
    const News tell = queue_.front().news;  // it may destroy the client
    tell(*told);
  }

  // The addresses are looked up again after each failure, since a member that was started elsewhere may have others.
  void failed(const std::string& why, bool was_sent) {
    if (is_over_) return;
    Member& member = members_[step_.member];
    member.addresses.clear();
    ++member.tries;
    drop_connection();
    tls_.reset();
    came(EtcdRefusal{was_sent ? Kind::Unknown : Kind::Unsent, why});
  }

  void failed_later(const std::string& why) {
    asio::post(io_, [self = shared_from_this(), why, number = step_number_] {
      if (number == self->step_number_) self->failed(why, false);
    });
  }

  void too_late() {
    const bool was_sent = connection_ && connection_->was_sent();
    failed("no answer in " + to_string(settings_.deadline), was_sent);
  }

  void came(EtcdOutcome what) {
    timer_.cancel();
    ++step_number_;
    auto outcome = course_.take(std::move(what));
    if (!outcome) {
      step_ = course_.step();
      return take_step();
    }
    const Done done = std::move(queue_.front().done);
    queue_.pop_front();
    if (!queue_.empty()) asio::post(io_, [self = shared_from_this()] { self->begin(); });
    done(*std::move(outcome));
  }

  void drop_connection() {
    if (connection_) std::exchange(connection_, nullptr)->close();
  }

  asio::io_context& io_;
  const EtcdSettings settings_;
  EtcdRequest login_ = Authenticate{};
  const EtcdRequest version_ = AskVersion{};
  RequestCourse course_;
  std::vector<Member> members_;
  asio::steady_timer timer_;
  std::deque<Asked> queue_;  // the first one is asked now
  RequestCourse::Step step_;
  std::uint64_t step_number_ = 0;
  std::unique_ptr<const TlsContext> tls_;  // must outlive the connection
  std::shared_ptr<EtcdConnection> connection_;
  std::size_t connected_to_ = 0;
  bool is_over_ = false;
};

EtcdClient::EtcdClient(asio::io_context& io, EtcdSettings settings)
    : loop_(std::make_shared<Loop>(io, std::move(settings))) {}

EtcdClient::~EtcdClient() { loop_->stop(); }

void EtcdClient::ask(EtcdRequest request, Done done) { loop_->add(std::move(request), {}, std::move(done)); }

void EtcdClient::watch(WatchKey request, News news, Done done) {
  loop_->add(std::move(request), std::move(news), std::move(done));
}

// ---- Settings ----

// A file of root may be read by its group: Kubernetes mounts secrets so for a pod whose user is not root.
std::string read_password(const std::string& path) {
  const auto refuse = [&path](const std::string& why) { invalid_argument("password_file=" + path + ": " + why); };
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts = {};
  if (!file || fstat(file.get(), &facts) != 0) refuse(std::strerror(errno));
  if (!S_ISREG(facts.st_mode)) refuse("it is not a file");
  if (facts.st_uid != geteuid() && facts.st_uid != 0) refuse("it belongs to another user");
  const mode_t forbidden = facts.st_uid == 0 ? 027 : 077;
  if ((facts.st_mode & forbidden) != 0) refuse("others may read or change it; chmod 600 it");
  std::string text(kMostPasswordBytes + 1, '\0');
  const ssize_t size = ::read(file.get(), text.data(), text.size());
  if (size < 0) refuse(std::strerror(errno));
  text.resize(static_cast<std::size_t>(size));
  if (text.size() > kMostPasswordBytes) refuse("it is too long for a password");
  while (!text.empty() && std::string_view("\r\n").find(text.back()) != std::string_view::npos) text.pop_back();
  if (text.empty()) refuse("it is empty");
  return text;
}

namespace {

EtcdEndpoint parse_endpoint(const std::string& part) {
  const auto refuse = [&part](const char* why) -> EtcdEndpoint {
    invalid_argument("'" + part + "' is no endpoint of etcd (" + why + "): say host, host:2379 or [fd00::1]:2379");
  };
  EtcdEndpoint found;
  std::string port;
  const std::size_t close = part.starts_with("[") ? part.find(']') : std::string::npos;
  const std::size_t colon = part.find(':');
  if (close != std::string::npos) {
    found.host = part.substr(1, close - 1);
    port = part.substr(close + 1);
  } else if (colon != std::string::npos && part.find(':', colon + 1) == std::string::npos) {
    found.host = part.substr(0, colon);
    port = part.substr(colon);
  } else {
    found.host = part;
  }
  const auto is_strange = [](unsigned char c) {
    return std::isalnum(c) == 0 && std::string_view(".:-_%").find(static_cast<char>(c)) == std::string_view::npos;
  };
  if (found.host.empty()) return refuse("it has no host");
  if (std::any_of(found.host.begin(), found.host.end(), is_strange)) return refuse("a host has no such characters");
  if (port.empty()) return found;
  const auto number = parse_number<std::uint16_t>(std::string_view(port).substr(1));
  if (port[0] != ':' || !number || *number == 0) return refuse("its port is no number from 1 to 65535");
  found.port = *number;
  return found;
}

}  // namespace

std::vector<EtcdEndpoint> parse_etcd_endpoints(const std::string& text) {
  std::vector<EtcdEndpoint> endpoints;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    endpoints.push_back(parse_endpoint(text.substr(at, end - at)));
    at = end + 1;
  }
  return endpoints;
}

void revoke_lease(const EtcdSettings& settings, LeaseId lease, std::chrono::milliseconds within) {
  asio::io_context io{1};
  EtcdClient client(io, settings);
  client.ask(RevokeLease{lease}, [&io](const EtcdOutcome&) { io.stop(); });
  io.run_for(within);
}

}  // namespace ddp::rendezvous
