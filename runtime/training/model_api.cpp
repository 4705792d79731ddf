// SPDX-License-Identifier: BSD-3-Clause
// libddp's exported functions on models.
#include <memory>

#include "ddp/ddp.h"
#include "runtime/src/c_guard.hpp"
#include "runtime/src/c_handles.hpp"
#include "runtime/training/model.hpp"

namespace {

using ddp::runtime::guard;
using ddp::runtime::Model;
using ddp::runtime::not_null;

Model* of(ddp_model* handle) { return reinterpret_cast<Model*>(handle); }
const Model* of(const ddp_model* handle) { return reinterpret_cast<const Model*>(handle); }

}  // namespace

ddp_status ddp_model_create(ddp_group* group, const ddp_parameter* parameters, size_t count,
                            const ddp_model_options* options, ddp_model** out) {
  return guard([&] {
    not_null(out, "the model to fill in");
    *out = nullptr;
    const ddp_model_options chosen = options != nullptr ? *options : ddp_model_options{0, 0};
    auto model = std::make_unique<Model>(not_null(ddp::runtime::of(group), "the group"), parameters, count,
                                         chosen.first_bucket_bytes, chosen.bucket_bytes);
    *out = reinterpret_cast<ddp_model*>(model.release());
  });
}

void ddp_model_destroy(ddp_model* model) {
  guard([&] { delete of(model); });
}

void* ddp_model_gradient(ddp_model* model, size_t i) {
  void* gradient = nullptr;
  guard([&] { gradient = not_null(of(model), "the model").gradient(i); });
  return gradient;
}

ddp_status ddp_model_mark_ready(ddp_model* model, size_t i) {
  return guard([&] { not_null(of(model), "the model").mark_ready(i); });
}

ddp_status ddp_model_synchronize(ddp_model* model) {
  return guard([&] { not_null(of(model), "the model").synchronize(); });
}

ddp_status ddp_model_set_no_sync(ddp_model* model, int32_t enabled) {
  return guard([&] { not_null(of(model), "the model").set_no_sync(enabled != 0); });
}

size_t ddp_model_bucket_count(const ddp_model* model) { return of(model)->bucket_count(); }
