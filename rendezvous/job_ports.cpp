// SPDX-License-Identifier: BSD-3-Clause
#include "rendezvous/job_ports.hpp"

namespace ddp::rendezvous {

std::vector<std::uint16_t> job_ports(std::uint64_t number) {
  // The distance to the next choice has no factor in common with kCount, and is large: the ports nearby are those of
  // numbers nearby.
  constexpr std::uint64_t kFirst = 20000, kCount = 12000, kChoices = 8, kNext = 1511;
  std::vector<std::uint16_t> ports;
  std::uint64_t place = number % kCount;
  for (std::uint64_t i = 0; i < kChoices; ++i, place = (place + kNext) % kCount) {
    ports.push_back(static_cast<std::uint16_t>(kFirst + place));
  }
  return ports;
}

std::vector<std::uint16_t> job_ports(const std::string& id) {
  // FNV-1a, since std::hash may differ between the programs of a job.
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return job_ports(hash);
}

}  // namespace ddp::rendezvous
