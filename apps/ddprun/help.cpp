// SPDX-License-Identifier: BSD-3-Clause
#include "apps/ddprun/help.hpp"

#include <sstream>

namespace ddp::apps {

namespace {

constexpr std::size_t kWidth = 80;
constexpr std::size_t kIndent = 10;

constexpr char kIntroduction[] = R"(ddprun - start, watch and restart the workers of a distributed training job

USAGE
  ddprun [options] program [arguments]

DESCRIPTION
  Starts --nproc-per-node copies of the program, tells each its RANK, LOCAL_RANK,
  WORLD_SIZE, MASTER_ADDR and MASTER_PORT, hosts the store through which they
  find each other (PyTorch's c10d TCPStore protocol), and ends or restarts all of
  them when one fails. It takes the place of PyTorch's torchrun.

  The program is a Python script (x.py, a folder with __main__.py, or -m module),
  run as `python -u` by PYTHON_EXEC, the active virtual environment or python3;
  or any executable: a path, a file here, in PATH, or beside ddprun. Everything
  after it belongs to it; $local_rank in an argument becomes the local rank.

  Options may be spelled with dashes or underscores and abbreviated. [NAME] is
  the environment variable that sets the default.
)";

constexpr char kEnding[] = R"(
EXAMPLES
  Eight workers of the example job on this machine:
      ddprun --nproc_per_node 8 train
  A PyTorch script on all GPUs, restarted up to three times:
      ddprun --nproc_per_node gpu --max-restarts 3 train.py --lr 3e-4
  A module on two of the GPUs, each worker seeing only its own:
      ddprun --nproc_per_node 2 --gpus 4,5 --virtual-local-rank -m my.trainer

EXIT CODES
  0         every worker exited with 0
  1         ddprun itself could not go on
  2         wrong usage; nothing was started
  126, 127  the program cannot be executed, was not found; nothing was started
  128+n     the first failure was a worker killed by signal n, or ddprun was told
            to stop by signal n (130: Ctrl-C)
  other     the exit code of the worker that failed first
)";

std::string wrap(const std::string& text) {
  std::istringstream words(text);
  std::string out, line(kIndent, ' ');
  for (std::string word; words >> word;) {
    if (line.size() + 1 + word.size() > kWidth && line.size() > kIndent) {
      out += line + "\n";
      line = std::string(kIndent, ' ');
    }
    if (line.size() > kIndent) line += ' ';
    line += word;
  }
  return out + line + "\n";
}

std::string in_capitals(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

}  // namespace

std::string ManualPage::make_help(const CLI::App* app, std::string, CLI::AppFormatMode mode) const {
  return std::string(kIntroduction) + "\n" + make_groups(app, mode) + kEnding;
}

std::string ManualPage::make_group(std::string group, bool is_positional,
                                   std::vector<const CLI::Option*> options) const {
  std::string out = in_capitals(group) + "\n";
  for (const CLI::Option* option : options) out += make_option(option, is_positional);
  return out;
}

std::string ManualPage::make_option(const CLI::Option* option, bool) const {
  std::string heading = "  ";
  for (const std::string& name : option->get_snames()) heading += "-" + name + ", ";
  heading += "--" + option->get_lnames().front();
  const bool is_flag = option->get_expected_max() == 0;
  if (!is_flag) heading += " " + option->get_type_name();
  std::string text = option->get_description();
  if (!is_flag && !option->get_default_str().empty()) text += " Default: " + option->get_default_str() + ".";
  if (!option->get_envname().empty()) text += " [" + option->get_envname() + "]";
  return heading + "\n" + wrap(text);
}

}  // namespace ddp::apps
