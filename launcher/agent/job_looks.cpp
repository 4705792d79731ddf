// SPDX-License-Identifier: BSD-3-Clause
#include "launcher/agent/job_looks.hpp"

#include <fcntl.h>

#include <csignal>
#include <utility>

#include "launcher/agent/local_service.hpp"
#include "launcher/agent/round_processes.hpp"
#include "launcher/diagnosis/stacks/stack_json.hpp"
#include "launcher/local/job_answers.hpp"
#include "rendezvous/base/error.hpp"
#include "rendezvous/base/pipe.hpp"
#include "rendezvous/base/text.hpp"
#include "rendezvous/link/accept.hpp"
#include "rendezvous/wire/json_text.hpp"

namespace ddp::launcher {

namespace asio = rendezvous::asio;
using rendezvous::LookAnswer;
using rendezvous::LookEnd;
using rendezvous::LookRequest;

namespace {

constexpr std::size_t kMostQuestions = 16;                  // from programs at this agent's socket, at the same time
constexpr std::size_t kMostVolunteers = 64;                 // nodes whose stacks are in a failure's report
constexpr std::chrono::milliseconds kCoordinatorLate{500};  // after its own deadline
constexpr std::chrono::milliseconds kStacksOfNode{7000};    // less than the coordinator waits
constexpr std::chrono::seconds kReadWithin{10};             // for the program, once the answer is there
constexpr char kSaveOrder[] = "save:";
constexpr char kNoCoordinator[] = "the coordinator cannot be asked now, so that only this node is shown";

}  // namespace

std::optional<int> signal_of_order(const std::string& order) {
  if (!order.starts_with(kSaveOrder)) return std::nullopt;
  for (int signal = 1; signal < SIGSYS; ++signal) {
    const bool is_free = signal != SIGKILL && signal != SIGSTOP && signal != SIGTERM;
    if (is_free && rendezvous::signal_name(signal) == "SIG" + order.substr(sizeof kSaveOrder - 1)) return signal;
  }
  return std::nullopt;
}

bool is_question(const std::string& what) {
  return what == "state" || what == "stacks" || what == kReportQuestion || what == kStopOrder ||
         signal_of_order(what).has_value();
}

struct JobLooks::Look {
  explicit Look(asio::io_context& io) : deadline(io), pipe(io) {}
  std::string what;
  std::map<std::string, std::string> answers;  // by incarnation
  asio::steady_timer deadline;
  asio::posix::stream_descriptor pipe;  // for a program that asks
  Answered answered;                    // for this agent
  std::string text;
};

JobLooks::JobLooks(asio::io_context& io, std::string incarnation, LocalService& local, const RoundProcesses& processes,
                   Sources sources)
    : io_(io),
      incarnation_(std::move(incarnation)),
      local_(local),
      processes_(processes),
      sources_(std::move(sources)) {}

JobLooks::~JobLooks() { stop(); }

void JobLooks::stop() {
  for (auto* looks : {&asking_, &writing_}) {
    for (auto& [number, look] : *looks) {
      look->deadline.cancel();
      boost::system::error_code ignored;
      look->pipe.close(ignored);
    }
    looks->clear();
  }
  taking_.clear();
}

rendezvous::Descriptor JobLooks::begin(const std::string& what) {
  if (asking_.size() + writing_.size() >= kMostQuestions) {
    throw rendezvous::Error(rendezvous::ErrorCode::System, "too many programs ask at the same time; try again");
  }
  rendezvous::Pipe pipe = rendezvous::make_pipe("for an answer");
  fcntl(pipe.write_end.get(), F_SETFL, O_NONBLOCK);
  const auto look = std::make_shared<Look>(io_);
  look->what = what;
  look->pipe.assign(pipe.write_end.release());
  const std::int64_t number = next_number_++;
  asking_[number] = look;
  const bool is_asked = sources_.ask(LookRequest{number, what});
  const bool is_about_node = what != "state" && what != "stacks";  // an order goes to this node at least
  if (!is_asked && is_about_node) look->answers[incarnation_] = sources_.obey({number, what});
  wait_for_end(number, is_asked);
  return std::move(pipe.read_end);
}

void JobLooks::ask(const std::string& what, const std::string& text, Answered answered) {
  const auto look = std::make_shared<Look>(io_);
  look->what = what;
  look->answered = std::move(answered);
  const std::int64_t number = next_number_++;
  asking_[number] = look;
  wait_for_end(number, sources_.ask(LookRequest{number, what, text}));
}

void JobLooks::wait_for_end(std::int64_t number, bool is_asked) {
  const auto look = asking_.at(number);
  const auto within = is_asked ? rendezvous::look_within(look->what) + kCoordinatorLate : std::chrono::milliseconds(0);
  look->deadline.expires_after(within);
  look->deadline.async_wait([this, number](const auto& error) {
    if (!error) finish(number, LookEnd{number, kNoCoordinator, {}});
  });
}

// ---- This node's own answers ----

void JobLooks::on_request(const LookRequest& request) {
  if (request.what == "stacks") return take_stacks(request.number);
  std::string text = request.what == "state" ? to_json(local_.view()) : sources_.obey(request);
  if (text.size() > rendezvous::kMaxLookBytes) text = node_error("its answer is too large to be sent");
  if (text.empty()) text = node_error("its ddprun knows no such question: " + request.what);
  sources_.answer({request.number, "", std::move(text)});
}

void JobLooks::take_stacks(std::int64_t number) {
  const auto workers = processes_.workers_with_stacks();
  if (workers.empty()) return sources_.answer({number, "", "[]"});
  const auto helper = taking_[number] = std::make_shared<StackHelper>(io_);
  helper->take(workers, kStacksOfNode, [this, number](const std::vector<WorkerStacks>& stacks) {
    std::string text = stacks.empty() ? node_error("it took no stacks in time") : stacks_json(stacks);
    if (text.size() > rendezvous::kMaxLookBytes) text = node_error("its stacks are too large to be sent");
    asio::post(io_, [this, number] { taking_.erase(number); });  // not while it runs
    sources_.answer({number, "", std::move(text)});
  });
}

// ---- The answers of all ----

void JobLooks::volunteer(const std::vector<WorkerStacks>& stacks) {
  if (stacks.empty()) return;
  std::string text = stacks_json(stacks);
  if (text.size() <= rendezvous::kMaxLookBytes) sources_.answer({rendezvous::kVolunteered, "", std::move(text)});
}

std::vector<WorkerStacks> JobLooks::volunteered() const {
  std::vector<WorkerStacks> all;
  for (const auto& [node, text] : volunteered_) {
    if (const auto stacks = stacks_from_json(text)) all.insert(all.end(), stacks->begin(), stacks->end());
  }
  return all;
}

void JobLooks::on_answer(LookAnswer answer) {
  if (answer.number == rendezvous::kVolunteered) {
    const bool has_room = volunteered_.contains(answer.node) || volunteered_.size() < kMostVolunteers;
    if (has_room && answer.node != incarnation_) volunteered_[std::move(answer.node)] = std::move(answer.text);
    return;
  }
  const auto found = asking_.find(answer.number);
  if (found != asking_.end()) found->second->answers[std::move(answer.node)] = std::move(answer.text);
}

void JobLooks::on_end(LookEnd end) {
  const std::int64_t number = end.number;
  finish(number, std::move(end));
}

void JobLooks::finish(std::int64_t number, LookEnd end) {
  const auto found = asking_.find(number);
  if (found == asking_.end()) return;
  const auto look = found->second;
  asking_.erase(found);
  look->deadline.cancel();
  if (look->answered) return hand_over(*look, end);
  look->text = put_together(*look, std::move(end)) + "\n";
  writing_[number] = look;
  look->deadline.expires_after(kReadWithin);
  look->deadline.async_wait([this, number](const auto& error) {
    if (!error) writing_.erase(number);
  });
  asio::async_write(look->pipe, asio::buffer(look->text), [this, number, look](const auto&, std::size_t) {
    look->deadline.cancel();
    writing_.erase(number);
  });
}

void JobLooks::hand_over(Look& look, const LookEnd& end) {
  std::vector<HangJudge::Answer> answers;
  for (const auto& node : end.facts.nodes) {
    if (node.node_rank >= 0) answers.push_back({node, std::move(look.answers[node.incarnation])});
  }
  look.answered(answers);
}

std::string JobLooks::put_together(Look& look, LookEnd end) const {
  const AgentView own = local_.view();
  const JobView state = assemble(std::move(end.facts), look.answers, incarnation_, own, end.error);
  if (look.what == "state") return to_json(state);
  JobAnswers answers{.nodes = {}, .error = end.error};
  for (const NodeView& node : state.nodes) {
    const auto answer = look.answers.find(node.facts.incarnation);
    answers.nodes.push_back(
        {node.facts.host, node.facts.node_rank, answer == look.answers.end() ? "" : std::move(answer->second), ""});
  }
  return job_answers_json(answers);
}

}  // namespace ddp::launcher
