// SPDX-License-Identifier: BSD-3-Clause
// ddprun called by the name torchrun, and what it does for users of torchrun and
// torch.distributed.launch. tests/interop/torchrun/test_torchrun_name.py checks the real torchrun in the
// same way.
#include <algorithm>
#include <catch2/catch.hpp>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tests/integration/ddprun.hpp"

using namespace ddp::testing;

namespace {

// A folder with a link to ddprun named torchrun, and a fake Python that reports how it is called.
struct Torchrun {
  Torchrun() {
    std::filesystem::create_symlink(DDPRUN_BINARY, folder / "torchrun");
    write_file(folder / "python", "#!/bin/sh\necho python \"$@\"\n", true);
  }
  // Runs fake workers. Error files that a summary names are kept.
  Result run_workers(Words words, const Words& verbs) const {
    words.insert(words.begin(), {folder / "torchrun", "--no-python"});
    words.emplace_back(FAKE_WORKER_BINARY);
    words.insert(words.end(), verbs.begin(), verbs.end());
    Process::Options options;
    options.environment = {{"TMPDIR", folder.path()}};
    return run(words, options);
  }
  Result run_python(Words words, const std::map<std::string, std::string>& more = {}) const {
    words.insert(words.begin(), folder / "torchrun");
    Process::Options options;
    options.environment = more;
    options.environment.emplace("PYTHON_EXEC", folder / "python");
    return run(words, options);
  }
  TemporaryFolder folder;
};

}  // namespace

TEST_CASE("torchrun's name: every failure is exit code 1, success is 0", "[launcher][integration]") {
  const Torchrun torchrun;
  CHECK(torchrun.run_workers({}, {"exit=0"}).code == 0);
  CHECK(torchrun.run_workers({}, {"exit=7"}).code == 1);
  CHECK(torchrun.run_workers({}, {"exit=2"}).code == 1);
  CHECK(torchrun.run_workers({}, {"die=KILL"}).code == 1);
  CHECK(run({torchrun.folder / "torchrun", "--no-python", "/nowhere/program"}).code == 1);
  CHECK(torchrun.run_workers({"--nnodes", "1:2:3"}, {}).code == 1);
  CHECK(torchrun.run_workers({"--tee", "4"}, {}).code == 1);
  CHECK(torchrun.run_workers({"--logs-specs", "mine"}, {}).code == 1);
}

TEST_CASE("torchrun's name: what its parser refuses is exit code 2, told as argparse does", "[launcher][integration]") {
  const Torchrun torchrun;
  for (const Words& words : {Words{"--nothing"}, Words{"--max-restarts", "x"}, Words{}}) {
    CAPTURE(words);
    const Result result = torchrun.run_python(words);
    CHECK(result.code == 2);
    CHECK(result.err.starts_with("usage: torchrun "));
    CHECK(count(result.err, "\ntorchrun: error: ") == 1);
  }
}

TEST_CASE("torchrun's name: a failure is reported in torchrun's words after ddprun's own", "[launcher][integration]") {
  const Torchrun torchrun;
  const Result result = torchrun.run_workers({"--nproc-per-node=2"}, {"1:error=no data", "1:exit=7", "0:wait"});
  const auto ours = result.err.find("ddprun: "), summary = result.err.find("ChildFailedError");
  REQUIRE(summary != std::string::npos);
  CHECK(ours < summary);
  CHECK(count(result.err, "fake_worker FAILED\n") == 1);
  CHECK(count(result.err, "  exitcode  : -15 (pid: ") == 1);
  CHECK(count(result.err, "Root Cause (first observed failure):\n[0]:\n") == 1);
  CHECK(count(result.err, "  rank      : 1 (local_rank: 1)\n") == 1);
  CHECK(count(result.err, "  traceback : no data\n") == 1);
  CHECK(run(ddprun({}, {"exit=7"})).err.find("ChildFailedError") == std::string::npos);
}

TEST_CASE("torchrun's name: the error file that the summary names is there to be read", "[launcher][integration]") {
  const Torchrun torchrun;
  const Result result = torchrun.run_workers({}, {"error=no data", "exit=1"});
  const std::string label = "  error_file: ";
  const auto at = result.err.find(label);
  REQUIRE(at != std::string::npos);
  const std::string path = result.err.substr(at + label.size(), result.err.find('\n', at) - at - label.size());
  CHECK(read_file(path).find("no data") != std::string::npos);
}

TEST_CASE("torchrun's name: a signal ends it with code 1 and is named", "[launcher][integration]") {
  const Torchrun torchrun;
  Process job({torchrun.folder / "torchrun", "--no-python", FAKE_WORKER_BINARY, "ready", "wait"});
  job.wait_for("ready");
  const std::string pid = std::to_string(job.pid());
  job.signal(SIGTERM);
  const Result result = job.wait();
  CHECK(result.code == 1);
  CHECK(count(result.err, "SignalException: Process " + pid + " got signal: 15\n") == 1);
  CHECK(job.all_gone());
}

TEST_CASE("torchrun's name: the program is Python's, whatever it is called", "[launcher][integration]") {
  const Torchrun torchrun;
  const std::string program = torchrun.folder / "train";
  write_file(program, "#!/bin/sh\necho executed\n", true);
  CHECK(torchrun.run_python({program, "--lr", "1"}).out == "python -u " + program + " --lr 1\n");
  CHECK(torchrun.run_python({"nowhere.py"}).out == "python -u nowhere.py\n");
  CHECK(torchrun.run_python({"--no-python", program}).out == "executed\n");
  CHECK(torchrun.run_python({"-m", "pkg.mod"}).out == "python -u -m pkg.mod\n");
}

TEST_CASE("torchrun's name: in an environment it runs that environment's Python", "[launcher][integration]") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "env/bin");
  std::filesystem::create_symlink(DDPRUN_BINARY, folder / "env/bin/torchrun");
  write_file(folder / "env/bin/python", "#!/bin/sh\necho mine \"$@\"\n", true);
  Process::Options options;
  options.environment = {{"PYTHON_EXEC", ""}, {"VIRTUAL_ENV", "/nowhere"}};
  write_file(folder / "env/pyvenv.cfg", "");
  CHECK(run({folder / "env/bin/torchrun", "x.py"}, options).out == "mine -u x.py\n");
  // It is found through PATH.
  const char* path = getenv("PATH");
  options.environment["PATH"] = (folder / "env/bin") + ":" + (path ? path : "");
  CHECK(run({"/usr/bin/env", "torchrun", "x.py"}, options).out == "mine -u x.py\n");
  // Another Python would not have its packages.
  std::filesystem::remove(folder / "env/bin/python");
  std::filesystem::create_symlink("/nowhere/python3", folder / "env/bin/python");
  const Result broken = run({folder / "env/bin/torchrun", "x.py"}, options);
  CHECK(broken.code == 1);
  CHECK_THAT(broken.err, Catch::Contains(folder / "env/bin/python") && Catch::Contains("is missing on this machine"));
  options.environment["PYTHON_EXEC"] = "/bin/echo";
  CHECK(run({folder / "env/bin/torchrun", "x.py"}, options).out == "-u x.py\n");
}

TEST_CASE("legacy local rank: comes before the program's arguments, in the spelling asked for",
          "[launcher][integration]") {
  const Torchrun torchrun;
  const auto sorted_lines = [](const std::string& text) {
    std::istringstream stream(text);
    Words lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    std::sort(lines.begin(), lines.end());
    return lines;
  };
  CHECK(sorted_lines(torchrun.run_python({"--nproc-per-node=2", "--legacy-local-rank", "x.py", "--lr", "1"}).out) ==
        Words{"python -u x.py --local-rank=0 --lr 1", "python -u x.py --local-rank=1 --lr 1"});
  CHECK(torchrun.run_python({"--legacy_local_rank=underscore", "-m", "pkg", "a"}).out ==
        "python -u -m pkg --local_rank=0 a\n");
  CHECK(torchrun.run_python({"x.py"}, {{"PET_LEGACY_LOCAL_RANK", "1"}}).out == "python -u x.py --local-rank=0\n");
  CHECK(torchrun.run_python({"x.py"}, {{"PET_LEGACY_LOCAL_RANK", "0"}}).out == "python -u x.py\n");
  CHECK(torchrun.run_python({"--use-env", "x.py"}).out == "python -u x.py\n");
}

TEST_CASE("legacy local rank: contradicts --use-env and --no-python", "[launcher][integration]") {
  CHECK(run(ddprun_raw({"--legacy-local-rank", "--use-env", "x.py"})).code == 2);
  CHECK(run(ddprun_raw({"--legacy-local-rank", "--no-python", "true"})).code == 2);
  const Result result = run(ddprun_raw({"--legacy-local-rank=camel", "true"}));
  CHECK((result.code == 2 && count(result.err, "give dash or underscore") == 1));
}

TEST_CASE("run path: goes before --no-python and --module", "[launcher][integration]") {
  const Torchrun torchrun;
  for (const Words& words : {Words{"--run-path", "x.py", "a"}, Words{"--no-python", "-m", "--run-path", "x.py", "a"}}) {
    const std::string said = torchrun.run_python(words).out;
    CHECK(said.starts_with("python -u -c "));
    CHECK(said.ends_with(" x.py a\n"));
    CHECK(count(said, "runpy.run_path") == 1);
  }
}

TEST_CASE("plug-ins: torchrun's own names are taken, Python's are refused with what to do", "[launcher][integration]") {
  CHECK(run(ddprun({"--logs-specs=default", "--event-log-handler=null"}, {"say=in"})).out == "in\n");
  CHECK(run(ddprun({"--event-log-handler=dynamic_rendezvous"}, {"say=in"})).err.empty());
  const Result logs = run(ddprun({"--logs-specs", "mine"}, {}));
  CHECK((logs.code == 2 && count(logs.err, "--log-dir, --redirects, --tee") == 1));
  const Result events = run(ddprun({"--event-log-handler", "mine"}, {}));
  CHECK((events.code == 2 && count(events.err, "--event-log-file") == 1));
}

TEST_CASE("plug-ins: --event-log-handler console puts the records on stderr", "[launcher][integration]") {
  const TemporaryFolder folder;
  const Result result =
      run(ddprun({"--event-log-handler=console", "--event-log-file", folder / "events"}, {"say=out"}));
  CHECK(result.out == "out\n");
  CHECK(result.err == read_file(folder / "events"));
  std::istringstream lines(result.err);
  Words states;
  for (std::string line; std::getline(lines, line);) {
    states.push_back(nlohmann::json::parse(line).at("metadata").at("state").get<std::string>());
  }
  CHECK(states == Words{"RENDEZVOUS", "START", "SUCCEEDED", "SUCCEEDED"});
}

TEST_CASE("print: --print versions names what is copied into each program, with its version",
          "[launcher][integration]") {
  const std::string out = run(ddprun_raw({"--print", "versions"})).out;
  INFO(out);
  for (const std::string program : {"ddprun", "ddp_store", "libddp"}) {
    CHECK(count(out, "\ncopied into " + program + ": Boost 1.") == 1);
  }
  const auto is_numbered = [&](const std::string& library) {
    return std::regex_search(out, std::regex("[:,] " + library + " [0-9]+\\.[0-9.]*[0-9][,\n]"));
  };
  for (const std::string library :
       {"Boost", "CLI11", "fmt", "libsodium", "nlohmann_json", "spdlog", "utfcpp", "xxHash"}) {
    INFO(library);
    CHECK(is_numbered(library));
  }
}

TEST_CASE("print: --print versions says where py-spy is, or how to get it", "[launcher][integration]") {
  const TemporaryFolder environment, path;
  write_file(environment / "python", "", true);
  const auto python_line = [&] {
    const std::string out = run(ddprun_raw({"--print", "versions"}),
                                {.environment = {{"PYTHON_EXEC", environment / "python"}, {"PATH", path.path()}}})
                                .out;
    const std::string begin = "\nstacks of workers, Python: ";
    REQUIRE(count(out, begin) == 1);
    const auto words = out.find(begin) + begin.size();
    return out.substr(words, out.find('\n', words) - words);
  };
  CHECK(python_line() == "no py-spy: `pip install py-spy` shows Python's lines");
  write_file(path / "py-spy", "", true);
  CHECK(python_line() == path / "py-spy");
  write_file(environment / "py-spy", "", true);
  CHECK(python_line() == environment / "py-spy");
}

TEST_CASE("print: --version, --print man and --print-completion need no program", "[launcher][integration]") {
  CHECK(run(ddprun_raw({"--version"})).out.starts_with("ddprun "));
  CHECK(count(run(ddprun_raw({"--version"})).out, "\n") == 1);
  CHECK(run(ddprun_raw({"--print=man"})).out.starts_with(".TH DDPRUN 1 "));
  const Torchrun torchrun;
  CHECK(count(run({torchrun.folder / "torchrun", "--print_completion=bash"}).out, "complete -F _torchrun torchrun") ==
        1);
  const Result result = run(ddprun_raw({"--print-completion", "csh"}));
  CHECK((result.code == 2 && result.out.empty()));
}

TEST_CASE("print: options and variables of 0.2 are refused with what to use", "[launcher][integration]") {
  CHECK(count(run(ddprun({"--print_man"}, {"exit=0"})).err, "option --print_man is gone; use --print man") == 1);
  const Result verbose = run(ddprun({"--version", "--verbose"}, {"exit=0"}));
  CHECK((verbose.code == 2 && count(verbose.err, "option --verbose is gone; use --print versions") == 1));
  const Result gloo = run(ddprun({}, {"exit=0"}), {.environment = {{"DDPRUN_GLOO", "ddp"}}});
  CHECK((gloo.code == 2 && count(gloo.err, "DDPRUN_GLOO is called PET_GLOO now; set that variable") == 1));
}
