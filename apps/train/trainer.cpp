// SPDX-License-Identifier: BSD-3-Clause
#include "apps/train/trainer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <random>

#include "apps/train/failure.hpp"

namespace train {
namespace {

constexpr std::size_t kValidationWindows = 256;
constexpr float kTemperature = 0.7F;  // of the sample: below 1, likely bytes become likelier

// As libddp sees them: plain memory. It averages our own gradient buffers in place.
std::vector<ddp::Parameter> ddp_parameters(Gpt& gpt) {
  std::vector<ddp::Parameter> result;
  for (Parameter& p : gpt.parameters()) {
    result.emplace_back(p.name, p.value.data(), p.gradient.data(), p.value.size());
  }
  return result;
}

// What makes two trainings the same one: a checkpoint of one can be continued as the other.
ddp::Metadata identity(const Options& o, const Corpus& corpus) {
  return {{"context", std::to_string(o.shape.context)},
          {"layers", std::to_string(o.shape.layers)},
          {"heads", std::to_string(o.shape.heads)},
          {"width", std::to_string(o.shape.width)},
          {"seed", std::to_string(o.seed)},
          {"data", corpus.fingerprint()}};
}

std::string run_id() {
  const char* id = std::getenv("TORCHELASTIC_RUN_ID");
  return id ? id : "";
}

// Rank 0 alone looks at files. What it found wrong (or nothing) reaches every rank, so that all go on or all stop.
void throw_on_all_ranks(const ddp::ProcessGroup& world, std::string problem) {
  auto size = static_cast<std::int64_t>(problem.size());
  world.broadcast({&size, 1});
  if (size == 0) return;
  problem.resize(static_cast<std::size_t>(size));
  world.broadcast({reinterpret_cast<std::uint8_t*>(problem.data()), problem.size()});
  throw Failure(problem);
}

int share_of(const Options& o, const Corpus& corpus, int workers) {
  if (o.global_batch % workers != 0) {
    throw BadInput("--global-batch " + std::to_string(o.global_batch) + " cannot be split evenly over " +
                   std::to_string(workers) + " workers");
  }
  const auto context = static_cast<std::size_t>(o.shape.context);
  const std::size_t needed = (static_cast<std::size_t>(o.global_batch) + 1) * context;
  if (corpus.training().size() < needed || corpus.validation().size() <= context) {
    throw BadInput("--data " + o.data + ": has " + std::to_string(corpus.training().size()) +
                   " bytes to train on and " + std::to_string(corpus.validation().size()) +
                   " to validate, but a step takes " + std::to_string(needed) + " and a validation " +
                   std::to_string(context + 1) + ": give more data, or lower --global-batch or --context");
  }
  return o.global_batch / workers;
}

}  // namespace

Trainer::Trainer(const Options& options, const Corpus& corpus, const ddp::Session& session)
    : options_(options),
      corpus_(corpus),
      world_(session.world()),
      share_(share_of(options, corpus, world_.size())),
      sampler_(corpus.training(), options.shape.context, options.seed),
      validation_windows_(spread_windows(corpus.validation(), options.shape.context, kValidationWindows)),
      file_(options.checkpoint, identity(options, corpus), run_id()),
      report_(world_.rank(), options.steps, double(options.global_batch) * options.shape.context),
      gpt_(options.shape, options.seed),
      optimizer_(gpt_.parameters(), options.weight_decay),
      position_(start(session.restart_count())),
      model_(world_, ddp_parameters(gpt_)) {
  // The parameters are the same everywhere now. So must be the rest of what the next step depends on.
  world_.broadcast({&position_.step, 1});
  world_.broadcast({&position_.sequences, 1});
  if (position_.step == 0) return;
  for (std::size_t i = 0; i < gpt_.parameters().size(); ++i) {
    Floats& first = optimizer_.moments().first[i];
    Floats& second = optimizer_.moments().second[i];
    world_.broadcast({first.data(), first.size()});
    world_.broadcast({second.data(), second.size()});
  }
}

Position Trainer::start(int restart_count) {
  Position position;
  std::string problem;
  try {
    if (world_.rank() == 0) position = look_at_files(restart_count);
  } catch (const std::exception& e) {
    problem = e.what();
  }
  throw_on_all_ranks(world_, problem);
  return position;
}

Position Trainer::look_at_files(int restart_count) {
  using Start = CheckpointFile::Start;
  const bool writes = options_.checkpoint_every > 0;
  const Start start = writes || options_.resume ? file_.choose_start(options_.resume, restart_count) : Start::Anew;
  Position position;
  if (start == Start::Continue) {
    position = file_.read(gpt_.parameters(), optimizer_);
    report_.line("continuing %s from step %d", options_.checkpoint.c_str(), position.step);
  }
  if (!options_.log.empty()) report_.open_log(options_.log, position.step > 0 ? "a" : "w");
  if (start == Start::SetAside) {
    file_.set_aside();
    report_.line("beginning anew; the checkpoint of an earlier run is now %s.previous", options_.checkpoint.c_str());
  }
  return position;
}

void Trainer::run() {
  introduce();
  validate();
  report_.begin(position_.step);
  while (position_.step < options_.steps) {
    take_step();
    report_.step(position_.step, loss_);
    if (is_due(options_.validate_every)) validate();
    if (options_.checkpoint_every > 0 && is_due(options_.checkpoint_every)) write_checkpoint();
  }
  write_sample();
}

// One step of data-parallel training: what libddp is for.
void Trainer::take_step() {
  // Which sequences a step takes does not depend on the number of workers; only who takes them does.
  const std::int64_t first = position_.sequences + world_.rank() * share_;
  std::vector<Corpus::Bytes> windows;
  for (std::int64_t n = first; n < first + share_; ++n) windows.push_back(sampler_.window(n));

  loss_ = gpt_.forward(windows);
  const ddp::Work loss_averaged = world_.all_reduce_async({&loss_, 1}, ddp::ReduceOp::Avg);
  gpt_.backward([this](std::size_t i) { model_.mark_ready(i); });  // buckets of gradients are averaged meanwhile
  loss_averaged.wait();
  model_.synchronize();  // gradients are now the average over all ranks

  const double norm = clip_gradients(gpt_.parameters(), options_.clip);
  // Every rank has the same gradients, so all of them stop here or none.
  if (!std::isfinite(norm)) throw Failure("the gradient is no longer a number: try a lower --lr");
  position_.sequences += options_.global_batch;
  ++position_.step;
  optimizer_.step(position_.step,
                  learning_rate(position_.step, options_.steps, options_.warmup, options_.learning_rate));
}

// Each rank takes its share of the windows; sums meet.
void Trainer::validate() {
  std::array<double, 2> sum = {0, 0};  // of losses, of windows
  for (auto i = world_.rank(); i < static_cast<int>(validation_windows_.size()); i += world_.size()) {
    sum[0] += gpt_.forward({&validation_windows_[static_cast<std::size_t>(i)], 1});
    sum[1] += 1;
  }
  world_.all_reduce({sum.data(), sum.size()});
  report_.line("validation after %d steps: %.4f nats per byte", position_.step, sum[0] / sum[1]);
}

void Trainer::write_checkpoint() {
  if (world_.rank() != 0) return;
  file_.write(gpt_.parameters(), optimizer_, position_);
  report_.line("checkpoint after %d steps: %s", position_.step, options_.checkpoint.c_str());
}

// Text from the model: each byte drawn from what it expects after those before it. Rank 0's alone; the others are done.
void Trainer::write_sample() {
  if (world_.rank() != 0 || options_.sample_bytes == 0) return;
  std::mt19937_64 random(options_.seed);
  std::vector<std::uint8_t> text = {'\n'};
  for (int i = 0; i < options_.sample_bytes; ++i) {
    const std::size_t seen = std::min(text.size(), static_cast<std::size_t>(options_.shape.context));
    const std::vector<float> logits = gpt_.logits(Corpus::Bytes(text).last(seen));
    std::vector<double> weights;
    for (auto l = logits.end() - Gpt::kVocabulary; l != logits.end(); ++l)
      weights.push_back(std::exp(*l / kTemperature));
    text.push_back(static_cast<std::uint8_t>(std::discrete_distribution<int>(weights.begin(), weights.end())(random)));
  }
  // What a terminal could take for a command is left out.
  std::replace_if(
      text.begin(), text.end(), [](std::uint8_t c) { return c < ' ' && c != '\n'; }, ' ');
  report_.line("sample:%.*s", static_cast<int>(text.size()), reinterpret_cast<const char*>(text.data()));
}

void Trainer::introduce() {
  std::size_t count = 0;
  for (const Parameter& p : gpt_.parameters()) count += p.value.size();
  report_.line("data: %s, %zu bytes to train on, %zu to validate", options_.data.c_str(), corpus_.training().size(),
               corpus_.validation().size());
  report_.line("model: %d layers, %d heads, width %d, context %d: %zu parameters", options_.shape.layers,
               options_.shape.heads, options_.shape.width, options_.shape.context, count);
  report_.line("job: %d workers, %d sequences a step, %d for each", world_.size(), options_.global_batch, share_);
}

// Every so many steps (0: never), and after the last.
bool Trainer::is_due(int every) const {
  return position_.step == options_.steps || (every > 0 && position_.step % every == 0);
}

}  // namespace train
