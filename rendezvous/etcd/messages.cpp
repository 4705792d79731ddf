// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/etcd/messages.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "rendezvous/base/shallow_json.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/etcd/base64.hpp"
#include "rendezvous/link/printable.hpp"

namespace ddp::rendezvous {

namespace {

using nlohmann::json;
using Kind = EtcdRefusal::Kind;

constexpr int kDeepest = 12;  // levels of JSON; etcd's deepest answer has seven
constexpr std::size_t kMostWords = 300;
constexpr std::int64_t kLongestLease = 1'000'000;  // seconds

// ---- Requests ----

json number(std::int64_t value) { return std::to_string(value); }
json range_of(const ReadKey& read) { return {{"key", base64_of(read.key)}}; }
json put_of(const PutKey& put) {
  json j = {{"key", base64_of(put.key)}, {"value", base64_of(put.value)}};
  if (put.lease != 0) j["lease"] = number(put.lease);
  return j;
}
json delete_of(const DeleteKey& what) { return {{"key", base64_of(what.key)}}; }

json comparison_of(const KeyComparison& comparison) {
  struct Names {
    const char *target, *field;
  };
  constexpr Names kNames[] = {{"CREATE", "create_revision"}, {"MOD", "mod_revision"}, {"LEASE", "lease"}};
  const Names& names = kNames[static_cast<int>(comparison.of)];
  return {{"key", base64_of(comparison.key)},
          {"target", names.target},
          {"result", "EQUAL"},
          {names.field, number(comparison.equals)}};
}

json operations_of(const std::vector<KeyOperation>& operations) {
  json all = json::array();
  for (const KeyOperation& operation : operations) {
    if (const auto* read = std::get_if<ReadKey>(&operation)) all.push_back({{"request_range", range_of(*read)}});
    if (const auto* put = std::get_if<PutKey>(&operation)) all.push_back({{"request_put", put_of(*put)}});
    if (const auto* gone = std::get_if<DeleteKey>(&operation)) {
      all.push_back({{"request_delete_range", delete_of(*gone)}});
    }
  }
  return all;
}

struct Words {
  const char* path = "";
  json body;
};

Words words(const ReadKey& read) { return {"/kv/range", range_of(read)}; }
Words words(const PutKey& put) { return {"/kv/put", put_of(put)}; }
Words words(const DeleteKey& gone) { return {"/kv/deleterange", delete_of(gone)}; }
Words words(const Transaction& transaction) {
  json compare = json::array();
  for (const KeyComparison& comparison : transaction.if_all) compare.push_back(comparison_of(comparison));
  return {"/kv/txn",
          {{"compare", std::move(compare)},
           {"success", operations_of(transaction.then)},
           {"failure", operations_of(transaction.otherwise)}}};
}
Words words(const GrantLease& grant) { return {"/lease/grant", {{"TTL", number(grant.seconds)}}}; }
Words words(const RenewLease& renew) { return {"/lease/keepalive", {{"ID", number(renew.lease)}}}; }
Words words(const RevokeLease& revoke) { return {"/lease/revoke", {{"ID", number(revoke.lease)}}}; }
Words words(const Authenticate& who) {
  return {"/auth/authenticate", {{"name", who.user}, {"password", who.password}}};
}
Words words(const AskVersion&) { return {"/version", nullptr}; }
Words words(const WatchKey& watch) {
  return {"/watch", {{"create_request", {{"key", base64_of(watch.key)}, {"start_revision", number(watch.from)}}}}};
}

// ---- Answers ----

struct NotAsExpected : std::runtime_error {
  using std::runtime_error::runtime_error;
};

const json& object(const json& j, const char* what) {
  if (!j.is_object()) throw NotAsExpected(std::string(what) + " is no object");
  return j;
}

// Returns the number in this field; 0 if it is left out.
std::int64_t number_in(const json& j, const char* field) {
  const auto found = j.find(field);
  if (found == j.end()) return 0;
  std::optional<std::int64_t> value;
  if (found->is_string()) value = parse_number<std::int64_t>(found->get_ref<const std::string&>());
  if (found->is_number_integer()) value = found->get<std::int64_t>();
  if (!value) throw NotAsExpected(std::string(field) + " is no number");
  return *value;
}

std::string text_in(const json& j, const char* field) {
  const auto found = j.find(field);
  if (found == j.end()) return "";
  if (!found->is_string()) throw NotAsExpected(std::string(field) + " is no text");
  return found->get<std::string>();
}

bool is_set(const json& j, const char* field) {
  const auto found = j.find(field);
  if (found == j.end()) return false;
  if (!found->is_boolean()) throw NotAsExpected(std::string(field) + " is neither true nor false");
  return found->get<bool>();
}

std::string bytes_in(const json& j, const char* field) {
  if (auto bytes = from_base64(text_in(j, field))) return *std::move(bytes);
  throw NotAsExpected(std::string(field) + " is not base64");
}

const json& list_in(const json& j, const char* field) {
  static const json none = json::array();
  const auto found = j.find(field);
  if (found == j.end()) return none;
  if (!found->is_array()) throw NotAsExpected(std::string(field) + " is no list");
  return *found;
}

KeyValue key_value_of(const json& j) {
  object(j, "a key");
  return {.key = bytes_in(j, "key"),
          .value = bytes_in(j, "value"),
          .created = number_in(j, "create_revision"),
          .modified = number_in(j, "mod_revision"),
          .lease = number_in(j, "lease")};
}

// Appends the keys of a range that found at most one for each key that was asked for.
void take_range(const json& j, std::vector<KeyValue>& keys) {
  const json& found = list_in(object(j, "a range"), "kvs");
  if (found.size() > 1) throw NotAsExpected("it has more keys than were asked for");
  for (const json& one : found) keys.push_back(key_value_of(one));
}

std::int64_t revision_of(const json& answer) {
  const auto header = answer.find("header");
  if (header == answer.end()) throw NotAsExpected("it has no header");
  return number_in(object(*header, "the header"), "revision");
}

std::size_t reads_in(const std::vector<KeyOperation>& operations) {
  return static_cast<std::size_t>(std::count_if(operations.begin(), operations.end(), [](const KeyOperation& one) {
    return std::holds_alternative<ReadKey>(one);
  }));
}

void take_responses(const Transaction& asked, const json& j, EtcdAnswer& answer) {
  const auto& done = answer.succeeded ? asked.then : asked.otherwise;
  const json& responses = list_in(j, "responses");
  if (responses.size() != done.size()) throw NotAsExpected("it has another number of responses than was asked for");
  std::size_t ranges = 0;
  for (const json& response : responses) {
    const auto range = object(response, "a response").find("response_range");
    if (range == response.end()) continue;
    ++ranges;
    take_range(*range, answer.keys);
  }
  if (ranges != reads_in(done)) throw NotAsExpected("it does not have the keys that were asked for");
}

void take(const ReadKey&, const json& j, EtcdAnswer& answer) { take_range(j, answer.keys); }
void take(const PutKey&, const json&, EtcdAnswer&) {}
void take(const DeleteKey&, const json&, EtcdAnswer&) {}
void take(const Transaction& asked, const json& j, EtcdAnswer& answer) {
  answer.succeeded = is_set(j, "succeeded");
  take_responses(asked, j, answer);
}
void take_lease(const json& j, EtcdAnswer& answer) {
  answer.lease = number_in(j, "ID");
  answer.seconds = std::clamp<std::int64_t>(number_in(j, "TTL"), 0, kLongestLease);
}
void take(const GrantLease&, const json& j, EtcdAnswer& answer) {
  take_lease(j, answer);
  if (answer.lease == 0 || answer.seconds == 0) throw NotAsExpected("it grants no lease");
}
void take(const RenewLease& asked, const json& j, EtcdAnswer& answer) {
  take_lease(j, answer);
  if (answer.lease != asked.lease) throw NotAsExpected("it is about another lease");
}
void take(const RevokeLease&, const json&, EtcdAnswer&) {}
void take(const Authenticate&, const json& j, EtcdAnswer& answer) {
  answer.text = text_in(j, "token");
  const auto is_bad = [](char c) { return c <= ' ' || c >= 0x7f; };  // it becomes a line of a header
  if (answer.text.empty() || std::any_of(answer.text.begin(), answer.text.end(), is_bad)) {
    throw NotAsExpected("it has no token");
  }
}
void take(const AskVersion&, const json& j, EtcdAnswer& answer) { answer.text = text_in(j, "etcdserver"); }
void take(const WatchKey&, const json&, EtcdAnswer&) { throw NotAsExpected("it is no stream"); }

// ---- Refusals ----

// Messages of etcd's rpctypes. Whether a request was done cannot be told by the code of gRPC or the status of HTTP
// alone.
struct KnownMessage {
  std::string_view part;
  Kind kind;
};
constexpr KnownMessage kKnown[] = {
    {"requested lease not found", Kind::NoLease},
    {"database space exceeded", Kind::NoSpace},
    {"required revision has been compacted", Kind::Compacted},
    {"invalid auth token", Kind::NotAuthenticated},
    {"revision of auth store is old", Kind::NotAuthenticated},
    {"user name is empty", Kind::NotAuthenticated},
    {"authentication is not enabled", Kind::AuthOff},
    {"authentication failed", Kind::Forbidden},
    {"permission denied", Kind::Forbidden},
    {"user name not found", Kind::Forbidden},
};

Kind kind_of(std::string_view message, unsigned status) {
  for (const KnownMessage& known : kKnown) {
    if (message.find(known.part) != std::string_view::npos) return known.kind;
  }
  return status >= 500 || status == 408 || status == 429 ? Kind::Unknown : Kind::Other;
}

std::string words_of_server(std::string_view text) {
  return cut_line(printable_line(text.substr(0, 4 * kMostWords)), kMostWords);
}

std::string refusal_words(Kind kind, const std::string& message) {
  if (kind == Kind::NoSpace) {
    return "its quota is used up (" + message +
           "): compact and defragment it, then disarm its alarm (etcdctl alarm disarm), or raise --quota-backend-bytes";
  }
  if (kind == Kind::NotAuthenticated)
    return "it needs a user and a password, or knows this one's token no longer (" + message + ")";
  if (kind == Kind::Forbidden) return "it refuses the user: " + message;
  return "it says: " + message;
}

// An answer that is not JSON does not come from the gateway.
EtcdRefusal stranger(unsigned status, std::string_view body) {
  if (status == 404) return {Kind::NoSuchApi, "it has no such page"};
  if (body.find("HTTP request to an HTTPS server") != std::string_view::npos) {
    return {Kind::Other, "it speaks TLS only: protocol=https is needed"};
  }
  if (body.find("CommonName of client") != std::string_view::npos) {
    return {Kind::Forbidden,
            "it refuses client certificates that have a CommonName while it has users: make one that has none"};
  }
  const bool is_elsewhere = status >= 300 && status < 400;
  const std::string code = "HTTP status " + std::to_string(status);
  if (is_elsewhere) return {Kind::Other, "it sends clients elsewhere (" + code + "), and is not followed"};
  return {status >= 500 ? Kind::Unknown : Kind::Other,
          code + " and no answer of etcd: \"" + words_of_server(body) + "\""};
}

EtcdRefusal refusal_of(unsigned status, std::string_view body) {
  const json j = parse_shallow(body, kDeepest);
  if (!j.is_object()) return stranger(status, body);
  const auto& error = j.contains("message") ? j["message"] : j.value("error", json());
  if (!error.is_string()) return stranger(status, body);
  const std::string& text = error.get_ref<const std::string&>();
  const Kind kind = kind_of(text, status);
  return {kind, refusal_words(kind, words_of_server(text))};
}

// An answer that makes no sense leaves open what was done.
EtcdRefusal nonsense(const char* why) { return {Kind::Unknown, std::string("its answer makes no sense: ") + why}; }

// Streams have their messages within "result", and errors of theirs within "error".
const json& unwrapped(const json& j) {
  const auto result = j.find("result");
  return result == j.end() ? j : *result;
}

}  // namespace

const KeyValue* EtcdAnswer::find(std::string_view key) const {
  const auto found = std::find_if(keys.begin(), keys.end(), [key](const KeyValue& one) { return one.key == key; });
  return found == keys.end() ? nullptr : &*found;
}

RequestWords words_of(const EtcdRequest& request) {
  const Words all = std::visit([](const auto& one) { return words(one); }, request);
  return {all.path, all.body.dump(-1, ' ', false, json::error_handler_t::replace)};
}

EtcdOutcome read_answer(const EtcdRequest& request, unsigned status, std::string_view body) {
  if (status != 200) return refusal_of(status, body);
  const json all = parse_shallow(body, kDeepest);
  if (!all.is_object()) return nonsense("it is no JSON");
  const json& j = unwrapped(all);
  if (!j.is_object()) return nonsense("its result is no object");
  if (all.contains("error")) {
    const json& error = all["error"];
    return refusal_of(503, error.is_object() ? error.dump(-1, ' ', false, json::error_handler_t::replace) : body);
  }
  try {
    EtcdAnswer answer;
    if (!std::holds_alternative<AskVersion>(request)) answer.revision = revision_of(j);
    std::visit([&](const auto& one) { take(one, j, answer); }, request);
    return answer;
  } catch (const NotAsExpected& why) {
    return nonsense(why.what());
  }
}

std::variant<WatchNews, EtcdRefusal> read_news(std::string_view line) {
  const json all = parse_shallow(line, kDeepest);
  if (!all.is_object()) return nonsense("it is no JSON");
  if (all.contains("error")) {
    const json& error = all["error"];
    return refusal_of(503, error.is_object() ? error.dump(-1, ' ', false, json::error_handler_t::replace) : line);
  }
  const json& j = unwrapped(all);
  if (!j.is_object()) return nonsense("its result is no object");
  try {
    if (number_in(j, "compact_revision") != 0)
      return EtcdRefusal{Kind::Compacted, "it has forgotten the revisions asked for"};
    if (is_set(j, "canceled")) {
      const std::string why = text_in(j, "cancel_reason");
      const Kind kind = kind_of(why, 503);
      return EtcdRefusal{kind, refusal_words(kind, words_of_server(why))};
    }
    WatchNews news{.revision = revision_of(j)};
    for (const json& event : list_in(j, "events")) {
      object(event, "an event");
      const std::string type = text_in(event, "type");
      if (!type.empty() && type != "PUT" && type != "DELETE") throw NotAsExpected("it has an event of an unknown type");
      const auto key = event.find("kv");
      if (key == event.end()) throw NotAsExpected("it has an event of no key");
      news.events.push_back({type == "DELETE", key_value_of(*key)});
    }
    return news;
  } catch (const NotAsExpected& why) {
    return nonsense(why.what());
  }
}

}  // namespace ddp::rendezvous
