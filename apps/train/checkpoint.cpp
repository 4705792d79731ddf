// SPDX-License-Identifier: BSD-3-Clause
#include "apps/train/checkpoint.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "apps/train/failure.hpp"

namespace train {

CheckpointFile::CheckpointFile(std::string path, ddp::Metadata identity, std::string run_id)
    : path_(std::move(path)), identity_(std::move(identity)), run_id_(std::move(run_id)) {}

CheckpointFile::Start CheckpointFile::choose_start(bool resume, int restart_count) const {
  const std::filesystem::path folder = std::filesystem::absolute(path_).parent_path();
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    throw Failure(path_ + ": cannot be written there (" + std::strerror(errno) + "): give another --checkpoint");
  }
  if (!std::filesystem::exists(path_)) return Start::Anew;

  const ddp::Checkpoint file = open();
  for (const auto& [key, value] : identity_) {
    const std::string other = file.metadata(key).value_or("none");
    if (other == value) continue;
    throw Failure(path_ + ": is of another training (" + key + " " + other + ", here " + value +
                  "): give another --checkpoint, or move it away");
  }
  const bool ours = restart_count > 0 && file.metadata("run_id") == run_id_;
  return resume || ours ? Start::Continue : Start::SetAside;
}

void CheckpointFile::set_aside() const { std::filesystem::rename(path_, path_ + ".previous"); }

ddp::Checkpoint CheckpointFile::open() const try { return ddp::Checkpoint(path_); } catch (const ddp::Error& e) {
  throw Failure(std::string(e.what()) + ": give another --checkpoint, or move it away");
}

Position CheckpointFile::read(Parameters& parameters, AdamW& optimizer) const {
  const ddp::Checkpoint file = open();
  AdamW::Moments& moments = optimizer.moments();
  try {
    for (Parameter& p : parameters) {
      file.read(p.name, {p.value.data(), p.value.size()}, p.shape);
      file.read("first." + p.name, {moments.first[p.index].data(), p.value.size()}, p.shape);
      file.read("second." + p.name, {moments.second[p.index].data(), p.value.size()}, p.shape);
    }
    return {std::stoi(file.metadata("step").value()), std::stoll(file.metadata("sequences").value())};
  } catch (const std::exception& e) {
    throw Failure(path_ + ": cannot be continued from (" + e.what() + "): move it away to begin anew");
  }
}

void CheckpointFile::write(const Parameters& parameters, const AdamW& optimizer, const Position& position) const {
  const AdamW::Moments& moments = optimizer.moments();
  std::vector<ddp::Tensor> tensors;
  for (const Parameter& p : parameters) {
    tensors.push_back({p.name, p.value.data(), ddp::DType::Float32, p.shape});
    tensors.push_back({"first." + p.name, moments.first[p.index].data(), ddp::DType::Float32, p.shape});
    tensors.push_back({"second." + p.name, moments.second[p.index].data(), ddp::DType::Float32, p.shape});
  }
  ddp::Metadata metadata = identity_;
  metadata.emplace_back("run_id", run_id_);
  metadata.emplace_back("step", std::to_string(position.step));
  metadata.emplace_back("sequences", std::to_string(position.sequences));
  ddp::save_checkpoint(path_, tensors, metadata);
}

}  // namespace train
