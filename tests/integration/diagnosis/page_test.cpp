// SPDX-License-Identifier: BSD-3-Clause
// The page of a running job (--serve): what it says, and what real programs read of it.
#include <signal.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/integration/diagnosis/page.hpp"
#include "tests/support/ports.hpp"

using Catch::Matchers::Contains;
using nlohmann::json;
using namespace ddp::testing;

namespace {

const std::string kOpenMetrics = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n";

bool has_program(const std::string& name) { return run({"sh", "-c", "command -v " + name}).code == 0; }

// Runs a headless browser until the page has asked the job; what it shows is in the result, or in the file.
Result browse(const Words& options, const std::string& url, const TemporaryFolder& folder) {
  return run(Words{"chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                   "--virtual-time-budget=5000", "--user-data-dir=" + (folder / "profile")} +
                 options + Words{url},
             {.deadline = std::chrono::seconds(120)});
}

}  // namespace

TEST_CASE("page: shows the job as a web page, as JSON and as metrics", "[apps][integration]") {
  PageJob job;
  const std::string page = exchange(job.connect(), page_request("/"));
  CHECK(status_of(page) == 200);
  CHECK_THAT(page, Contains("Content-Type: text/html; charset=utf-8\r\n") && Contains("</html>"));
  CHECK_THAT(page, Contains("Content-Security-Policy: default-src 'none'") && Contains("Cache-Control: no-store"));
  CHECK_THAT(page, !Contains("Access-Control-"));
  const json state = json::parse(body_of(exchange(job.connect(), page_request("/job.json"))));
  CHECK(state["job"] == "shown");
  CHECK(state["phase"] == "running");
  CHECK(state["world_size"] == 2);
  REQUIRE(state["nodes"].size() == 1);
  CHECK(state["nodes"][0]["workers"].size() == 2);
  const std::string open = exchange(job.connect(), page_request("/metrics", kOpenMetrics));
  CHECK_THAT(open, Contains("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"));
  CHECK_THAT(open, Contains("ddprun_job_workers 2\n") && Catch::EndsWith("# EOF\n"));
  const std::string classic = exchange(job.connect(), page_request("/metrics"));
  CHECK_THAT(classic, Contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  CHECK_THAT(classic, Contains("ddprun_worker_resident_memory_bytes{host="));
  CHECK(job.end().code == 0);
}

TEST_CASE("page: HEAD gets the header that GET gets, and no body", "[apps][integration]") {
  PageJob job;
  std::string request = page_request("/");
  const std::string got = exchange(job.connect(), request);
  request.replace(0, 3, "HEAD");
  const std::string head = exchange(job.connect(), request);
  CHECK(status_of(head) == 200);
  CHECK(head == got.substr(0, got.find("\r\n\r\n") + 4));
  CHECK(job.end().code == 0);
}

TEST_CASE("page: a port that is taken costs the job its page and nothing else", "[apps][integration]") {
  PageJob first;
  Process second(ddprun({"--serve=" + std::to_string(first.port())}, {"say=ran", "exit=0"}));
  const Result result = second.wait();
  CHECK(result.code == 0);
  CHECK_THAT(result.out, Contains("ran"));
  CHECK_THAT(result.err, Contains("the job has no page") && Contains(std::to_string(first.port())));
  CHECK(first.end().code == 0);
}

TEST_CASE("page: without a port it is at a free one on loopback, and a line has the URL", "[apps][integration]") {
  Process job(ddprun({"--serve"}, kUntilTold));
  job.wait_for("the page of this job is at http://127.0.0.1:");
  job.wait_for("up");  // the word after the option is the program
  tell_workers(job);
  CHECK(job.wait().code == 0);
}

TEST_CASE("page: an address that others reach needs a token, and a token that others can read is none",
          "[apps][integration]") {
  const TemporaryFolder folder;
  const auto refused = [](const Words& options) {
    const Result result = run(ddprun(options, {"exit=0"}));
    CHECK(result.code != 0);
    return result.err;
  };
  CHECK_THAT(refused({"--serve=0.0.0.0:0"}), Contains("--serve-token FILE"));
  CHECK_THAT(refused({"--serve-token=x"}), Contains("belongs to --serve"));
  for (const char* wrong : {"--serve=here:80", "--serve=127.0.0.1:", "--serve=:80", "--serve=1:2:3", "--serve=70000"}) {
    INFO(wrong);
    CHECK_THAT(refused({wrong}), Contains("give [ADDRESS:]PORT"));
  }
  const std::string file = folder / "token";
  REQUIRE(run(ddprun_raw({"--make-secret", file})).code == 0);
  REQUIRE(chmod(file.c_str(), 0644) == 0);
  CHECK_THAT(refused({"--serve=0", "--serve-token=" + file}), Contains("chmod 600"));
}

TEST_CASE("page: with a token, curl reads it by password and by Bearer token", "[apps][integration]") {
  if (!has_program("curl")) skip("no curl here");
  const TemporaryFolder folder;
  const std::string file = folder / "token";
  REQUIRE(run(ddprun_raw({"--make-secret", file})).code == 0);
  PageJob job({"--serve-token=" + file});
  const std::string token = read_file(file).substr(0, 64);
  const auto curl = [&](const Words& options) {
    return run(Words{"curl", "-sS", "-w", "%{http_code}", "-o", folder / "answer"} + options +
               Words{job.url() + "/job.json"})
        .out;
  };
  CHECK(curl({}) == "401");
  CHECK(curl({"-u", "me:" + token}) == "200");
  CHECK(curl({"-H", "Authorization: Bearer " + token}) == "200");
  CHECK(json::parse(read_file(folder / "answer"))["job"] == "shown");
  CHECK(curl({"-u", token + ":wrong"}) == "401");
  CHECK(job.end().code == 0);
}

TEST_CASE("page: promtool finds nothing wrong with the metrics", "[apps][integration]") {
  if (!has_program("promtool")) skip("no promtool here (Debian: apt install prometheus)");
  const TemporaryFolder folder;
  PageJob job;
  folder.write("metrics", body_of(exchange(job.connect(), page_request("/metrics"))));
  const Result checked = run({"sh", "-c", "promtool check metrics < " + (folder / "metrics")});
  CAPTURE(checked.err, checked.out);
  CHECK(checked.code == 0);
  CHECK(checked.out.empty());
  CHECK(checked.err.empty());
  CHECK(job.end().code == 0);
}

TEST_CASE("page: Prometheus scrapes it, with the token in a file", "[apps][integration]") {
  if (!has_program("prometheus") || !has_program("curl"))
    skip("no prometheus and curl here (Debian: apt install prometheus curl)");
  const TemporaryFolder folder;
  const std::string token = folder / "token";
  REQUIRE(run(ddprun_raw({"--make-secret", token})).code == 0);
  PageJob job({"--serve-token=" + token});
  const std::string port = std::to_string(free_port());
  folder.write("prometheus.yml",
               "scrape_configs:\n- job_name: ddprun\n  scrape_interval: 1s\n  authorization: {credentials_file: " +
                   token + "}\n  static_configs: [{targets: ['127.0.0.1:" + std::to_string(job.port()) + "']}]\n");
  Process prometheus({"prometheus", "--config.file=" + (folder / "prometheus.yml"),
                      "--storage.tsdb.path=" + (folder / "data"), "--web.listen-address=127.0.0.1:" + port});
  const auto value = [&](const std::string& query) -> std::string {
    const Result asked =
        run({"curl", "-s", "-G", "--data-urlencode", "query=" + query, "http://127.0.0.1:" + port + "/api/v1/query"});
    const json answer = json::parse(asked.out, nullptr, false);
    if (answer.is_discarded() || answer["data"]["result"].empty()) return "";
    return answer["data"]["result"][0]["value"][1];
  };
  wait_until([&] { return value("ddprun_job_workers") == "2"; });
  CHECK(value("up{job=\"ddprun\"}") == "1");
  CHECK(value("count(ddprun_worker_resident_memory_bytes)") == "2");
  CHECK(value("ddprun_job_restarts_total") == "0");
  prometheus.signal(SIGTERM);
  prometheus.wait();
  CHECK(job.end().code == 0);
}

TEST_CASE("page: a real browser shows the workers, in light and in dark", "[apps][integration]") {
  if (!has_program("chromium")) skip("no chromium here (Debian: apt install chromium)");
  const TemporaryFolder folder;
  PageJob job;
  const Result shown = browse({"--dump-dom"}, job.url() + "/", folder);
  CHECK_THAT(shown.out, Contains("job shown"));
  CHECK_THAT(shown.out,
             Contains("<td class=\"quiet\">" + std::to_string(children_of(agent_of(job.process()))[0]) + "</td>"));
  CHECK_THAT(shown.out, Contains("<p id=\"trouble\" role=\"alert\" hidden"));
  // Screenshots of the two differ, and are there to be looked at if somebody wants to.
  const char* kept = std::getenv("DDPRUN_SCREENSHOTS");
  const std::string place = kept != nullptr ? kept : folder.path();
  for (const std::string scheme : {"light", "dark"}) {
    const Words dark = scheme == "dark" ? Words{"--force-dark-mode"} : Words{};
    browse(dark + Words{"--window-size=1000,640", "--screenshot=" + place + "/" + scheme + ".png"}, job.url() + "/",
           folder);
  }
  CHECK(std::filesystem::file_size(place + "/light.png") > 5000);
  CHECK(read_file(place + "/light.png") != read_file(place + "/dark.png"));
  CHECK(job.end().code == 0);
}
