// SPDX-License-Identifier: BSD-3-Clause
// The worker contract: every environment variable, file and store key that ddprun writes and a worker (libddp, PyTorch,
// or any program) reads, and the other way round. launcher/ and runtime/ never include each other; they share this
// file.
#pragma once

#include <cstddef>
#include <string>

namespace ddp::rendezvous::contract {

// ---- Environment, written by ddprun for every worker (torchrun's names and meanings) ----
inline constexpr char kRank[] = "RANK";                        // global rank, 0..WORLD_SIZE-1
inline constexpr char kLocalRank[] = "LOCAL_RANK";             // index on this node (0 with --virtual-local-rank)
inline constexpr char kGroupRank[] = "GROUP_RANK";             // node rank of this agent
inline constexpr char kGroupWorldSize[] = "GROUP_WORLD_SIZE";  // number of agents
inline constexpr char kLocalWorldSize[] = "LOCAL_WORLD_SIZE";  // workers on this node
inline constexpr char kWorldSize[] = "WORLD_SIZE";             // workers of the job
inline constexpr char kRoleName[] = "ROLE_NAME";               // --role
inline constexpr char kRoleRank[] = "ROLE_RANK";               // rank within the role
inline constexpr char kRoleWorldSize[] = "ROLE_WORLD_SIZE";    // workers of the role
inline constexpr char kMasterAddr[] = "MASTER_ADDR";           // where the c10d store listens
inline constexpr char kMasterPort[] = "MASTER_PORT";
inline constexpr char kRestartCount[] = "TORCHELASTIC_RESTART_COUNT";  // restarts of the job, equal on every node
inline constexpr char kMaxRestarts[] = "TORCHELASTIC_MAX_RESTARTS";
inline constexpr char kRunId[] = "TORCHELASTIC_RUN_ID";
inline constexpr char kUseAgentStore[] = "TORCHELASTIC_USE_AGENT_STORE";  // "True": the launcher hosts it; else rank 0
inline constexpr char kErrorFile[] = "TORCHELASTIC_ERROR_FILE";           // where a worker may leave error.json
inline constexpr char kSignalsToHandle[] = "TORCHELASTIC_SIGNALS_TO_HANDLE";
inline constexpr char kNcclAsyncErrorHandling[] = "TORCH_NCCL_ASYNC_ERROR_HANDLING";  // inherited, else "1"
inline constexpr char kOmpNumThreads[] = "OMP_NUM_THREADS";  // inherited, else "1" with more than one worker
// The FIFO for timers of torch.distributed.elastic.timer, if there is one; else inherited.
inline constexpr char kTimerFile[] = "TORCHELASTIC_TIMER_FILE";
// The GPUs that a worker may use, by the vendor of those that the node has; AMD's follow CUDA_VISIBLE_DEVICES too.
inline constexpr char kCudaVisibleDevices[] = "CUDA_VISIBLE_DEVICES";
inline constexpr char kHipVisibleDevices[] = "HIP_VISIBLE_DEVICES";
inline constexpr char kZeAffinityMask[] = "ZE_AFFINITY_MASK";
inline constexpr char kAscendVisibleDevices[] = "ASCEND_RT_VISIBLE_DEVICES";

// ---- Environment, ddprun's own ----
// 16 hex digits that name this one process in its slot. Its descendants inherit them, and ddprun finds them by these.
inline constexpr char kIncarnation[] = "DDPRUN_INCARNATION";
// "/proc/PID/fd/FD:INDEX": where libddp shows that this worker is alive, see "Shared memory" below. Unset: nowhere.
inline constexpr char kLivenessWord[] = "DDPRUN_LIVENESS_WORD";
// Path of the agent's socket, see agent_client.hpp. Unset: there is none.
inline constexpr char kAgentSocket[] = "DDPRUN_AGENT_SOCKET";
// "1": the agent keeps memory of its workers (--keep-memory). "shadow": and each worker keeps a part of a copy
// (--keep-memory=shadow). Unset: it does not.
inline constexpr char kKeptMemory[] = "DDPRUN_KEPT_MEMORY";
inline constexpr char kKeptPlain[] = "1", kKeptShadow[] = "shadow";
// "1": the agent reads what libddp records of this worker's collectives (--trace). Unset: it does not.
inline constexpr char kTrace[] = "DDPRUN_TRACE";

// MASTER_PORT as ddprun set it. A worker that finds another one in MASTER_PORT has chosen it, so the launcher's store
// is not there, whatever TORCHELASTIC_USE_AGENT_STORE says. ddp::spawn sets it for the processes it starts.
inline constexpr char kStorePort[] = "DDPRUN_STORE_PORT";

// Inherited, after the folder of the code that a worker's Python runs first (--preload, --gloo=ddp).
inline constexpr char kPythonPath[] = "PYTHONPATH";
inline constexpr char kWarmParent[] =
    "DDPRUN_WARM_PARENT";  // set for the parent of --preload only, which knows itself by it

// ---- Environment, read by ddprun and kept from workers ----
inline constexpr char kSecretFile[] = "DDPRUN_SECRET_FILE";  // nodes prove to each other that they know its content
// "PID NAME": the process that started ddprun and waits for it, and what it calls the program; NAME may be empty. Set
// by the Python package. When PID dies, ddprun gets SIGTERM.
inline constexpr char kCaller[] = "DDPRUN_CALLER";

// ---- Environment, read by ddprun ----
// "1": rank 0 hosts the store itself, at a port of its own, where torchrun's would be shared.
inline constexpr char kDisableSharedStore[] = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE";
// "1": the agent makes a FIFO, at TORCHELASTIC_TIMER_FILE if that is set, and ends workers whose timers expire.
inline constexpr char kEnableFileTimer[] = "TORCHELASTIC_ENABLE_FILE_TIMER";
// AMD's GPUs for this process and its children; HIP_VISIBLE_DEVICES counts among these.
inline constexpr char kRocrVisibleDevices[] = "ROCR_VISIBLE_DEVICES";
// "off": no control group for the job. "freeze": a control group, but without cgroup.kill, as before Linux 5.14.
// Anything else: a control group if ddprun may make one.
inline constexpr char kCgroup[] = "DDPRUN_CGROUP";

// ---- Environment, read by libddp only ----
inline constexpr char kBackendPath[] = "DDP_BACKEND_PATH";    // folder searched first for libddp_gloo.so
inline constexpr char kNcclLibrary[] = "DDP_NCCL_LIBRARY";    // NCCL's library file, instead of libnccl.so.2
inline constexpr char kCudaLibrary[] = "DDP_CUDA_LIBRARY";    // the CUDA driver's library file, instead of libcuda.so.1
inline constexpr char kNcclRegister[] = "DDP_NCCL_REGISTER";  // "1": gradient buckets are in memory that NCCL knows
inline constexpr char kSocketIfname[] = "DDP_SOCKET_IFNAME";  // interface for CPU collectives
inline constexpr char kGlooSocketIfname[] = "GLOO_SOCKET_IFNAME";  // PyTorch's name for it; DDP_… wins
inline constexpr char kRingBytes[] = "DDP_RING_BYTES";             // bytes of shared memory in which a rank moves data

inline constexpr char kFailureHandlers[] = "DDP_FAILURE_HANDLERS";  // "0": crashes leave no error file
inline constexpr char kDebug[] = "DDP_DEBUG";  // "off", "info", or "detail": compares the ranks' calls first

inline constexpr char kFlightRecorderSize[] = "DDP_FLIGHT_RECORDER_SIZE";  // operations kept for each group; "0": none

// ---- Files ----
// Returns where libddp writes each group's last operations when something fails: next to the error file, under a name
// that differs by rank, so that the files of all ranks can be put into one folder.
inline std::string flight_recorder_file(const std::string& error_file, int rank) {
  const auto folder = error_file.rfind('/') + 1;  // 0 if there is none
  return error_file.substr(0, folder) + "flight_recorder_rank" + std::to_string(rank) + ".json";
}

// ---- Shared memory ----
// kLivenessWord names an array of 32-bit words that belongs to the agent. A thread of the worker holds the word at
// kFirstLivenessWord + INDEX as a robust futex is held, by its thread id and FUTEX_WAITERS, so the kernel sets
// FUTEX_OWNER_DIED in it when the process ends. libddp announces that it holds the word by writing INDEX, an int, into
// the pipe /proc/PID/fd/N, where N is the word at kLivenessWakeUpPipe.
inline constexpr char kLivenessWordsName[] = "ddprun_liveness_words";  // the memfd's name
inline constexpr std::size_t kLivenessWakeUpPipe = 0, kFirstLivenessWord = 1;

// ---- Store keys ("/" + name goes over the wire, as for every c10d client) ----
// Written by ddprun when a worker of this round failed: text such as "rank 5 on node b was killed by SIGKILL". libddp
// quotes it when a collective fails, so that the error names the worker that failed first.
inline constexpr char kFailureKey[] = "ddprun/failure";
// Written by ddprun just before kFailureKey: the ranks that died, in order, separated by commas; all ranks of a node
// that is lost. libddp fails the groups that contain one of them.
inline constexpr char kFailedRanksKey[] = "ddprun/failed_ranks";
// Prefix of every key that libddp writes: "ddp/<restart count>/<group name>/...".
inline constexpr char kLibraryPrefix[] = "ddp/";

}  // namespace ddp::rendezvous::contract
