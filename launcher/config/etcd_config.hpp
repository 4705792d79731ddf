// SPDX-License-Identifier: BSD-3-Clause
// Where the etcd of a job is, and what it takes to use it (--rdzv-backend etcd).
#pragma once

#include <string>

namespace ddp::launcher {

struct EtcdConfig {
  std::string endpoints;  // "10.0.0.1:2379,etcd2:2379", checked
  bool uses_tls = false;
  // PEM files. Empty: the system's authorities; no certificate of its own; the key is in the certificate's file.
  std::string authorities, certificate, key;
  std::string user, password_file;  // empty: none
};

}  // namespace ddp::launcher
