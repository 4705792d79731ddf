// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/training/cuda/cuda_powersgd.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/base/buffer.hpp"
#include "runtime/training/cuda/kernels.hpp"
#include "runtime/training/ddp/tensor_place.hpp"

namespace ddp::runtime {
namespace {

class CudaPowerSgdBucket final : public PowerSgdBucket {
 public:
  CudaPowerSgdBucket(const TensorPlace& place, std::shared_ptr<const Kernels> kernels, const ddp_grad_bucket& bucket,
                     const PowerSgdOptions& options)
      : place_(place),
        kernels_(std::move(kernels)),
        options_(options),
        dtype_(bucket.buffer.dtype),
        plan_(plan_low_rank(bucket, options)),
        p_(place, bytes(plan_.p_size)),
        q_(place, bytes(plan_.q_size)),
        rest_(place, bytes(plan_.rest_size)),
        error_(place, options.error_feedback ? bytes(plan_.error_size) : 0),
        parts_(place, bytes(std::max(plan_.p_size, plan_.q_size) * kernels::kProductParts)),
        order_(place) {
    for (const LowRankPlan::Matrix& matrix : plan_.matrices) columns_ = std::max(columns_, matrix.columns);
    lanes_ = TensorMemory(place, plan_.matrices.size() * columns_ * kernels::kThreads * sizeof(double));
    send_matrices();
    order_.leave();
  }

  void compress(void* gradients) override {
    order_.enter();
    if (!plan_.matrices.empty()) compress_matrices(gradients);
    std::size_t at = 0;
    for (const LowRankPlan::Piece& piece : plan_.rest) {
      place_.copy(rest_.data() + bytes(at), element(gradients, piece.offset), bytes(piece.count));
      at += piece.count;
    }
    order_.leave();
  }

  void project(const void* gradients) override {
    if (plan_.matrices.empty()) return;
    kernels::LowRank all = arguments(const_cast<void*>(gradients));
    all.of_p = 1;
    orthogonalize(all, Fills::No);
    all.of_p = 0;
    whole<kernel::low_rank_multiply>(all);
    whole<kernel::low_rank_combine>(all);
    order_.leave();
  }

  void decompress(void* gradients) override {
    if (!plan_.matrices.empty()) {
      const kernels::LowRank all = arguments(gradients);
      each<kernel::low_rank_check>(all);
      whole<kernel::low_rank_expand>(all);
      each<kernel::low_rank_drop>(all);
    }
    std::size_t at = 0;
    for (const LowRankPlan::Piece& piece : plan_.rest) {
      place_.copy(element(gradients, piece.offset), rest_.data() + bytes(at), bytes(piece.count));
      at += piece.count;
    }
    order_.leave();
  }

  ddp_buffer p() override { return {p_.data(), plan_.p_size, dtype_, place_.device()}; }
  ddp_buffer q() override { return {q_.data(), plan_.q_size, dtype_, place_.device()}; }
  ddp_buffer rest() override { return {rest_.data(), plan_.rest_size, dtype_, place_.device()}; }

 private:
  enum class Fills { No, Yes };

  void compress_matrices(void* gradients) {
    kernels::LowRank all = arguments(gradients);
    if (options_.error_feedback) whole<kernel::low_rank_add_error>(all);
    if (!options_.warm_start) place_.clear(q_.data(), q_.size());
    for (int round = 0; round < 2; ++round) orthogonalize(all, Fills::Yes);
    all.of_p = 1;
    whole<kernel::low_rank_multiply>(all);
    whole<kernel::low_rank_combine>(all);
  }

  // Makes the columns of all P or all Q orthonormal, one after the other.
  void orthogonalize(kernels::LowRank all, Fills fills) {
    for (all.column = 0; all.column < columns_; ++all.column) {
      each<kernel::low_rank_measure>(all);
      if (fills == Fills::Yes) {
        all.turn = std::exchange(turn_, 1 - turn_);
        each<kernel::low_rank_fill>(all);
        each<kernel::low_rank_measure>(all);
      }
      // Two passes: the first leaves rounding errors in proportion to what it takes away.
      for (all.turn = 0; all.turn < 2; ++all.turn) {
        each<kernel::low_rank_subtract>(all);
        each<kernel::low_rank_measure>(all);
      }
      each<kernel::low_rank_finish>(all);
    }
  }

  kernels::LowRank arguments(void* gradients) const {
    kernels::LowRank all = {};
    all.matrices = reinterpret_cast<kernels::LowRankMatrix*>(matrices_.data());
    all.count = plan_.matrices.size();
    all.gradients = gradients;
    all.p = p_.data();
    all.q = q_.data();
    all.error = options_.error_feedback ? error_.data() : nullptr;
    all.parts = parts_.data();
    all.lanes = reinterpret_cast<double*>(lanes_.data());
    all.max_columns = columns_;
    all.type = static_cast<kernels::Type>(dtype_);
    return all;
  }

  // One block for each matrix.
  template <typename Kernel>
  void each(const kernels::LowRank& all) const {
    kernels_->launch<Kernel>(static_cast<unsigned>(plan_.matrices.size()), all, place_.stream());
  }
  // Many blocks for each matrix.
  template <typename Kernel>
  void whole(const kernels::LowRank& all) const {
    kernels_->launch<Kernel>(static_cast<unsigned>(plan_.matrices.size()) * kernels::kRowBlocks, all, place_.stream());
  }

  void send_matrices() {
    std::vector<kernels::LowRankMatrix> matrices;
    for (const LowRankPlan::Matrix& m : plan_.matrices) {
      kernels::LowRankMatrix sent = {};
      sent.rows = m.shape.rows;
      sent.cols = m.shape.cols;
      sent.columns = m.columns;
      sent.gradient = m.offset;
      sent.p = m.p;
      sent.q = m.q;
      sent.error = m.error;
      sent.random[0] = m.random;
      matrices.push_back(sent);
    }
    if (matrices.empty()) return;
    matrices_ = TensorMemory(place_, matrices.size() * sizeof(matrices[0]));
    place_.gpu().upload(matrices_.data(), matrices.data(), matrices_.size(), place_.stream());
  }

  std::size_t bytes(std::size_t count) const { return count * dtype_size(dtype_); }
  std::byte* element(void* gradients, std::size_t offset) const {
    return static_cast<std::byte*>(gradients) + bytes(offset);
  }

  TensorPlace place_;
  std::shared_ptr<const Kernels> kernels_;
  PowerSgdOptions options_;
  std::int32_t dtype_;
  LowRankPlan plan_;
  std::size_t columns_ = 0;  // the largest number of any matrix
  std::uint64_t turn_ = 0;
  TensorMemory p_, q_, rest_, error_;
  TensorMemory parts_, lanes_, matrices_;
  StreamOrder order_;  // the next step may be on another stream than the last one
};

}  // namespace

std::unique_ptr<CommHook> make_cuda_powersgd_hook(ProcessGroup& group, const PowerSgdOptions& options) {
  const TensorPlace place(group.gpu());
  const auto kernels = Kernels::of(place.gpu().index());
  return std::make_unique<PowerSgdHook>(group, options,
                                        [place, kernels](const ddp_grad_bucket& bucket, const PowerSgdOptions& given) {
                                          return std::make_unique<CudaPowerSgdBucket>(place, kernels, bucket, given);
                                        });
}

}  // namespace ddp::runtime
