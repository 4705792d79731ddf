// SPDX-License-Identifier: BSD-3-Clause
// Each worker computes the gradients of its share of a batch, and libddp averages them while
// backward is still running. Then all workers take the same step, so that they have the same model
// at all times.
//
// A batch has the same sequences however many workers there are. So under `ddprun --on-failure shrink`, where their
// number changes while the job runs, the training goes on as it would have.
#include "apps/train/trainer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <ddp/ddp.hpp>
#include <ddp/sampler.hpp>
#include <ddp/training.hpp>
#include <random>

#include "apps/train/checkpoint.hpp"
#include "apps/train/failure.hpp"
#include "apps/train/model/learning_rate.hpp"
#include "apps/train/model/optimizer.hpp"
#include "apps/train/report.hpp"

namespace train {
namespace {

constexpr std::size_t kValidationWindows = 256;
constexpr float kTemperature = 0.7F;  // for the sample; below 1, likely bytes become likelier

// What all workers have alike after each step. It outlives the groups: where others fail and this process stays, it
// goes on with another Trainer.
struct Learned {
  Learned(const Options& options, const Corpus& corpus);
  ddp::RunState state();

  CheckpointFile file;
  ProgressReport report;
  Gpt gpt;
  ddp::AdamW optimizer;
  Position position;
  ddp::Kept kept;             // finds these three, if a process of this job has kept them
  std::int64_t progress = 0;  // 0: the start is not over; else 1 + position.step
  double loss = 0;            // the last step's, averaged over all workers
};

// Trains with the workers of one round.
class Trainer {
 public:
  Trainer(const Options& options, const Corpus& corpus, const ddp::Session& session, Learned& learned);
  void run();

 private:
  bool begin();
  Position start(bool goes_on);
  Position open_files();
  std::vector<Bytes> next_windows();
  void take_step();
  void finish_step();
  void validate();
  void write_checkpoint();
  void write_sample();
  bool is_due(int every) const;

  const Options& options_;
  const Corpus& corpus_;
  std::size_t context_;
  ddp::ProcessGroup world_;
  std::int64_t sequences_per_epoch_;
  ddp::DistributedSampler sampler_;  // has all sequences; each worker takes its share of a batch
  std::int64_t epoch_ = -1;          // the epoch to which windows_ belongs
  std::vector<std::int64_t> windows_;
  int restart_count_;

  Learned& learned_;
  Gpt& gpt_;
  ddp::AdamW& optimizer_;
  Position& position_;
  ProgressReport& report_;
  bool goes_on_;                        // else the start reads the checkpoint on rank 0 ...
  ddp::DistributedDataParallel model_;  // ... before this hands rank 0's parameters to everyone
};

// Returns how many training windows an epoch reads: whole batches only, so that every number of workers reads the same
// ones. Called first, so that it checks the options before they are used.
std::int64_t sequences_per_epoch(const Options& o, const Corpus& corpus, int workers) {
  if (o.global_batch < workers) {
    throw BadInput("--global-batch " + std::to_string(o.global_batch) + " has no sequence for each of " +
                   std::to_string(workers) + " workers");
  }
  const auto context = static_cast<std::size_t>(o.shape.context);
  const auto batches = static_cast<std::int64_t>(window_count(corpus.training(), context)) / o.global_batch;
  if (batches == 0 || window_count(corpus.validation(), context) == 0) {
    throw BadInput("--data " + o.data + ": has " + std::to_string(corpus.training().size()) +
                   " bytes to train on and " + std::to_string(corpus.validation().size()) +
                   " to validate, but a step takes " + std::to_string(o.global_batch * o.shape.context + 1) +
                   " and a validation " + std::to_string(context + 1) +
                   ": give more data, or lower --global-batch or --context");
  }
  return batches * o.global_batch;
}

// Returns what two trainings must have in common for one to continue the other's checkpoint.
ddp::Metadata identity(const Options& o, const Corpus& corpus) {
  return {{"context", std::to_string(o.shape.context)},
          {"layers", std::to_string(o.shape.layers)},
          {"heads", std::to_string(o.shape.heads)},
          {"width", std::to_string(o.shape.width)},
          {"batch", std::to_string(o.global_batch)},
          {"seed", std::to_string(o.seed)},
          {"data", corpus.fingerprint()}};
}

std::string run_id() {
  const char* id = std::getenv("TORCHELASTIC_RUN_ID");
  return id ? id : "";
}

Learned::Learned(const Options& options, const Corpus& corpus)
    : file{options.checkpoint, identity(options, corpus), run_id()},
      report(options.steps, double(options.global_batch) * options.shape.context),
      gpt(options.shape),
      optimizer(make_optimizer(gpt.parameters(), options.weight_decay)) {}

// Returns what a new process gets from one that has stayed.
ddp::RunState Learned::state() {
  ddp::RunState state = {&progress, {ddp::part_of_state(position), ddp::part_of_state(loss)}};
  for (Parameter& p : gpt.parameters()) state.parts.emplace_back(p.value.data(), p.value.size());
  for (const ddp::OptimizerTensor& tensor : optimizer.tensors()) state.parts.push_back(tensor.buffer);
  return state;
}

Trainer::Trainer(const Options& options, const Corpus& corpus, const ddp::Session& session, Learned& learned)
    : options_(options),
      corpus_(corpus),
      context_(static_cast<std::size_t>(options.shape.context)),
      world_(session.world()),
      sequences_per_epoch_(sequences_per_epoch(options, corpus, world_.size())),
      sampler_(static_cast<std::size_t>(sequences_per_epoch_), 1, 0, options.seed),
      restart_count_(session.restart_count()),
      learned_(learned),
      gpt_(learned.gpt),
      optimizer_(learned.optimizer),
      position_(learned.position),
      report_(learned.report),
      goes_on_(begin()),
      model_(world_, ddp_parameters(gpt_.parameters())) {
  if (goes_on_) return;
  if (!learned_.kept.found()) {  // else all ranks have found the whole state
    // All ranks have the same parameters now. Broadcast the rest of what the next step depends on.
    world_.broadcast({&position_.began_at, 1});
    if (position_.began_at > 0) {  // an optimizer without a step has the same state everywhere
      world_.broadcast({&position_.sequences, 1});
      for (const ddp::OptimizerTensor& state : optimizer_.tensors()) world_.broadcast(state.buffer);
    }
    position_.step = position_.began_at;
  }
  learned_.progress = 1 + position_.step;
}

// Returns whether all ranks have trained before, in another round, and have all that the next step depends on.
bool Trainer::begin() {
  report_.speak(world_.rank() == 0);
  const bool goes_on = learned_.progress > 0;
  const bool is_found = learned_.kept.found();
  if (!goes_on && !is_found) gpt_.initialise(options_.seed);  // not before: this takes a while, and others would wait
  const Position first = start(goes_on || is_found);
  if (!goes_on && !is_found) position_ = first;
  return goes_on;
}

// Only rank 0 accesses files. It sends the problem it finds to every rank, so that all continue or
// all stop.
Position Trainer::start(bool goes_on) {
  Position position;
  std::string problem;
  try {
    if (world_.rank() == 0 && !goes_on) position = open_files();
    if (world_.rank() == 0 && goes_on && !options_.log.empty()) report_.open_log(options_.log, "a");
  } catch (const std::exception& e) {
    problem = e.what();
  }
  auto size = static_cast<std::int64_t>(problem.size());
  world_.broadcast({&size, 1});
  if (size == 0) return position;
  problem.resize(static_cast<std::size_t>(size));
  world_.broadcast({reinterpret_cast<std::uint8_t*>(problem.data()), problem.size()});
  throw Failure(problem);
}

Position Trainer::open_files() {
  using StartMode = CheckpointFile::StartMode;
  const bool writes = options_.checkpoint_every > 0;
  const StartMode start =
      writes || options_.resume ? learned_.file.choose_start(options_.resume, restart_count_) : StartMode::Fresh;
  Position position;
  if (start == StartMode::Continue) {
    position = learned_.file.read(gpt_.parameters(), optimizer_);
    report_.line("continuing %s from step %d", learned_.file.path.c_str(), position.step);
  }
  if (!options_.log.empty()) report_.open_log(options_.log, position.step > 0 ? "a" : "w");
  if (start == StartMode::SetAside) {
    std::filesystem::rename(learned_.file.path, learned_.file.path + ".previous");
    report_.line("starting from scratch; the checkpoint of an earlier run is now %s.previous",
                 learned_.file.path.c_str());
  }
  return position;
}

void Trainer::run() {
  report_.line("data: %s, %zu bytes to train on, %zu to validate", options_.data.c_str(), corpus_.training().size(),
               corpus_.validation().size());
  report_.line("model: %d layers, %d heads, width %d, context %d: %zu parameters", options_.shape.layers,
               options_.shape.heads, options_.shape.width, options_.shape.context, gpt_.parameter_count());
  const int share = options_.global_batch / world_.size();
  const bool is_even = options_.global_batch % world_.size() == 0;
  report_.line("job: %d workers, %d sequences a step, %d%s for each", world_.size(), options_.global_batch, share,
               is_even ? "" : " or one more");
  report_.begin(position_.step);
  if (goes_on_ && position_.step > position_.began_at) finish_step();
  while (true) {
    learned_.kept.step();  // all before this is done, whatever happens now
    if (position_.step == position_.began_at) {
      validate();
      report_.begin(position_.step);
    }
    if (position_.step >= options_.steps) break;
    take_step();
    finish_step();
  }
  write_sample();
}

// Returns this worker's share of the next batch. The windows of a batch depend on the seed and on
// the number of sequences read before; the number of workers only decides which worker takes which
// window.
std::vector<Bytes> Trainer::next_windows() {
  if (const std::int64_t epoch = position_.sequences / sequences_per_epoch_; epoch != epoch_) {
    epoch_ = epoch;
    sampler_.set_epoch(static_cast<std::uint64_t>(epoch));
    windows_ = sampler_.indices();
  }
  const std::int64_t batch = position_.sequences % sequences_per_epoch_;
  std::vector<Bytes> result;
  for (std::int64_t i = world_.rank(); i < options_.global_batch; i += world_.size()) {
    const std::int64_t index = windows_[static_cast<std::size_t>(batch + i)];
    result.push_back(window(corpus_.training(), context_, static_cast<std::size_t>(index)));
  }
  return result;
}

// Takes one step of data-parallel training. This is what libddp is for.
void Trainer::take_step() {
  const std::vector<Bytes> windows = next_windows();
  // Workers count equally in averages. Where the batch cannot be split evenly, this one has more or less of it.
  const double part = double(windows.size()) * world_.size() / options_.global_batch;
  double loss = gpt_.forward(windows) * part;
  // The loss travels while backward is still computing.
  const ddp::Work loss_averaged = world_.all_reduce_async({&loss, 1}, ddp::ReduceOp::Avg);
  gpt_.backward([this, part](std::size_t i) {
    if (part != 1) {
      for (float& g : gpt_.parameters()[i].gradient) g *= static_cast<float>(part);
    }
    model_.mark_ready(i);  // meanwhile full buckets are averaged
  });
  loss_averaged.wait();
  model_.synchronize();  // gradients are now averages over all workers

  const double norm = ddp::get_total_norm(optimizer_.parameters());
  // Every worker has the same gradients, so all of them stop here or none does.
  if (!std::isfinite(norm)) throw Failure("the gradient is no longer a number: try a lower --lr");
  if (options_.clip > 0) ddp::clip_grads_with_norm(optimizer_.parameters(), options_.clip, norm);
  position_.sequences += options_.global_batch;
  ++position_.step;
  optimizer_.set_lr(learning_rate(position_.step, options_.steps, options_.warmup, options_.learning_rate));
  optimizer_.step();
  learned_.loss = loss;
  ++learned_.progress;
}

// What follows a step. The next round does it again: a worker that takes its state from another one has not done it.
void Trainer::finish_step() {
  ddp::progress(position_.step);  // for `ddprun ps`
  report_.step(position_.step, learned_.loss);
  if (!options_.times.empty()) {
    append_time(options_.times, {world_.rank(), restart_count_, position_.step});
  }
  if (is_due(options_.validate_every)) validate();
  if (options_.checkpoint_every > 0 && is_due(options_.checkpoint_every)) write_checkpoint();
}

// Computes the loss on windows spread over the held-out data. Each worker takes its share of them,
// and the sums are added up over all workers.
void Trainer::validate() {
  const std::size_t available = window_count(corpus_.validation(), context_);
  const std::size_t count = std::min(available, kValidationWindows);
  std::array<double, 2> sum = {0, 0};  // sum of losses; number of windows
  for (auto i = static_cast<std::size_t>(world_.rank()); i < count; i += static_cast<std::size_t>(world_.size())) {
    const Bytes bytes = window(corpus_.validation(), context_, i * available / count);
    sum[0] += gpt_.forward({&bytes, 1});
    sum[1] += 1;
  }
  world_.all_reduce({sum.data(), sum.size()});
  report_.line("validation after %d steps: %.4f nats per byte", position_.step, sum[0] / sum[1]);
}

void Trainer::write_checkpoint() {
  if (world_.rank() != 0) return;
  learned_.file.write(gpt_.parameters(), optimizer_, position_);
  report_.line("checkpoint after %d steps: %s", position_.step, learned_.file.path.c_str());
}

// Generates text: draws each byte from the model's prediction for the bytes before it. Runs on rank
// 0 only; the others are done.
void Trainer::write_sample() {
  if (world_.rank() != 0 || options_.sample_bytes == 0) return;
  std::mt19937_64 random(options_.seed);
  std::vector<std::uint8_t> text = {'\n'};
  for (int i = 0; i < options_.sample_bytes; ++i) {
    const std::vector<float> scores = gpt_.logits(Bytes(text).last(std::min(text.size(), context_)));
    std::vector<double> weights;
    for (auto s = scores.end() - Gpt::kVocabulary; s != scores.end(); ++s)
      weights.push_back(std::exp(*s / kTemperature));
    text.push_back(static_cast<std::uint8_t>(std::discrete_distribution<int>(weights.begin(), weights.end())(random)));
  }
  // Replace control characters, which a terminal could execute.
  std::replace_if(
      text.begin(), text.end(), [](std::uint8_t c) { return c < ' ' && c != '\n'; }, ' ');
  report_.line("sample:%.*s", static_cast<int>(text.size()), reinterpret_cast<const char*>(text.data()));
}

// True every so often (0: never) and after the last step.
bool Trainer::is_due(int every) const {
  return position_.step == options_.steps || (every > 0 && position_.step % every == 0);
}

// Moves the model and its optimizer's state to memory that outlives this process. If an earlier process of this job has
// left them there, no checkpoint is needed.
void keep(Learned& learned, const ddp::Session& session) {
  const auto moved = [&learned](const ddp::Parameter& to) {
    for (Parameter& p : learned.gpt.parameters()) {
      if (p.name == to.name) p.value = {static_cast<float*>(to.value), to.count};
    }
  };
  learned.kept = ddp::Kept(session, learned.optimizer, {"train", {ddp::part_of_record(learned.position)}, moved});
  learned.report.speak(session.rank() == 0);
  learned.report.line("kept memory: %s", learned.kept.recovered().c_str());
}

}  // namespace

void train(const Options& options) {
  const Corpus corpus(options.data);
  ddp::Session session = ddp::init_process_group();
  Learned learned(options, corpus);
  if (options.keep) keep(learned, session);
  // Once, unless processes stay when others fail.
  ddp::run(session, learned.state(), [&] { Trainer(options, corpus, session, learned).run(); });
}

}  // namespace train
