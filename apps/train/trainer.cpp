// SPDX-License-Identifier: BSD-3-Clause
// Each worker computes the gradients of its share of a batch, and libddp averages them while
// backward is still running. Then all workers take the same step, so that they have the same model
// at all times.
#include "apps/train/trainer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <ddp/ddp.hpp>
#include <ddp/sampler.hpp>
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

class Trainer {
 public:
  Trainer(const Options& options, const Corpus& corpus, const ddp::Session& session);
  void run();

 private:
  ddp::Kept keep_or_start(const ddp::Session& session);
  Position start(int restart_count, bool goes_on);
  Position open_files(int restart_count);
  std::vector<Bytes> next_windows();
  void take_step();
  void validate();
  void write_checkpoint();
  void write_sample();
  bool is_due(int every) const;

  const Options& options_;
  const Corpus& corpus_;
  std::size_t context_;
  ddp::ProcessGroup world_;
  std::int64_t sequences_per_epoch_;  // whole batches only, so that every number of workers reads the same ones
  ddp::DistributedSampler sampler_;
  std::int64_t epoch_ = -1;  // the epoch to which windows_, this worker's share, belongs
  std::vector<std::int64_t> windows_;
  CheckpointFile file_;
  int restart_count_;
  ProgressReport report_;

  Gpt gpt_;
  ddp::AdamW optimizer_;
  Position position_;
  ddp::Kept kept_;                      // finds these three, or start() reads the checkpoint into them on rank 0 ...
  ddp::DistributedDataParallel model_;  // ... before this hands rank 0's parameters to everyone
  double loss_ = 0;                     // loss of the last step, averaged over all workers
};

// Returns how many training windows an epoch reads. Called first, so that it checks the options
// before they are used.
std::int64_t sequences_per_epoch(const Options& o, const Corpus& corpus, int workers) {
  if (o.global_batch % workers != 0) {
    throw BadInput("--global-batch " + std::to_string(o.global_batch) + " cannot be split evenly over " +
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

Trainer::Trainer(const Options& options, const Corpus& corpus, const ddp::Session& session)
    : options_(options),
      corpus_(corpus),
      context_(static_cast<std::size_t>(options.shape.context)),
      world_(session.world()),
      sequences_per_epoch_(sequences_per_epoch(options, corpus, world_.size())),
      sampler_(static_cast<std::size_t>(sequences_per_epoch_), world_.size(), world_.rank(), options.seed),
      file_{options.checkpoint, identity(options, corpus), run_id()},
      restart_count_(session.restart_count()),
      report_(world_.rank(), options.steps, double(options.global_batch) * options.shape.context),
      gpt_(options.shape),
      optimizer_(make_optimizer(gpt_.parameters(), options.weight_decay)),
      kept_(keep_or_start(session)),
      model_(world_, ddp_parameters(gpt_.parameters())) {
  // All ranks have the same parameters now. Broadcast the rest of what the next step depends on. A process that goes on
  // where another was has it already, but the start makes the same calls in each: see docs/recovery.md.
  Position first = position_;
  world_.broadcast({&first.began_at, 1});
  if (first.began_at > 0) {  // an optimizer without a step has the same state everywhere
    world_.broadcast({&first.sequences, 1});
    for (const ddp::OptimizerTensor& state : optimizer_.tensors()) world_.broadcast(state.buffer);
  }
  if (kept_.found()) return;
  position_ = first;
  position_.step = first.began_at;
}

// With --keep, moves the model and its optimizer's state to memory that outlives this process. If an
// earlier process of this job has left them there, no checkpoint is needed.
ddp::Kept Trainer::keep_or_start(const ddp::Session& session) {
  ddp::Kept kept;
  if (options_.keep) {
    const auto moved = [this](const ddp::Parameter& to) {
      for (Parameter& p : gpt_.parameters()) {
        if (p.name == to.name) p.value = {static_cast<float*>(to.value), to.count};
      }
    };
    kept = ddp::Kept(session, optimizer_, {"train", {ddp::part_of_record(position_)}, moved});
    report_.line("kept memory: %s", kept.recovered().c_str());
  }
  if (!kept.found()) gpt_.initialise(options_.seed);
  const Position first = start(session.restart_count(), kept.found());
  if (!kept.found()) position_ = first;
  return kept;
}

// Only rank 0 accesses files. It sends the problem it finds to every rank, so that all continue or
// all stop.
Position Trainer::start(int restart_count, bool goes_on) {
  Position position;
  std::string problem;
  try {
    if (world_.rank() == 0 && !goes_on) position = open_files(restart_count);
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

Position Trainer::open_files(int restart_count) {
  using StartMode = CheckpointFile::StartMode;
  const bool writes = options_.checkpoint_every > 0;
  const StartMode start =
      writes || options_.resume ? file_.choose_start(options_.resume, restart_count) : StartMode::Fresh;
  Position position;
  if (start == StartMode::Continue) {
    position = file_.read(gpt_.parameters(), optimizer_);
    report_.line("continuing %s from step %d", file_.path.c_str(), position.step);
  }
  if (!options_.log.empty()) report_.open_log(options_.log, position.step > 0 ? "a" : "w");
  if (start == StartMode::SetAside) {
    std::filesystem::rename(file_.path, file_.path + ".previous");
    report_.line("starting from scratch; the checkpoint of an earlier run is now %s.previous", file_.path.c_str());
  }
  return position;
}

void Trainer::run() {
  report_.line("data: %s, %zu bytes to train on, %zu to validate", options_.data.c_str(), corpus_.training().size(),
               corpus_.validation().size());
  report_.line("model: %d layers, %d heads, width %d, context %d: %zu parameters", options_.shape.layers,
               options_.shape.heads, options_.shape.width, options_.shape.context, gpt_.parameter_count());
  report_.line("job: %d workers, %d sequences a step, %d for each", world_.size(), options_.global_batch,
               options_.global_batch / world_.size());
  report_.begin(position_.step);
  while (true) {
    kept_.step();  // all before this is done, whatever happens now
    if (position_.step == position_.began_at) {
      validate();
      report_.begin(position_.step);
    }
    if (position_.step >= options_.steps) break;
    take_step();
    ddp::progress(position_.step);  // for `ddprun ps`
    report_.step(position_.step, loss_);
    if (!options_.times.empty()) {
      append_time(options_.times, {world_.rank(), restart_count_, position_.step});
    }
    if (is_due(options_.validate_every)) validate();
    if (options_.checkpoint_every > 0 && is_due(options_.checkpoint_every)) write_checkpoint();
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
  const auto share = static_cast<std::size_t>(options_.global_batch / world_.size());
  const auto done = static_cast<std::size_t>(position_.sequences % sequences_per_epoch_ / world_.size());
  std::vector<Bytes> result;
  for (std::size_t i = done; i < done + share; ++i) {
    result.push_back(window(corpus_.training(), context_, static_cast<std::size_t>(windows_[i])));
  }
  return result;
}

// Takes one step of data-parallel training. This is what libddp is for.
void Trainer::take_step() {
  loss_ = gpt_.forward(next_windows());
  // The loss travels while backward is still computing.
  const ddp::Work loss_averaged = world_.all_reduce_async({&loss_, 1}, ddp::ReduceOp::Avg);
  gpt_.backward([this](std::size_t i) { model_.mark_ready(i); });  // meanwhile full buckets are averaged
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
  file_.write(gpt_.parameters(), optimizer_, position_);
  report_.line("checkpoint after %d steps: %s", position_.step, file_.path.c_str());
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

}  // namespace

void train(const Options& options) {
  const Corpus corpus(options.data);
  const ddp::Session session = ddp::init_process_group();
  Trainer(options, corpus, session).run();
}

}  // namespace train
