// SPDX-License-Identifier: BSD-3-Clause
/// @file
/// JSON: the collectives on objects for JSON values, such as settings and metrics. Includes
/// nlohmann/json.hpp (Debian: nlohmann-json3-dev), which your build must find; so ddp/ddp.hpp does
/// not include this header.
///
/// Values travel as CBOR, so that infinities, NaN and 64-bit integers arrive as they were sent.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ddp/ddp.h"
#include "ddp/error.hpp"
#include "ddp/process_group.hpp"

namespace ddp {

namespace detail {

inline std::string packed(const nlohmann::json& value) {
  std::string bytes;
  nlohmann::json::to_cbor(value, bytes);
  return bytes;
}

inline nlohmann::json unpacked(const std::string& bytes) {
  try {
    return nlohmann::json::from_cbor(bytes);
  } catch (const nlohmann::json::exception& e) {
    throw Error(Status::Mismatch, std::string("what another rank sent is no JSON value: ") + e.what() +
                                      " (do all ranks call the collective for JSON?)");
  }
}

inline std::vector<nlohmann::json> unpacked(const std::vector<std::string>& objects) {
  std::vector<nlohmann::json> values;
  values.reserve(objects.size());
  for (const std::string& bytes : objects) values.push_back(unpacked(bytes));
  return values;
}

}  // namespace detail

/// Returns root's value on every rank; the other ranks' values are ignored. Waits and fails as
/// ProcessGroup::broadcast_object() does.
inline nlohmann::json broadcast_json(const ProcessGroup& group, const nlohmann::json& value, int root = 0,
                                     Milliseconds timeout = kDefaultTimeout) {
  const std::string mine = group.rank() == root ? detail::packed(value) : std::string();
  return detail::unpacked(group.broadcast_object(mine, root, timeout));
}

/// Returns every rank's value, in the order of ranks. Waits and fails as
/// ProcessGroup::all_gather_object() does.
inline std::vector<nlohmann::json> all_gather_json(const ProcessGroup& group, const nlohmann::json& value,
                                                   Milliseconds timeout = kDefaultTimeout) {
  return detail::unpacked(group.all_gather_object(detail::packed(value), timeout));
}

/// Returns every rank's value on root, and nothing on the other ranks. Waits and fails as
/// ProcessGroup::gather_object() does.
inline std::vector<nlohmann::json> gather_json(const ProcessGroup& group, const nlohmann::json& value, int root = 0,
                                               Milliseconds timeout = kDefaultTimeout) {
  return detail::unpacked(group.gather_object(detail::packed(value), root, timeout));
}

/// Returns root's value r on rank r; the other ranks need not give any. Waits and fails as
/// ProcessGroup::scatter_object() does.
inline nlohmann::json scatter_json(const ProcessGroup& group, const std::vector<nlohmann::json>& values, int root = 0,
                                   Milliseconds timeout = kDefaultTimeout) {
  std::vector<std::string> objects;
  if (group.rank() == root) {
    for (const nlohmann::json& value : values) objects.push_back(detail::packed(value));
  }
  return detail::unpacked(group.scatter_object(objects, root, timeout));
}

}  // namespace ddp
