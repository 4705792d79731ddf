// SPDX-License-Identifier: BSD-3-Clause
#include "apps/train/checkpoint.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "apps/train/failure.hpp"

namespace train {
namespace {

ddp::Checkpoint open(const std::string& path) try { return ddp::Checkpoint(path); } catch (const ddp::Error& e) {
  throw Failure(std::string(e.what()) + ": give another --checkpoint, or move it away");
}

}  // namespace

CheckpointFile::StartMode CheckpointFile::choose_start(bool resume, int restart_count) const {
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    throw Failure(path + ": cannot be written (" + std::strerror(errno) + "): give another --checkpoint");
  }
  if (!std::filesystem::exists(path)) return StartMode::Fresh;

  const ddp::Checkpoint file = open(path);
  for (const auto& [key, value] : identity) {
    const std::string other = file.metadata(key).value_or("none");
    if (other == value) continue;
    throw Failure(path + ": belongs to another training (" + key + " " + other + ", here " + value +
                  "): give another --checkpoint, or move it away");
  }
  const bool ours = restart_count > 0 && file.metadata("run_id") == run_id;
  return resume || ours ? StartMode::Continue : StartMode::SetAside;
}

Position CheckpointFile::read(Parameters& parameters, ddp::AdamW& optimizer) const {
  const ddp::Checkpoint file = open(path);
  try {
    for (Parameter& p : parameters) file.read(p.name, {p.value.data(), p.value.size()}, p.shape);
    optimizer.load_state_dict(file);
    const int step = std::stoi(file.metadata("step").value());
    return {step, std::stoll(file.metadata("sequences").value()), step};
  } catch (const std::exception& e) {
    throw Failure(path + ": cannot be continued from (" + e.what() + "): move it away to start from scratch");
  }
}

void CheckpointFile::write(const Parameters& parameters, const ddp::AdamW& optimizer, const Position& position) const {
  const ddp::OptimizerState state = optimizer.state_dict();
  std::vector<ddp::Tensor> tensors = state.tensors();
  for (const Parameter& p : parameters) tensors.push_back({p.name, p.value.data(), ddp::DType::Float32, p.shape});
  ddp::Metadata metadata = identity;
  metadata.emplace_back("run_id", run_id);
  metadata.emplace_back("step", std::to_string(position.step));
  metadata.emplace_back("sequences", std::to_string(position.sequences));
  ddp::save_checkpoint(path, tensors, metadata);
}

}  // namespace train
