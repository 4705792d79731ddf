// SPDX-License-Identifier: BSD-3-Clause
// What --rdzv-endpoint and --rdzv-conf say with --rdzv-backend etcd. torchrun's two back ends for etcd have two sets of
// names for the same files; both are taken.
//
//     etcd      protocol  cacert   cert      key
//     etcd-v2   protocol  ca_cert  ssl_cert  ssl_cert_key
//     ddprun    user  password_file           torchrun has none
//
// An address may have its protocol before it, as etcdctl takes it: https://etcd1:2379 is etcd1:2379 with
// protocol=https.
#pragma once

#include <map>
#include <string>

#include "launcher/config/launch_config.hpp"

namespace ddp::apps {

using KeyValues = std::map<std::string, std::string>;

// Returns whether a key of --rdzv-conf belongs here.
bool is_etcd_option(const std::string& key);

// Throws UsageError.
launcher::EtcdConfig resolve_etcd_options(const std::string& backend, const std::string& endpoint,
                                          const KeyValues& given);

}  // namespace ddp::apps
