// SPDX-License-Identifier: BSD-3-Clause
// Writes wire_fuzzer's first inputs: the first words of hosts, frames of each connection, and payloads without a frame.
// usage: wire_seeds CORPUS_FOLDER
#include <string>

#include "launcher/hosts/wire/greeting.hpp"
#include "launcher/hosts/wire/messages.hpp"
#include "rendezvous/agent_client.hpp"
#include "rendezvous/link/codec.hpp"
#include "tests/fuzz/seeds/seeds.hpp"

int main(int argc, char** argv) {
  using namespace ddp::launcher;
  using namespace ddp::rendezvous;
  if (argc != 2) return 2;
  ddp::fuzz::Seeds seeds(argv[1]);
  JobHeader header;
  header.place = {.nodes = 2, .node_rank = 1, .master_addr = "10.0.0.1", .master_port = 29500, .id = "job"};
  header.place.secret = Secret(Secret::Bytes{});
  header.place.workers = 4;
  header.place.gpus = "0,2";
  header.arguments = {"--nnodes=2", "train.py\xff"};
  header.variables = {"A=b"};
  header.folder = "/home/me";
  const Hello hello{.host = "b", .address = "10.0.0.2", .port = 29500};
  const auto write = [&](FrameKind kind, const std::string& payload) {
    seeds.write("\7" + to_frame(kind, payload) + to_frame(FrameKind::Beat, ""));
    seeds.write("\7" + payload);
  };
  write(FrameKind::JobHeader, to_text(header));
  write(FrameKind::Hello, to_text(hello));
  write(FrameKind::Stdout, "hi\n");
  for (const char* words : {"ready\n", "send\n", "cannot use /tmp/x\n", "dance\n"}) {
    seeds.write("\3Welcome!\n" + std::string(kGreeting) + words + to_frame(FrameKind::Exit, "0"));
  }
  for (const char* text : {"2.310 torch,numpy", "4711 4712", "1\n2", "nan", "\x1b[2J", "-1"})
    seeds.write("\7" + std::string(text));
  seeds.write("\7" + encode(AgentRequest{.ask = "keep", .layout = 1, .name = "model", .bytes = 4096}));
  AgentState state;
  state.incarnation = "a";
  state.slots = 1;
  Directive directive;
  directive.epoch = "e";
  const std::string looks =
      encode(LookRequest{7, "state"}) + encode(LookAnswer{7, "a", "{}"}) + encode(LookEnd{7, "", {}});
  for (const std::string& bytes : {encode(state), encode(directive), looks, encode(ClockReading{1, 2})}) {
    seeds.write("\7" + bytes + encode(Heartbeat{}));
  }
  return 0;
}
