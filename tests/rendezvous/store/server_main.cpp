// SPDX-License-Identifier: BSD-3-Clause
// A StoreServer on 127.0.0.1 for tests that are not C++: prints its port and serves until its stdin ends.
#include <iostream>
#include <string>

#include "rendezvous/store/server.hpp"

int main() {
  const ddp::rendezvous::StoreServer server({"127.0.0.1"}, 0);
  std::cout << server.port() << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
  }
}
