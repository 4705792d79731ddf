// SPDX-License-Identifier: BSD-3-Clause
// Writes etcd_answer_fuzzer's first inputs: what etcd 3.4 answers, with its header of HTTP and without.
// usage: etcd_answer_seeds CORPUS_FOLDER
#include <cstdio>
#include <string>

#include "tests/fuzz/seeds/seeds.hpp"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  ddp::fuzz::Seeds seeds(argv[1]);
  const std::string header = R"("header":{"cluster_id":"1","member_id":"2","revision":"7","raft_term":"2"})";
  const std::string key =
      R"({"key":"aA==","create_revision":"3","mod_revision":"5","version":"1","value":"eA==","lease":"77"})";
  const std::string range = R"({"response_range":{)" + header + R"(,"kvs":[)" + key + R"(],"count":"1"}})";
  const std::string result = R"({"result":{)" + header;
  const std::string bodies[] = {
      "{" + header + "}",
      "{" + header + R"(,"kvs":[)" + key + R"(],"count":"1"})",
      "{" + header + R"(,"succeeded":true,"responses":[{"response_put":{)" + header + "}}," + range + "]}",
      "{" + header + R"(,"responses":[)" + range + R"(,{"response_range":{)" + header + "}}]}",
      "{" + header + R"(,"ID":"77","TTL":"5"})",
      result + R"(,"ID":"77","TTL":"5"}})",
      result + R"(,"ID":"77"}})",
      result + R"(,"created":true}})" + "\n",
      result + R"(,"events":[{"kv":)" + key + R"(},{"type":"DELETE","kv":{"key":"aA==","mod_revision":"7"}}]}})" + "\n",
      result + R"(,"canceled":true,"compact_revision":"9"}})" + "\n",
      R"({"error":{"grpc_code":14,"http_code":503,"message":"transport is closing"}})",
      "{" + header + R"(,"token":"UTaiIhSsDNEzsycu.17"})",
      R"({"etcdserver":"3.4.23","etcdcluster":"3.4.0"})",
      R"({"error":"etcdserver: requested lease not found","message":"etcdserver: requested lease not found","code":5})",
      R"({"error":"etcdserver: mvcc: database space exceeded","message":"etcdserver: mvcc: database space exceeded","code":8})",
      "404 page not found\n",
  };
  int kind = 0;
  for (const std::string& body : bodies) {
    const std::string head = {static_cast<char>(kind++ % 6), '\7'};
    seeds.write(head + body);
    seeds.write(head + "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
    char size[16];
    std::snprintf(size, sizeof size, "%zx", body.size());
    seeds.write(head +
                "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\nTrailer: Grpc-Trailer-Content-Type\r\n\r\n" +
                size + "\r\n" + body + "\r\n0\r\nGrpc-Trailer-Content-Type: application/grpc\r\n\r\n");
  }
  return 0;
}
