// SPDX-License-Identifier: BSD-3-Clause
// What is asked of etcd and what it answers, as the JSON of its gateway: numbers are texts, keys and values are base64,
// and what is zero, false or empty is left out.
//
//     POST /v3/kv/txn    {"compare":[{"key":"aA==","target":"CREATE","create_revision":"0","result":"EQUAL"}],
//                         "success":[{"request_put":{"key":"aA==","value":"eA==","lease":"77"}}]}
//     200                {"header":{"revision":"3",...},"succeeded":true,"responses":[{"response_put":{...}}]}
//     404                {"error":"etcdserver: requested lease not found","message":"...","code":5}
//
// A server is not believed: an answer that has another shape, or more than is expected, is refused with a reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ddp::rendezvous {

// A longer answer is refused unread. etcd's own limit of a request is 1.5 MiB.
inline constexpr std::size_t kMostAnswerBytes = std::size_t{2} << 20;
// A longer value is not sent: in base64 and with everything around it, it fits etcd's limit.
inline constexpr std::size_t kMostValueBytes = std::size_t{1} << 20;

using LeaseId = std::int64_t;  // 0: none

struct KeyValue {
  std::string key;
  std::string value;
  std::int64_t created = 0;   // the revision at which the key came to be
  std::int64_t modified = 0;  // the revision of its newest value
  LeaseId lease = 0;          // the key goes when this lease ends
};

// ---- What is asked ----
struct ReadKey {
  std::string key;
};
struct PutKey {
  std::string key;
  std::string value;
  LeaseId lease = 0;
};
struct DeleteKey {
  std::string key;
};
struct KeyComparison {
  enum class Of { Created, Modified, Lease };  // a key that is not there has 0 of each
  std::string key;
  Of of = Of::Modified;
  std::int64_t equals = 0;
};
using KeyOperation = std::variant<ReadKey, PutKey, DeleteKey>;
struct Transaction {  // does `then` if all comparisons are true, else `otherwise`; at one revision
  std::vector<KeyComparison> if_all;
  std::vector<KeyOperation> then;
  std::vector<KeyOperation> otherwise;
};
struct GrantLease {
  std::int64_t seconds = 0;
};
struct RenewLease {
  LeaseId lease = 0;
};
struct RevokeLease {
  LeaseId lease = 0;
};
struct Authenticate {
  std::string user;
  std::string password;
};
// Asks for the server's version. It is the only request that is a GET, and its path has no version of an API.
struct AskVersion {};
struct WatchKey {  // answered by a stream, which has no end
  std::string key;
  std::int64_t from = 0;  // the first revision of which to tell
};
using EtcdRequest = std::variant<ReadKey, PutKey, DeleteKey, Transaction, GrantLease, RenewLease, RevokeLease,
                                 Authenticate, AskVersion, WatchKey>;

struct RequestWords {
  const char* path = "";  // behind "/v3"
  std::string body;
};
RequestWords words_of(const EtcdRequest& request);

// ---- What is answered ----
struct EtcdAnswer {
  std::int64_t revision = 0;   // the store's when it answered
  bool succeeded = false;      // Transaction: the comparisons were true
  std::vector<KeyValue> keys;  // ReadKey, and all ReadKeys of the part of a Transaction that was done
  LeaseId lease = 0;           // GrantLease, RenewLease
  std::int64_t seconds = 0;    // GrantLease, RenewLease: how long the lease lives; 0: there is no such lease any more
  std::string text;            // Authenticate: the token; AskVersion: the version

  const KeyValue* find(std::string_view key) const;
};

struct EtcdRefusal {
  enum class Kind {
    Unsent,            // the request reached no server
    Unknown,           // sent, but no answer came, or one that does not say whether it was done
    NoLease,           // there is no such lease
    NoSpace,           // etcd's quota is used up
    Compacted,         // a watch asks for revisions that are forgotten
    NotAuthenticated,  // no token, or one that is not valid any more
    AuthOff,           // a token is asked for, and the server knows no users
    Forbidden,         // the user may not do this, or the password is wrong
    NoSuchApi,         // no JSON gateway under this path
    Other,             // it was refused, and nothing was done
  };
  Kind kind = Kind::Other;
  std::string why;  // continues a sentence that names the server
};
using EtcdOutcome = std::variant<EtcdAnswer, EtcdRefusal>;

// Reads the body of an answer with this status of HTTP.
EtcdOutcome read_answer(const EtcdRequest& request, unsigned status, std::string_view body);

struct WatchNews {
  struct Event {
    bool is_deleted = false;
    KeyValue key;
  };
  std::int64_t revision = 0;
  std::vector<Event> events;  // in order
};

// Reads one line of a watch.
std::variant<WatchNews, EtcdRefusal> read_news(std::string_view line);

}  // namespace ddp::rendezvous
