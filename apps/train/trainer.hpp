// SPDX-License-Identifier: BSD-3-Clause
// Trains one GPT on all workers of a job. Each worker computes the gradient of its share of a batch; libddp averages
// the gradients; each worker then takes the same step. trainer.cpp is the page to learn libddp from.
#pragma once

#include <ddp/ddp.hpp>
#include <vector>

#include "apps/train/adamw.hpp"
#include "apps/train/checkpoint.hpp"
#include "apps/train/corpus.hpp"
#include "apps/train/gpt.hpp"
#include "apps/train/options.hpp"
#include "apps/train/report.hpp"

namespace train {

class Trainer {
 public:
  // Collective: every rank makes one, with the same options, and runs it. Throws Failure and ddp::Error.
  Trainer(const Options& options, const Corpus& corpus, const ddp::Session& session);

  void run();

 private:
  Position start(int restart_count);
  Position look_at_files(int restart_count);
  void introduce();
  void take_step();
  void validate();
  void write_checkpoint();
  void write_sample();
  bool is_due(int every) const;

  const Options& options_;
  const Corpus& corpus_;
  ddp::ProcessGroup world_;
  int share_;  // sequences of a step that are this rank's
  Sampler sampler_;
  std::vector<Corpus::Bytes> validation_windows_;
  CheckpointFile file_;
  Report report_;

  Gpt gpt_;
  AdamW optimizer_;
  Position position_;                   // start() reads the checkpoint into gpt_ and optimizer_ on rank 0 ...
  ddp::DistributedDataParallel model_;  // ... before this hands rank 0's parameters to everyone
  double loss_ = 0;                     // of the last step, averaged over all ranks
};

}  // namespace train
