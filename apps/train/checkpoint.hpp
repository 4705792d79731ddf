// SPDX-License-Identifier: BSD-3-Clause
// The file that holds a training's checkpoint. Only rank 0 uses it; the other ranks receive what
// they need by broadcast.
//
// When a job starts and a file of this name exists:
//
//     it is not a checkpoint, or of another training (model, data, seed)   refuse, change nothing
//     --resume, or the launcher restarted the job that wrote it            continue from it
//     otherwise                                                            start from scratch, keep it as FILE.previous
//
// The launcher's run id tells which job wrote a checkpoint. Not every launcher gives each job its
// own id, and therefore the last row renames the file: another job's checkpoint is out of the way
// before this job could be restarted.
#pragma once

#include <cstdint>
#include <ddp/ddp.hpp>
#include <ddp/training.hpp>
#include <string>

#include "apps/train/model/gpt.hpp"

namespace train {

// How far a training has come. Together with the parameters and the optimizer's state it determines
// the next step.
struct Position {
  int step = 0;                // number of steps done
  std::int64_t sequences = 0;  // number of sequences read by all workers together: the position in the data
  int began_at = 0;            // step of the checkpoint with which this job began
};

struct CheckpointFile {
  std::string path;
  ddp::Metadata identity;  // must be equal for a checkpoint to belong to this training
  std::string run_id;

  enum class StartMode { Fresh, SetAside, Continue };
  // Decides by the table above. Throws Failure, also if path cannot be written.
  StartMode choose_start(bool resume, int restart_count) const;

  Position read(Parameters& parameters, ddp::AdamW& optimizer) const;
  void write(const Parameters& parameters, const ddp::AdamW& optimizer, const Position& position) const;
};

}  // namespace train
