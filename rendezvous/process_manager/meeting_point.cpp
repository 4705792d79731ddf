// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/process_manager/meeting_point.hpp"

#include "rendezvous/base/error.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/base/text_stream.hpp"
#include "rendezvous/net/addresses/reachable.hpp"

namespace ddp::rendezvous {
namespace {

constexpr std::chrono::seconds kTimeout{60};  // all processes of the starter are there, or it has failed

}  // namespace

MeetingPoint meeting_point(KeyValueStore store, int rank, const std::string& note) {
  std::string own;
  if (rank == 0) own = own_reachable_address() + "," + std::to_string(reserve_port()) + "," + note;
  TextStream words(exchange(store, rank, own, kTimeout));
  MeetingPoint point;
  std::string port;
  std::getline(words, point.host, ',');
  std::getline(words, port, ',');
  std::getline(words, point.note);
  const auto number = parse_number<std::uint16_t>(port);
  if (point.host.empty() || !number) {
    throw Error(ErrorCode::Corrupt,
                "rank 0 says \"" + words.str() + "\", which is no address (is it another program?)");
  }
  point.port = *number;
  return point;
}

}  // namespace ddp::rendezvous
