// SPDX-License-Identifier: BSD-3-Clause
// Exported functions on sessions and the operations of groups, on streams and failures.
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
#include "runtime/collective/make_operation.hpp"
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
using ddp::runtime::ProcessGroup;
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

ddp_status run(ddp_group* handle, std::int64_t timeout_ms, auto make) {
  return guard([&] {
    ProcessGroup& group = group_of(handle);
    group.run(make(group), Milliseconds(timeout_ms));
  });
}

ddp_status issue(ddp_group* handle, std::int64_t timeout_ms, ddp_work* work, auto make) {
  return guard([&] {
    ProcessGroup& group = group_of(handle);
    not_null(work, "the work to fill in");
    *work = {handle, group.issue(make(group), Milliseconds(timeout_ms))};
  });
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

ddp_status ddp_all_reduce(ddp_group* group, ddp_buffer buffer, ddp_reduction reduction, int64_t timeout_ms) {
  return run(group, timeout_ms, [&](ProcessGroup&) { return ddp::runtime::make_all_reduce(buffer, reduction); });
}

ddp_status ddp_reduce(ddp_group* group, ddp_buffer buffer, ddp_reduction reduction, int32_t root, int64_t timeout_ms) {
  return run(group, timeout_ms,
             [&](ProcessGroup& g) { return ddp::runtime::make_reduce(buffer, reduction, root, g.place()); });
}

ddp_status ddp_broadcast(ddp_group* group, ddp_buffer buffer, int32_t root, int64_t timeout_ms) {
  return run(group, timeout_ms, [&](ProcessGroup& g) { return ddp::runtime::make_broadcast(buffer, root, g.place()); });
}

ddp_status ddp_all_gather(ddp_group* group, ddp_buffer input, ddp_buffer output, int64_t timeout_ms) {
  return run(group, timeout_ms,
             [&](ProcessGroup& g) { return ddp::runtime::make_all_gather(input, output, g.place()); });
}

ddp_status ddp_gather(ddp_group* group, ddp_buffer input, ddp_buffer output, int32_t root, int64_t timeout_ms) {
  return run(group, timeout_ms,
             [&](ProcessGroup& g) { return ddp::runtime::make_gather(input, output, root, g.place()); });
}

ddp_status ddp_scatter(ddp_group* group, ddp_buffer input, ddp_buffer output, int32_t root, int64_t timeout_ms) {
  return run(group, timeout_ms,
             [&](ProcessGroup& g) { return ddp::runtime::make_scatter(input, output, root, g.place()); });
}

ddp_status ddp_reduce_scatter(ddp_group* group, ddp_buffer input, ddp_buffer output, ddp_reduction reduction,
                              int64_t timeout_ms) {
  return run(group, timeout_ms,
             [&](ProcessGroup& g) { return ddp::runtime::make_reduce_scatter(input, output, reduction, g.place()); });
}

ddp_status ddp_all_to_all(ddp_group* group, ddp_buffer input, const size_t* input_counts, ddp_buffer output,
                          const size_t* output_counts, int64_t timeout_ms) {
  return run(group, timeout_ms, [&](ProcessGroup& g) {
    return ddp::runtime::make_all_to_all(input, input_counts, output, output_counts, g.place());
  });
}

ddp_status ddp_allocate(ddp_group* group, size_t bytes, int64_t timeout_ms, void** memory) {
  return guard([&] {
    ProcessGroup& g = group_of(group);
    not_null(memory, "the pointer to fill in");
    *memory = g.allocate(bytes, Milliseconds(timeout_ms));
  });
}

void ddp_free(ddp_group* group, void* memory) {
  guard([&] {
    if (memory != nullptr) group_of(group).free(memory);
  });
}

ddp_status ddp_barrier(ddp_group* group, int64_t timeout_ms) {
  return run(group, timeout_ms, [&](ProcessGroup&) { return ddp::runtime::Operation(); });
}

ddp_status ddp_monitored_barrier(ddp_group* group, int32_t wait_all_ranks, int64_t timeout_ms) {
  return run(group, timeout_ms, [&](ProcessGroup&) {
    return ddp::runtime::Operation{.kind = ddp::runtime::OperationKind::MonitoredBarrier,
                                   .all_missing = wait_all_ranks != 0};
  });
}

ddp_status ddp_all_reduce_async(ddp_group* group, ddp_buffer buffer, ddp_reduction reduction, int64_t timeout_ms,
                                ddp_work* work) {
  return issue(group, timeout_ms, work,
               [&](ProcessGroup&) { return ddp::runtime::make_all_reduce(buffer, reduction); });
}

ddp_status ddp_reduce_async(ddp_group* group, ddp_buffer buffer, ddp_reduction reduction, int32_t root,
                            int64_t timeout_ms, ddp_work* work) {
  return issue(group, timeout_ms, work,
               [&](ProcessGroup& g) { return ddp::runtime::make_reduce(buffer, reduction, root, g.place()); });
}

ddp_status ddp_broadcast_async(ddp_group* group, ddp_buffer buffer, int32_t root, int64_t timeout_ms, ddp_work* work) {
  return issue(group, timeout_ms, work,
               [&](ProcessGroup& g) { return ddp::runtime::make_broadcast(buffer, root, g.place()); });
}

ddp_status ddp_all_gather_async(ddp_group* group, ddp_buffer input, ddp_buffer output, int64_t timeout_ms,
                                ddp_work* work) {
  return issue(group, timeout_ms, work,
               [&](ProcessGroup& g) { return ddp::runtime::make_all_gather(input, output, g.place()); });
}

ddp_status ddp_gather_async(ddp_group* group, ddp_buffer input, ddp_buffer output, int32_t root, int64_t timeout_ms,
                            ddp_work* work) {
  return issue(group, timeout_ms, work,
               [&](ProcessGroup& g) { return ddp::runtime::make_gather(input, output, root, g.place()); });
}

ddp_status ddp_scatter_async(ddp_group* group, ddp_buffer input, ddp_buffer output, int32_t root, int64_t timeout_ms,
                             ddp_work* work) {
  return issue(group, timeout_ms, work,
               [&](ProcessGroup& g) { return ddp::runtime::make_scatter(input, output, root, g.place()); });
}

ddp_status ddp_reduce_scatter_async(ddp_group* group, ddp_buffer input, ddp_buffer output, ddp_reduction reduction,
                                    int64_t timeout_ms, ddp_work* work) {
  return issue(group, timeout_ms, work,
               [&](ProcessGroup& g) { return ddp::runtime::make_reduce_scatter(input, output, reduction, g.place()); });
}

ddp_status ddp_all_to_all_async(ddp_group* group, ddp_buffer input, const size_t* input_counts, ddp_buffer output,
                                const size_t* output_counts, int64_t timeout_ms, ddp_work* work) {
  return issue(group, timeout_ms, work, [&](ProcessGroup& g) {
    return ddp::runtime::make_all_to_all(input, input_counts, output, output_counts, g.place());
  });
}

ddp_status ddp_barrier_async(ddp_group* group, int64_t timeout_ms, ddp_work* work) {
  return issue(group, timeout_ms, work, [&](ProcessGroup&) { return ddp::runtime::Operation(); });
}

ddp_status ddp_send(ddp_group* group, ddp_buffer buffer, int32_t destination, uint32_t tag, int64_t timeout_ms) {
  return run(group, timeout_ms,
             [&](ProcessGroup& g) { return ddp::runtime::make_send(buffer, destination, tag, g.place()); });
}

ddp_status ddp_recv(ddp_group* group, ddp_buffer buffer, int32_t source, uint32_t tag, int64_t timeout_ms,
                    int32_t* sender) {
  return guard([&] {
    ProcessGroup& g = group_of(group);
    const int from = g.run(ddp::runtime::make_receive(buffer, source, tag, g.place()), Milliseconds(timeout_ms));
    if (sender != nullptr) *sender = from;
  });
}

ddp_status ddp_isend(ddp_group* group, ddp_buffer buffer, int32_t destination, uint32_t tag, int64_t timeout_ms,
                     ddp_work* work) {
  return issue(group, timeout_ms, work,
               [&](ProcessGroup& g) { return ddp::runtime::make_send(buffer, destination, tag, g.place()); });
}

ddp_status ddp_irecv(ddp_group* group, ddp_buffer buffer, int32_t source, uint32_t tag, int64_t timeout_ms,
                     ddp_work* work) {
  return issue(group, timeout_ms, work,
               [&](ProcessGroup& g) { return ddp::runtime::make_receive(buffer, source, tag, g.place()); });
}

ddp_status ddp_work_wait_source(ddp_work work, int32_t* source) {
  return guard([&] {
    const int rank = group_of(work.group).wait(work.sequence);
    not_null(source, "where to tell the other rank") = rank;
  });
}

ddp_status ddp_work_wait(ddp_work work) {
  return guard([&] { group_of(work.group).wait(work.sequence); });
}

ddp_status ddp_work_wait_for(ddp_work work, int64_t timeout_ms, int32_t* completed) {
  return guard([&] {
    not_null(completed, "where to tell whether the operation ended");
    *completed = 1;  // also true if the operation failed
    *completed = group_of(work.group).wait_for(work.sequence, Milliseconds(timeout_ms)) ? 1 : 0;
  });
}

ddp_status ddp_work_synchronize(ddp_work work) {
  return guard([&] { group_of(work.group).synchronize(work.sequence); });
}

void ddp_work_drop(ddp_work work) {
  try {
    group_of(work.group).drop(work.sequence);
  } catch (const std::exception&) {
    // The text is not kept for ddp_error_last(), whose memory ends before static variables of the program.
  }
}

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
