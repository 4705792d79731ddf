// SPDX-License-Identifier: BSD-3-Clause
// The training as it lies in a file. Rank 0's business: the others get from it by broadcast what they need.
//
// When a file of this name exists as a job starts:
//
//     it is not a checkpoint, or of another training (model, data, seed)   refuse, touch nothing
//     --resume, or the launcher restarted the job that wrote it            continue from it
//     else                                                                 begin anew, keep it as FILE.previous
//
// The launcher's run id tells whose checkpoint it is. Not every launcher gives each job its own, so the last row does
// its part: what another job left is out of the way before this one could be restarted.
#pragma once

#include <cstdint>
#include <ddp/ddp.hpp>
#include <string>

#include "apps/train/model/gpt.hpp"

namespace train {

// How far a training has come. With the parameters and the optimizer, all that its next step depends on.
struct Position {
  int step = 0;                // steps done
  std::int64_t sequences = 0;  // sequences read by all workers together: the place in the data
};

struct CheckpointFile {
  std::string path;
  ddp::Metadata identity;  // what must be equal for a checkpoint to belong to this training
  std::string run_id;

  enum class StartMode { Fresh, SetAside, Continue };
  // The table above. Throws Failure, also if no file could be written at path.
  StartMode choose_start(bool resume, int restart_count) const;

  Position read(Parameters& parameters, ddp::AdamW& optimizer) const;
  void write(const Parameters& parameters, const ddp::AdamW& optimizer, const Position& position) const;
};

}  // namespace train
