// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/options/nodes/etcd_options.hpp"

#include <array>
#include <sstream>

#include "apps/ddprun/options/usage_error.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/etcd/client.hpp"

namespace ddp::apps {

namespace {

constexpr std::array kAuthorities = {"cacert", "ca_cert"}, kCertificate = {"cert", "ssl_cert"},
                     kKey = {"key", "ssl_cert_key"};

// Returns the value of whichever of the two names is there.
std::string value_of(const KeyValues& conf, const std::array<const char*, 2>& names) {
  for (const char* name : names) {
    if (const auto found = conf.find(name); found != conf.end()) return found->second;
  }
  return "";
}

std::string value_of(const KeyValues& conf, const char* name) { return value_of(conf, {name, name}); }

// Addresses of etcd may be given as etcdctl takes them: http://etcd1:2379,http://etcd2:2379.
struct Endpoints {
  std::string addresses;  // without the protocol
  std::string protocol;   // that the addresses name; empty: they name none
};

Endpoints split_protocols(const std::string& endpoint) {
  Endpoints found;
  std::istringstream list(endpoint);
  for (std::string one; std::getline(list, one, ',');) {
    const auto colon = one.find("://");
    if (colon != std::string::npos) {
      const std::string protocol = one.substr(0, colon);
      if (found.protocol.empty()) found.protocol = protocol;
      if (protocol != found.protocol || (protocol != "http" && protocol != "https")) {
        throw UsageError("--rdzv-endpoint " + endpoint + ": give http:// or https://, the same for all members");
      }
      one.erase(0, colon + 3);
      if (one.ends_with('/')) one.pop_back();
    }
    found.addresses += (found.addresses.empty() ? "" : ",") + one;
  }
  if (endpoint.ends_with(',')) found.addresses += ',';  // an address is missing, which is refused later
  return found;
}

// Returns the settings with the protocol of the addresses, if they name one.
KeyValues with_protocol(KeyValues conf, const std::string& protocol) {
  if (protocol.empty()) return conf;
  const auto [given, is_new] = conf.emplace("protocol", protocol);
  if (!is_new && given->second != protocol) {
    throw UsageError("--rdzv-endpoint says " + protocol + ":// and --rdzv-conf protocol=" + given->second +
                     "; give one of them");
  }
  return conf;
}

bool uses_tls(const KeyValues& conf) {
  const std::string protocol = value_of(conf, "protocol");
  if (protocol == "https") return true;
  if (!protocol.empty() && protocol != "http") {
    throw UsageError("--rdzv-conf protocol=" + protocol + ": give http or https");
  }
  for (const auto& names : {kAuthorities, kCertificate, kKey}) {
    for (const char* name : names) {
      if (!conf.contains(name)) continue;
      throw UsageError("--rdzv-conf " + std::string(name) + "=" + conf.at(name) +
                       " is for TLS: give protocol=https too");
    }
  }
  return false;
}

}  // namespace

bool is_etcd_option(const std::string& key) {
  for (const char* known : {"protocol", "cacert", "ca_cert", "cert", "ssl_cert", "key", "ssl_cert_key", "user",
                            "password", "password_file"}) {
    if (key == known) return true;
  }
  return false;
}

launcher::EtcdConfig resolve_etcd_options(const std::string& backend, const std::string& endpoint,
                                          const KeyValues& given) {
  if (endpoint.empty()) {
    throw UsageError("--rdzv-backend " + backend + ": give the address of etcd as --rdzv-endpoint HOST[:PORT], or " +
                     "those of all members with commas between");
  }
  const Endpoints endpoints = split_protocols(endpoint);
  const KeyValues conf = with_protocol(given, endpoints.protocol);
  try {
    rendezvous::parse_etcd_endpoints(endpoints.addresses);
  } catch (const rendezvous::Error& error) {
    throw UsageError(std::string("--rdzv-endpoint: ") + error.what());
  }
  launcher::EtcdConfig etcd{.endpoints = endpoints.addresses,
                            .uses_tls = uses_tls(conf),
                            .authorities = value_of(conf, kAuthorities),
                            .certificate = value_of(conf, kCertificate),
                            .key = value_of(conf, kKey),
                            .user = value_of(conf, "user")};
  if (etcd.certificate.empty() && !etcd.key.empty()) {
    throw UsageError("--rdzv-conf key=" + etcd.key + ": give cert too");
  }
  if (conf.contains("password")) {
    throw UsageError(
        "--rdzv-conf password: every user of this machine could read it in the list of processes; write it into a file "
        "of mode 0600 and give password_file=PATH");
  }
  const std::string file = value_of(conf, "password_file");
  if (etcd.user.empty() != file.empty()) {
    throw UsageError("--rdzv-conf: user and password_file belong together; give both or neither");
  }
  etcd.password_file = file;
  try {
    if (!file.empty()) rendezvous::read_password(file);
  } catch (const rendezvous::Error& error) {
    throw UsageError(std::string("--rdzv-conf ") + error.what());
  }
  return etcd;
}

}  // namespace ddp::apps
