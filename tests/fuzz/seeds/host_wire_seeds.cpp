// SPDX-License-Identifier: BSD-3-Clause
// Writes host_wire_fuzzer's first inputs: the first words of hosts, each frame, and the payloads without a frame.
// usage: host_wire_seeds CORPUS_FOLDER
#include <string>

#include "launcher/hosts/wire/frame.hpp"
#include "launcher/hosts/wire/greeting.hpp"
#include "launcher/hosts/wire/job_header.hpp"
#include "tests/fuzz/seeds/seeds.hpp"

int main(int argc, char** argv) {
  using namespace ddp::launcher;
  if (argc != 2) return 2;
  ddp::fuzz::Seeds seeds(argv[1]);
  JobHeader header;
  header.place = {.nodes = 2, .node_rank = 1, .master_addr = "10.0.0.1", .master_port = 29500, .id = "job"};
  header.place.secret = ddp::rendezvous::Secret(ddp::rendezvous::Secret::Bytes{});
  header.place.workers = 4;
  header.place.gpus = "0,2";
  header.arguments = {"--nnodes=2", "train.py"};
  header.variables = {"A=b"};
  header.folder = "/home/me";
  Hello hello;
  hello.host = "b";
  hello.address = "10.0.0.2";
  hello.port = 29500;
  const auto write = [&](FrameKind kind, const std::string& payload) {
    seeds.write("\7" + to_frame(kind, payload) + to_frame(FrameKind::Beat, ""));
    seeds.write("\7" + payload);
  };
  write(FrameKind::Header, to_text(header));
  write(FrameKind::Hello, to_text(hello));
  write(FrameKind::Stdout, "hi\n");
  for (const char* words : {"ready\n", "send\n", "cannot use /tmp/x\n", "dance\n"}) {
    seeds.write("\3Welcome!\n" + std::string(kGreeting) + words + to_frame(FrameKind::Exit, "0"));
  }
  return 0;
}
