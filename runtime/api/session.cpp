// SPDX-License-Identifier: BSD-3-Clause
// Exported functions on sessions, streams and failures.
#include <chrono>
#include <memory>
#include <string>

#include "collectives/backend_loader.hpp"
#include "ddp/ddp.h"
#include "rendezvous/base/error.hpp"
#include "runtime/api/arguments.hpp"
#include "runtime/api/c_guard.hpp"
#include "runtime/api/c_handles.hpp"
#include "runtime/api/live_sessions.hpp"
#include "runtime/base/buffer.hpp"
#include "runtime/base/error_file.hpp"
#include "runtime/device/cuda_backend.hpp"
#include "runtime/device/current_stream.hpp"
#include "runtime/diagnosis/failure_handlers.hpp"
#include "runtime/diagnosis/flight_recorder.hpp"
#include "runtime/diagnosis/progress.hpp"
#include "runtime/group/process_group.hpp"
#include "runtime/session/session.hpp"

namespace {

using ddp::rendezvous::Error;
using ddp::rendezvous::ErrorCode;
using ddp::runtime::group_of;
using ddp::runtime::guard;
using ddp::runtime::not_null;
using ddp::runtime::of;
using ddp::runtime::Session;
using Milliseconds = std::chrono::milliseconds;

ddp::runtime::SessionOptions session_options(const ddp_session_options* caller) {
  const ddp_session_options given = DDP_OPTIONS(ddp_session_options, device, caller);
  ddp::runtime::SessionOptions options;
  if (given.init_timeout_ms < 0 || given.timeout_ms < 0) {
    throw Error(ErrorCode::InvalidArgument, "ddp_session_init: a timeout is negative; 0 means the default");
  }
  if (given.backend != nullptr) options.backends = ddp::collectives::parse_backend_names(given.backend);
  if (given.init_timeout_ms > 0) options.init_timeout = Milliseconds(given.init_timeout_ms);
  if (given.timeout_ms > 0) options.timeout = Milliseconds(given.timeout_ms);
  if (given.device != nullptr) options.device = given.device;
  options.arguments.store = reinterpret_cast<ddp::rendezvous::Store*>(given.store);
  ddp::runtime::InitArguments& arguments = options.arguments;
  if (given.name != nullptr) arguments.session_name = given.name;
  if (given.init_method != nullptr) arguments.init_method = given.init_method;
  if (given.world_size != 0) {
    arguments.rank = given.rank;
    arguments.world_size = given.world_size;
  }
  if (given.local_world_size != 0) {
    arguments.local_rank = given.local_rank;
    arguments.local_world_size = given.local_world_size;
  }
  return options;
}

void check_device_index(int32_t device) {
  constexpr int32_t kMost = 1024;  // far more than any machine has; a larger number is a mistake
  if (device >= 0 && device < kMost) return;
  throw Error(ErrorCode::InvalidArgument, "there is no CUDA device " + std::to_string(device));
}

}  // namespace

const char* ddp_version(void) { return DDP_VERSION; }
size_t ddp_dtype_size(int32_t dtype) { return ddp::runtime::dtype_size(dtype); }
ddp_status ddp_buffer_convert(ddp_buffer from, ddp_buffer to) {
  return guard([&] { ddp::runtime::convert(from, to); });
}

ddp_status ddp_session_init(const ddp_session_options* options, ddp_session** out) {
  return guard([&] {
    not_null(out, "the session to fill in");
    *out = nullptr;
    ddp::runtime::install_failure_handlers();
    auto session = std::make_unique<Session>(session_options(options), ddp::runtime::process_environment);
    ddp::runtime::enlist(*session);
    *out = handle_of(session.release());
  });
}

void ddp_session_destroy(ddp_session* session) { ddp::runtime::destroy(of(session)); }

ddp_group* ddp_session_world(ddp_session* session) { return handle_of(&of(session)->world()); }
ddp_status ddp_session_store(ddp_session* session, ddp_store** out) {
  return guard([&] {
    not_null(out, "the store to fill in") = nullptr;
    *out = reinterpret_cast<ddp_store*>(&not_null(of(session), "the session").store());
  });
}

ddp_status ddp_session_stay(ddp_session* session, int32_t stays, int32_t* will) {
  return guard([&] {
    not_null(will, "where to tell whether this process will stay") = 0;
    *will = not_null(of(session), "the session").say_stays(stays != 0) ? 1 : 0;
  });
}

ddp_status ddp_session_rejoin(ddp_session* session) {
  return guard([&] {
    ddp::runtime::forget_groups();
    not_null(of(session), "the session").rejoin();
  });
}

int32_t ddp_session_local_rank(const ddp_session* session) { return of(session)->info().local_rank; }
int32_t ddp_session_local_world_size(const ddp_session* session) { return of(session)->info().local_world_size; }
void ddp_progress(int64_t step) { ddp::runtime::show_progress(step); }
int32_t ddp_session_restart_count(const ddp_session* session) { return of(session)->info().restart_count; }

int32_t ddp_backend_is_available(const char* backend) {
  const ddp_status status = guard([&] {
    const auto names = ddp::collectives::parse_backend_names(&not_null(backend, "the backend's name"));
    if (!names.cpu.empty()) ddp::collectives::load_backend(names.cpu);
    if (!names.cuda.empty() && ddp::runtime::count_devices(names.cuda) == 0) {
      throw Error(ErrorCode::InvalidArgument, "this process may use no CUDA device (see CUDA_VISIBLE_DEVICES)");
    }
  });
  return status == DDP_OK ? 1 : 0;
}

int32_t ddp_job_rank(void) {
  if (const Session* session = ddp::runtime::first_session()) return session->info().rank;
  return ddp::runtime::rank_or_zero(ddp::runtime::process_environment);
}

int32_t ddp_group_rank(const ddp_group* group) { return group != nullptr ? of(group)->rank() : -1; }
int32_t ddp_group_size(const ddp_group* group) { return group != nullptr ? of(group)->size() : -1; }
const char* ddp_group_name(const ddp_group* group) { return group != nullptr ? of(group)->name().c_str() : ""; }

ddp_status ddp_stream_set_current(int32_t device, void* stream) {
  return guard([&] {
    check_device_index(device);
    ddp::runtime::set_current_stream(device, static_cast<ddp::collectives::CudaStream*>(stream));
  });
}

ddp_status ddp_stream_current(int32_t device, void** stream) {
  return guard([&] {
    check_device_index(device);
    not_null(stream, "where to put the stream");
    *stream = ddp::runtime::current_stream(device);
  });
}

ddp_status ddp_group_nccl_communicator(ddp_group* group, void** communicator) {
  return guard([&] {
    not_null(communicator, "where to put the communicator");
    *communicator = group_of(group).nccl_communicator();
  });
}

int ddp_failure_handlers_install(void) { return ddp::runtime::install_failure_handlers() ? 1 : 0; }

int ddp_error_record(const char* message) {
  return ddp::runtime::record_error(message != nullptr ? message : "") ? 1 : 0;
}

ddp_status ddp_flight_recorder_dump(const char* path) {
  return guard([&] { ddp::runtime::save_flight_recorder(&not_null(path, "the flight recorder's path"), "asked for"); });
}
