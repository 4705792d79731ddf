// SPDX-License-Identifier: BSD-3-Clause
// What a worker finds when it starts, and what is refused before any worker starts.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/integration/ddprun.hpp"

using namespace ddp::testing;

TEST_CASE("launch: eight workers that succeed are a success, and ddprun prints nothing and leaves nothing",
          "[launcher][integration]") {
  Process job(ddprun_raw({"--nproc_per_node", "8", "true"}));
  const Result result = job.wait();
  CHECK(result.code == 0);
  CHECK(result.out.empty());
  CHECK(result.err.empty());
  CHECK(job.left_over().empty());
}

TEST_CASE("launch: every worker gets its own rank and the job's store", "[launcher][integration]") {
  const Result result =
      run(ddprun({"--nproc-per-node=3", "--rdzv-id", "job7", "--role", "trainer"},
                 {"env=RANK", "0:env=WORLD_SIZE", "1:env=LOCAL_RANK", "2:env=MASTER_ADDR", "2:env=TORCHELASTIC_RUN_ID",
                  "2:env=ROLE_NAME", "0:env=TORCHELASTIC_USE_AGENT_STORE", "count"}));
  REQUIRE(result.code == 0);
  for (const char* line : {"[RANK=0]", "[RANK=1]", "[RANK=2]", "[WORLD_SIZE=3]", "[LOCAL_RANK=1]",
                           "[MASTER_ADDR=127.0.0.1]", "[TORCHELASTIC_RUN_ID=job7]", "[ROLE_NAME=trainer]",
                           "[TORCHELASTIC_USE_AGENT_STORE=True]", "count 1\n", "count 2\n", "count 3\n"}) {
    CAPTURE(line);
    CHECK(count(result.out, line) == 1);
  }
}

TEST_CASE("launch: PET_ variables set defaults and the command line wins", "[launcher][integration]") {
  Process::Options options;
  options.environment = {{"PET_NPROC_PER_NODE", "3"}, {"PET_ROLE", "ps"}, {"PET_STANDALONE", "1"}};
  CHECK(count(run(ddprun({}, {"say=here", "0:env=ROLE_NAME"}), options).out, "here\n") == 3);
  CHECK(count(run(ddprun({"--nproc_per_node", "2"}, {"say=here"}), options).out, "here\n") == 2);
}

TEST_CASE("launch: a worker leads its own session and has clean signals and descriptors 0, 1, 2 only",
          "[launcher][integration][P12]") {
  const int stray = dup(0);  // a descriptor that ddprun inherits from the test must not reach workers
  const Result result = run(ddprun({}, {"fds", "signals"}));
  close(stray);
  CHECK(count(result.out, "open: 0 1 2\n") == 1);
  CHECK(count(result.out, "SigBlk:\t0000000000000000\n") == 1);
  CHECK(count(result.out, "SigIgn:\t0000000000000000\n") == 1);
}

TEST_CASE("launch: GPUs are given to all, or one to each", "[launcher][integration]") {
  const std::vector<std::string> show = {"0:env=CUDA_VISIBLE_DEVICES", "1:env=CUDA_VISIBLE_DEVICES",
                                         "1:env=LOCAL_RANK"};
  Process::Options inherited;
  inherited.environment = {{"CUDA_VISIBLE_DEVICES", "6,7"}};
  CHECK(count(run(ddprun({"--nproc_per_node=2", "--gpus", "4,5"}, show), inherited).out,
              "[CUDA_VISIBLE_DEVICES=4,5]") == 2);
  CHECK(count(run(ddprun({"--nproc_per_node=2"}, show), inherited).out, "[CUDA_VISIBLE_DEVICES=6,7]") == 2);

  const Result virtual_rank = run(ddprun({"--nproc_per_node=2", "--gpus=4,5", "--virtual-local-rank"}, show));
  CHECK(count(virtual_rank.out, "[CUDA_VISIBLE_DEVICES=4]") == 1);
  CHECK(count(virtual_rank.out, "[CUDA_VISIBLE_DEVICES=5]") == 1);
  CHECK(count(virtual_rank.out, "[LOCAL_RANK=0]") == 1);

  const Result too_few = run(ddprun({"--nproc_per_node=3", "--gpus=4,5", "--virtual-local-rank"}, show));
  CHECK(too_few.code == 1);
  CHECK(count(too_few.err, "name more with --gpus") == 1);
  CHECK(too_few.out.empty());
}

TEST_CASE("launch: NVML, opened at run time, says how many GPUs there are", "[launcher][integration]") {
  Process::Options with_nvml;
  with_nvml.environment = {{"LD_LIBRARY_PATH", FAKE_NVML_FOLDER}, {"FAKE_NVML_GPUS", "3"}};
  const Result three = run(ddprun({"--nproc_per_node=gpu"}, {"env=CUDA_VISIBLE_DEVICES"}), with_nvml);
  CHECK(three.code == 0);
  CHECK(count(three.out, "[CUDA_VISIBLE_DEVICES=0,1,2]") == 3);

  with_nvml.environment["FAKE_NVML_GPUS"] = "0";
  const Result none = run(ddprun({"--nproc_per_node=gpu"}, {"say=here"}), with_nvml);
  CHECK(none.code == 2);
  CHECK(count(none.err, "no GPU found") == 1);
  CHECK(none.out.empty());
}

TEST_CASE("launch: more workers than GPUs are said to share them", "[launcher][integration]") {
  const auto said = [](const Words& options, const char* gpus) {
    Process::Options environment;
    environment.environment = {{"CUDA_VISIBLE_DEVICES", gpus}};
    return run(ddprun(options, {}), environment).err;
  };
  CHECK(count(said({"--nproc_per_node=3"}, "4,5"), "3 workers share 2 GPUs; --nproc-per-node gpu ") == 1);
  CHECK(said({"--nproc_per_node=2"}, "4,5").empty());
  CHECK(said({"--nproc_per_node=3"}, "").empty());
}

TEST_CASE("launch: without GPUs --virtual-local-rank numbers them, as torchrun does", "[launcher][integration]") {
  const Result result =
      run(ddprun({"--nproc_per_node=2", "--virtual-local-rank"}, {"env=CUDA_VISIBLE_DEVICES", "env=LOCAL_RANK"}));
  CHECK(result.code == 0);
  CHECK(count(result.out, "[LOCAL_RANK=0]") == 2);
  CHECK(count(result.out, "[CUDA_VISIBLE_DEVICES=0]") == 1);
  CHECK(count(result.out, "[CUDA_VISIBLE_DEVICES=1]") == 1);
}

TEST_CASE("launch: the user's PyTorch is asked once how many devices of an unknown kind there are",
          "[launcher][integration]") {
  const TemporaryFolder folder;
  const std::string asked = folder / "asked";
  write_file(folder / "python", "#!/bin/sh\necho noise\necho \"$3\" >> " + asked + "\necho $ANSWER\n", true);
  Process::Options options;
  options.environment = {{"PYTHON_EXEC", folder / "python"}, {"ANSWER", "3"}};
  CHECK(count(run(ddprun({"--nproc_per_node=hpu"}, {"say=here"}), options).out, "here\n") == 3);
  CHECK(read_file(asked) == "hpu\n");
  options.environment["ANSWER"] = "PyTorch 2.15 knows no devices called hpu";
  const Result none = run(ddprun({"--nproc_per_node=hpu"}, {"say=here"}), options);
  CHECK((none.code == 2 && none.out.empty()));
  CHECK(count(none.err, "--nproc-per-node hpu: PyTorch 2.15 knows no devices called hpu; give a number") == 1);
  CHECK(run(ddprun({"--nproc_per_node=2x"}, {"say=here"}), options).code == 2);
  CHECK(read_file(asked) == "hpu\nhpu\n");
}

TEST_CASE("launch: all workers read a file on stdin, only rank 0 reads a terminal", "[launcher][integration]") {
  Process::Options file;
  file.stdin_text = "hello\n";
  CHECK(count(run(ddprun({}, {"stdin"}), file).out, "rank 0 read 'hello'\n") == 1);

  Process::Options terminal;
  terminal.on_terminal = true;
  Process job(ddprun({"--nproc_per_node=2"}, {"1:stdin", "0:say=asking", "0:stdin"}), terminal);
  job.wait_for("asking");
  job.type("typed\n");
  const Result result = job.wait();
  CHECK(result.code == 0);
  CHECK(count(result.out, "rank 0 read 'typed'") == 1);
  CHECK(count(result.out, "rank 1 read ''") == 1);
}

TEST_CASE("launch: --stdin selects its readers: one rank, all, or none", "[launcher][integration]") {
  Process::Options file;
  file.stdin_text = "hello\n";
  const std::vector<std::string> three_read = {"0:stdin", "1:stdin", "2:stdin"};
  const Result one = run(ddprun({"--nproc_per_node=3", "--stdin=2"}, three_read), file);
  CHECK(count(one.out, "rank 2 read 'hello'\n") == 1);
  CHECK(count(one.out, "read ''") == 2);
  CHECK(count(run(ddprun({"--nproc_per_node=3", "--stdin", "none"}, three_read), file).out, "read ''") == 3);

  Process::Options by_variable = file;
  by_variable.environment = {{"PET_STDIN", "1"}};
  CHECK(count(run(ddprun({"--nproc_per_node=3"}, three_read), by_variable).out, "rank 1 read 'hello'") == 1);

  Process::Options terminal;
  terminal.on_terminal = true;
  Process job(ddprun({"--nproc_per_node=2", "--stdin=1"}, {"0:stdin", "1:say=asking", "1:stdin"}), terminal);
  job.wait_for("asking");
  job.type("typed\n");
  const Result typed = job.wait();
  CHECK(count(typed.out, "rank 1 read 'typed'") == 1);
  CHECK(count(typed.out, "rank 0 read ''") == 1);
  CHECK(count(run(ddprun({"--nproc_per_node=2", "--stdin=all"}, {"tty"}), terminal).out, "stdin tty") == 2);
}

TEST_CASE("launch: under a terminal, workers have one too", "[launcher][integration]") {
  Process::Options terminal;
  terminal.on_terminal = true;
  const Result result = run(ddprun({"--nproc_per_node=2"}, {"tty"}), terminal);
  CHECK(count(result.out, "stdout tty") == 2);
  CHECK(count(result.out, "stdin tty") == 1);
  CHECK(count(run(ddprun({}, {"tty"})).out, "stdout other\n") == 1);
}

TEST_CASE("launch: $local_rank in an argument becomes the worker's", "[launcher][integration]") {
  const Result result = run(ddprun({"--nproc_per_node=2"}, {"say=a$local_rank,${local_rank},$$x,$HOME"}));
  CHECK(count(result.out, "a0,0,$x,$HOME\n") == 1);
  CHECK(count(result.out, "a1,1,$x,$HOME\n") == 1);
}

TEST_CASE("launch: a ddprun inside a worker is a job of its own", "[launcher][integration]") {
  const Result result = run(ddprun_raw(
      {"--nproc_per_node=2", DDPRUN_BINARY, "--nproc_per_node=2", FAKE_WORKER_BINARY, "count", "env=WORLD_SIZE"}));
  CHECK(result.code == 0);
  CHECK(count(result.out, "count 1\n") == 2);
  CHECK(count(result.out, "count 2\n") == 2);
  CHECK(count(result.out, "[WORLD_SIZE=2]") == 4);
}

TEST_CASE("launch: a program that cannot be run is reported in one line, and nothing is started",
          "[launcher][integration][P16]") {
  const TemporaryFolder folder;
  write_file(folder / "no_shebang", "echo hello\n", true);
  write_file(folder / "bad_interpreter", "#!/no/such/shell\n", true);
  write_file(folder / "script.sh", "#!/bin/sh\necho ran $RANK\n", true);
  write_file(folder / "data.bin", std::string("\x01\x00\x02", 3));
  struct Case {
    std::vector<std::string> words;
    int code;
    const char* says;
  };
  const std::vector<Case> cases = {
      {{"no_such_program"}, 127, "not in PATH"},
      {{folder / "nothing_here"}, 127, "does not exist"},
      {{folder / "no.py"}, 127, "does not exist"},
      {{folder.path()}, 126, "folder without a __main__.py"},
      {{folder / "data.bin"}, 126, "not executable"},
      {{"--no-python", folder / "no_shebang"}, 126, "without a #! line"},
      {{folder / "bad_interpreter"}, 127, "/no/such/shell"},
      {{folder / "no.py\r"}, 127, "the name ends with a carriage return"},
      {{"\u2013nnodes"}, 127, "write its dash as a hyphen-minus (-)"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.words);
    const Result result = run(ddprun_raw(c.words));
    CHECK(result.code == c.code);
    CHECK(count(result.err, c.says) == 1);
    CHECK(count(result.err, "\n") == 1);
    CHECK(result.out.empty());
  }
  CHECK(run(ddprun_raw({"--no-python", folder / "script.sh"})).out == "ran 0\n");

  Process::Options no_python;
  no_python.environment = {{"PATH", "/nowhere"}, {"VIRTUAL_ENV", ""}, {"CONDA_PREFIX", ""}, {"PYTHON_EXEC", ""}};
  write_file(folder / "x.py", "print('x')\n");
  const Result result = run(ddprun_raw({folder / "x.py"}), no_python);
  CHECK(result.code == 127);
  CHECK(count(result.err, "no Python interpreter") == 1);
}

TEST_CASE("launch: Python scripts, modules and folders run under the user's interpreter, unbuffered",
          "[launcher][integration]") {
  const TemporaryFolder folder;
  write_file(folder / "python", "#!/bin/sh\necho python \"$@\"\n", true);
  write_file(folder / "x.py", "");
  std::filesystem::create_directory(folder / "package");
  write_file(folder / "package/__main__.py", "");
  Process::Options options;
  options.environment = {{"PYTHON_EXEC", folder / "python"}};
  const std::string script = folder / "x.py";
  CHECK(run(ddprun_raw({script, "--nproc_per_node", "7"}), options).out ==
        "python -u " + script + " --nproc_per_node 7\n");
  CHECK(run(ddprun_raw({"-m", "pkg.mod", "-x"}), options).out == "python -u -m pkg.mod -x\n");
  CHECK(run(ddprun_raw({"-m", "--", "pkg.mod", "a"}), options).out == "python -u -m pkg.mod a\n");
  CHECK(run(ddprun_raw({folder / "package"}), options).out == "python -u " + (folder / "package") + "\n");
  // One line where an environment's variable and PATH lead to two of them.
  std::filesystem::create_directory(folder / "bin");
  write_file(folder / "bin/python", "#!/bin/sh\necho active\n", true);
  const auto said = [&](const std::string& path) {
    Process::Options active;
    active.environment = {{"PYTHON_EXEC", ""}, {"VIRTUAL_ENV", ""}, {"CONDA_PREFIX", folder.path()}, {"PATH", path}};
    const Result result = run(ddprun_raw({script}), active);
    CHECK(result.out == "active\n");
    return result.err;
  };
  CHECK_THAT(said("/usr/bin:/bin"),
             Catch::Contains("Python is " + (folder / "bin/python") + ", as CONDA_PREFIX says; in PATH"));
  std::filesystem::create_symlink("python", folder / "bin/python3");
  CHECK(said((folder / "bin") + ":/usr/bin:/bin").empty());
  // A script from stdin.
  write_file(folder / "python", "#!/bin/sh\necho python \"$@\"; cat\n", true);
  options.stdin_text = "print()\n";
  CHECK(run(ddprun_raw({"-", "a"}), options).out == "python -u - a\nprint()\n");
  CHECK(run(ddprun_raw({"/dev/stdin"}), options).out == "python -u /dev/stdin\nprint()\n");
}

TEST_CASE("launch: workers get absolute paths, whatever TMPDIR is", "[launcher][integration]") {
  for (const char* given : {".", "", "/nowhere"}) {
    CAPTURE(given);
    Process::Options options;
    options.environment = {{"TMPDIR", given}};
    const Result result = run(ddprun({}, {"env=TORCHELASTIC_ERROR_FILE"}), options);
    CHECK(result.code == 0);
    const std::string place = *given == '.' ? std::filesystem::current_path().string() : "/tmp";
    CHECK(count(result.out, "[TORCHELASTIC_ERROR_FILE=" + place + "/") == 1);
  }
}

TEST_CASE("launch: a program without a path is found in PATH, else next to ddprun", "[launcher][integration]") {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("/bin/true", folder / "unused");
  std::filesystem::copy_file(DDPRUN_BINARY, folder / "ddprun");
  write_file(folder / "my_program", "#!/bin/sh\necho beside\n", true);
  CHECK(run({folder / "ddprun", "my_program"}).out == "beside\n");
  CHECK(run({folder / "ddprun", "true"}).code == 0);
}

TEST_CASE("launch: a port that is taken is named before anything starts", "[launcher][integration]") {
  const int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(bind(taken, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(listen(taken, 1) == 0);
  socklen_t size = sizeof address;
  getsockname(taken, reinterpret_cast<sockaddr*>(&address), &size);
  const std::string port = std::to_string(ntohs(address.sin_port));

  const Result result = run(ddprun({"--master_port", port}, {"say=started"}));
  close(taken);
  CHECK(result.code == 1);
  CHECK(result.out.empty());
  CHECK(count(result.err, port) >= 1);
}

TEST_CASE("launch: workers are given the address and port of the command line", "[launcher][integration]") {
  const Result result = run(ddprun({"--master-addr", "localhost"}, {"env=MASTER_ADDR", "count"}));
  CHECK(result.code == 0);
  CHECK(result.out == "[MASTER_ADDR=localhost]\ncount 1\n");
  // Debian gives a host its own loopback address. The store listens there too if the endpoint names
  // it.
  const Result other = run(ddprun({"--rdzv-endpoint", "127.0.1.1"}, {"env=MASTER_ADDR", "count"}));
  CHECK(other.code == 0);
  CHECK(other.out == "[MASTER_ADDR=127.0.1.1]\ncount 1\n");
}

TEST_CASE("launch: one node goes on with a master address that is not its own, and says so",
          "[launcher][integration]") {
  Process::Options kubeflow;
  kubeflow.environment = {{"PET_MASTER_ADDR", "job-master-0.invalid"}, {"PET_NNODES", "1"}};
  const Result result = run(ddprun({}, {"env=MASTER_ADDR", "count"}), kubeflow);
  CHECK(result.code == 0);
  CHECK(result.out == "[MASTER_ADDR=127.0.0.1]\ncount 1\n");
  CHECK(count(result.err, "ddprun: --master-addr job-master-0.invalid: ") == 1);
}

TEST_CASE("launch: TORCH_DISABLE_SHARE_RDZV_TCP_STORE leaves the store, and a free port for it, to rank 0",
          "[launcher][integration]") {
  Process::Options own_store;
  own_store.environment = {{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"}};
  const Result result = run(ddprun({}, {"env=TORCHELASTIC_USE_AGENT_STORE", "host", "count"}), own_store);
  CHECK(result.code == 0);
  CHECK(result.out == "[TORCHELASTIC_USE_AGENT_STORE=False]\ncount 1\n");
}

TEST_CASE("launch: if an option is given twice, the last one counts", "[launcher][integration]") {
  CHECK(run(ddprun({"--role=a", "-t", "1", "--role", "b", "--tee=0"}, {"env=ROLE_NAME"})).out == "[ROLE_NAME=b]\n");
}

TEST_CASE("launch: wrong usage is exit code 2 with what to do", "[launcher][integration]") {
  struct Case {
    std::vector<std::string> words;
    const char* says;
  };
  const std::vector<Case> cases = {
      {{}, "no program given"},
      {{"--nnodes", "2:1", "true"}, "MIN <= MAX"},
      {{"--nnodes", "2", "--node_rank", "2", "true"}, "give 0 to 1"},
      {{"--nnodes", "2", "--standalone", "true"}, "is for one node"},
      {{"--nnodes", "2", "--rdzv_backend", "c10d", "--rdzv_endpoint", "a:b", "true"}, "give HOST or HOST:PORT"},
      {{"--nnodes", "2", "--rdzv_conf", "join_timeout", "true"}, "not KEY=VALUE"},
      {{"--nnodes", "2", "--rdzv_conf", "join_timeout=soon", "true"}, "give a number of seconds"},
      {{"--rdzv_backend", "zookeeper", "true"}, "give static, c10d or etcd"},
      {{"--nnodes", "2", "--rdzv_backend", "etcd-v2", "true"}, "give the address of etcd"},
      {{"--nproc_per_node", "0", "true"}, "give a number above 0"},
      {{"--nproc_per_nodes", "2", "true"}, "did you mean --nproc-per-node?"},
      {{"--nproc_node", "2", "true"}, "did you mean --nproc-per-node?"},
      {{"--ma", "2", "true"}, "could mean"},
      {{"--numa_binding", "near", "true"}, "give node, socket, exclusive or core-complex"},
      {{"--tee", "4", "true"}, "LOCAL_RANK:0-3"},
      {{"--stdin", "some", "true"}, "give a rank, all or none"},
      {{"--nproc_per_node=2", "--stdin=2", "true"}, "this job's ranks are 0 to 1"},
      {{"-r", "0:1,1", "true"}, "--redirects 0:1,1: give 0 "},
      {{"--master_port", "99999", "true"}, "not a port number"},
      {{"--rdzv_backend=c10d", "--rdzv_endpoint=localhost:99999", "true"}, "give HOST or HOST:PORT"},
      {{"-m", "--no-python", "x"}, "contradict"},
      {{"--nproc_per_node"}, "needs a value"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.words);
    const Result result = run(ddprun_raw(c.words));
    CHECK(result.code == 2);
    CHECK(count(result.err, c.says) == 1);
    CHECK(result.out.empty());
  }
}

TEST_CASE("launch: --help is a page with groups, defaults, variables, examples and exit codes",
          "[launcher][integration]") {
  const Result help = run(ddprun_raw({"--help"}));
  CHECK(help.code == 0);
  for (const char* text : {"USAGE", "WORKERS", "EXAMPLES", "EXIT CODES", "--nproc-per-node N|cpu|gpu|xpu|npu|auto",
                           "Default: 30.", "[PET_MAX_RESTARTS]", "ddprun --nproc_per_node 4 sh -c"}) {
    CAPTURE(text);
    CHECK(count(help.out, text) >= 1);
  }
}

TEST_CASE("launch: input() on a rank other than 0 of a job on a terminal fails with a hint at --stdin",
          "[launcher][integration]") {
  Process::Options terminal;
  terminal.on_terminal = true;
  const Words failing = {"0:wait", "1:stdin", "1:shout=EOFError: EOF when reading a line", "1:exit=1"};
  CHECK(count(run(ddprun({"--nproc_per_node=2"}, failing), terminal).out, "--stdin RANK gives the terminal") == 1);
  CHECK(count(run(ddprun({"--nproc_per_node=2", "--stdin=none"}, failing), terminal).out, "--stdin RANK") == 0);
}
