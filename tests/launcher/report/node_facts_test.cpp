// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/report/node_facts.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <nlohmann/json.hpp>

using Catch::Matchers::Contains;
using nlohmann::json;
using namespace ddp::launcher;

TEST_CASE("node facts: secrets are known by the names of their variables", "[launcher][unit]") {
  for (const char* name :
       {"HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "db_password", "GITHUB_PAT", "GITHUB_PAT_OF_ME",
        "AZURE_CLIENT_SECRET", "SSH_PRIVATE", "OPENAI_APIKEY", "MY_CREDENTIALS", "PGPASSWORD", "SSHPASS", "DB_PASS",
        "GCP_CRED", "--api-key", "HTTP_AUTHORIZATION", "KEY", "SLACK_WEBHOOK", "SENTRY_DSN"}) {
    CAPTURE(name);
    CHECK(is_secret_name(name));
    CHECK(shown_variable(std::string(name) + "=hunter2") == std::string(name) + "=(not shown)");
  }
  for (const char* name : {"HOME", "PATH", "PWD", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "NCCL_DEBUG", "TERM",
                           "LD_LIBRARY_PATH", "GLOO_PATH"}) {
    CAPTURE(name);
    CHECK(shown_variable(std::string(name) + "=x") == std::string(name) + "=x");
  }
}

TEST_CASE("node facts: logins in URLs are not shown, whatever the variable is called", "[launcher][unit]") {
  CHECK(shown_variable("http_proxy=http://me:hunter2@proxy:3128/") == "http_proxy=http://(not shown)@proxy:3128/");
  CHECK(shown_variable("A=x://u@h y://p:q@h") == "A=x://(not shown)@h y://(not shown)@h");
  CHECK(shown_variable("A=http://host/a@b") == "A=http://host/a@b");
  CHECK(shown_variable("A=http://u:p@ss@host") == "A=http://(not shown)@host");
}

TEST_CASE("node facts: values are cut and made printable", "[launcher][unit]") {
  CHECK(shown_variable("A=" + std::string(5000, 'x')).size() < 1100);
  CHECK_THAT(shown_variable("A=\x1b[2J"), !Contains("\x1b"));
}

TEST_CASE("node facts: a variable with a command line has no secrets of options", "[launcher][unit]") {
  CHECK(shown_variable("SUDO_COMMAND=ddprun  a.py --api-key hunter2 --password=hunter2 --lr 1") ==
        "SUDO_COMMAND=ddprun  a.py --api-key (not shown) --password=(not shown) --lr 1");
}

TEST_CASE("node facts: the facts are JSON with versions, CPUs, the command and the environment", "[launcher][unit]") {
  setenv("DDPRUN_TEST_TOKEN", "hunter2", 1);
  LaunchConfig config;
  config.program.path = "train.py";
  config.program_args = {"--password=hunter2",
                         "--api-key",
                         "hunter2",
                         "--hf_token",
                         "-hunter2",
                         "db.pass=hunter2",
                         "a --token hunter2",
                         "--auth",
                         "--lr",
                         "0.1",
                         "--url=https://me:hunter2@host/"};
  const std::string text = node_facts(config, "a").str();
  unsetenv("DDPRUN_TEST_TOKEN");
  CHECK_THAT(text, !Contains("hunter2"));
  const json facts = json::parse(text);
  CHECK(facts.at("host") == "a");
  CHECK(facts.at("cpus") >= 1);
  CHECK_FALSE(facts.at("ddprun").get<std::string>().empty());
  CHECK_FALSE(facts.at("kernel").get<std::string>().empty());
  CHECK(facts.at("command") == json({"train.py", "--password=(not shown)", "--api-key", "(not shown)", "--hf_token",
                                     "(not shown)", "db.pass=(not shown)", "a --token (not shown)", "--auth", "--lr",
                                     "0.1", "--url=https://(not shown)@host/"}));
  CHECK_FALSE(facts.at("environment").empty());
}
