/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Checkpoints: files in the safetensors format, and folders in which all ranks save a training's steps.
 */
#ifndef DDP_C_CHECKPOINT_H
#define DDP_C_CHECKPOINT_H

#include "ddp/c/base.h"
#include "ddp/c/group.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @defgroup checkpoint Checkpoints: files in the safetensors format, and folders of them
 *
 * A checkpoint is one file, written by one rank, or a folder in which each step has a folder of its own, written by any
 * number of ranks. Whatever process is killed at whatever moment, checkpoints saved before can be read. Tensors are in
 * the memory of the CPU, or of one GPU: what is read from there is what the work on this thread's current stream
 * (ddp_stream_set_current()) has written. The files are the same.
 *
 * @{
 */

/** A checkpoint opened for reading. Made by ddp_checkpoint_open() and the functions of a folder. */
typedef struct ddp_checkpoint ddp_checkpoint;
/** All checkpoints of a training. Made by ddp_checkpoint_folder_create(). */
typedef struct ddp_checkpoint_folder ddp_checkpoint_folder;

/** A named tensor to be saved. Never owns its memory. */
typedef struct ddp_tensor {
  const char* name;     /**< unique in its file */
  const void* data;     /**< as many elements as the shape says, row-major */
  int32_t dtype;        /**< ddp_dtype */
  const int64_t* shape; /**< rank entries; an empty shape is a scalar */
  size_t rank;          /**< number of dimensions */
  ddp_device device;    /**< where data is; zeros, which are the CPU, if it is left out */
} ddp_tensor;

/** A key and a value in a checkpoint's metadata: text that is saved together with the tensors. */
typedef struct ddp_metadata_entry {
  const char* key;   /**< unique in its file */
  const char* value; /**< UTF-8 */
} ddp_metadata_entry;

/** Saves tensors in one file. It writes a temporary file next to path, fsyncs and renames it, so a crash leaves the
 * previous file or the new one, never half of one. Tensors are stored by the size of their elements, the largest first,
 * so that all are aligned, then by name. Call it on one rank, and let the others wait, for example in a barrier. Any
 * thread. metadata may be NULL if metadata_count is 0.
 * DDP_INVALID_ARGUMENT if a name is empty or given twice, DDP_SYSTEM if the file cannot be written; the previous file
 * is then unchanged. */
DDP_API ddp_status ddp_checkpoint_save(const char* path, const ddp_tensor* tensors, size_t tensor_count,
                                       const ddp_metadata_entry* metadata, size_t metadata_count);
/** Opens a safetensors file, written by any program, or the folder of one step (such as step-000000500 in a
 * ddp_checkpoint_folder). Any thread may use the result. DDP_CORRUPT if its header or record is truncated or malformed,
 * DDP_SYSTEM if it cannot be read. */
DDP_API ddp_status ddp_checkpoint_open(const char* path, ddp_checkpoint** out);
/** Closes a checkpoint. NULL is allowed. */
DDP_API void ddp_checkpoint_close(ddp_checkpoint* checkpoint);
/** Returns the step of a checkpoint; -1 for a plain file. */
DDP_API int64_t ddp_checkpoint_step(const ddp_checkpoint* checkpoint);
/** Returns the value of a metadata key; NULL if there is no such key. Valid until the checkpoint is closed. */
DDP_API const char* ddp_checkpoint_metadata(const ddp_checkpoint* checkpoint, const char* key);
/** Returns the number of tensors. */
DDP_API size_t ddp_checkpoint_tensor_count(const ddp_checkpoint* checkpoint);
/** Describes tensor i, in the order of names. In *out, data is NULL, and dtype is -1 for a type that libddp does not
 * have; the file's BOOL is DDP_UINT8, bytes of 0 and 1. Valid until the checkpoint is closed. */
DDP_API ddp_status ddp_checkpoint_tensor(const ddp_checkpoint* checkpoint, size_t i, ddp_tensor* out);
/** Copies a tensor into a buffer. shape has rank entries, whose product is buffer.count; it may be NULL if rank is 0.
 * DDP_MISMATCH if the tensor's type or shape differs from what is asked for, DDP_CORRUPT if there is no such tensor or
 * its bytes are not what was written: the text names file, tensor and bytes. */
DDP_API ddp_status ddp_checkpoint_read(const ddp_checkpoint* checkpoint, const char* name, ddp_buffer buffer,
                                       const int64_t* shape, size_t rank);
/** Copies a slice of a tensor into a buffer: shape[d] elements starting at offset[d] in each dimension, however the
 * tensor was sliced when it was saved. Reads no more than it needs; fails as ddp_checkpoint_read() does. */
DDP_API ddp_status ddp_checkpoint_read_slice(const ddp_checkpoint* checkpoint, const char* name, ddp_buffer buffer,
                                             const int64_t* offset, const int64_t* shape, size_t rank);
/** Reads everything and compares it with its checksums. DDP_CORRUPT names the first file and tensor that is not as it
 * was written. A plain file has no checksums: DDP_OK. */
DDP_API ddp_status ddp_checkpoint_verify(const ddp_checkpoint* checkpoint);

/** The part of a tensor that a rank saves: all of it, or a slice. Never owns its memory. */
typedef struct ddp_tensor_slice {
  ddp_tensor part;            /**< the elements that are here: the slice's shape, the whole tensor's name */
  const int64_t* offset;      /**< part.rank entries: where it begins in each dimension; NULL: it is the whole tensor */
  const int64_t* whole_shape; /**< part.rank entries; NULL if and only if offset is */
} ddp_tensor_slice;

/** How a checkpoint folder is used. All zeros mean: keep every step. */
typedef struct ddp_checkpoint_folder_options {
  size_t size;        /**< sizeof(ddp_checkpoint_folder_options); 0 means its layout in 0.1.0 */
  int64_t keep_last;  /**< number of steps to keep after each save, of those up to it; 0: all */
  int64_t keep_every; /**< multiples of this number are kept as well; 0: none */
  int64_t timeout_ms; /**< for a save in flight, and for the other ranks at each point where all meet; 0: the group's,
                         or 30 minutes */
  int32_t read_only;  /**< 1: nothing is created or saved here */
  int32_t no_follow;  /**< 1: ddp_checkpoint_folder_save_async() does not call ddp_checkpoint_folder_follow() */
} ddp_checkpoint_folder_options;
/** Initial value of a ddp_checkpoint_folder_options: its size, and the default of each field. */
#define DDP_CHECKPOINT_FOLDER_OPTIONS_INIT \
  { sizeof(ddp_checkpoint_folder_options), 0, 0, 0, 0, 0 }

/** Opens a checkpoint folder, and creates it if necessary. A folder is for one training and must be on a file system
 * that all ranks share. It holds
 *
 *     step-000000500/model-00001-of-00002.safetensors    one file for each rank that had something to save
 *     step-000000500/model-00002-of-00002.safetensors
 *     step-000000500/model.safetensors.index.json        Hugging Face's index, if no tensor is sliced
 *     step-000000500/checkpoint.json                     where each slice of each tensor lies, with checksums
 *
 * and a step gets its name once all of it is on the disk.
 *
 * group has the ranks that save together; the call is collective over it and gives the folder a group of its own. NULL
 * means this process alone. options may be NULL. One thread at a time. If one rank fails, all fail with its error:
 * DDP_SYSTEM if the folder cannot be written to. */
DDP_API ddp_status ddp_checkpoint_folder_create(ddp_group* group, const char* path,
                                                const ddp_checkpoint_folder_options* options,
                                                ddp_checkpoint_folder** out);
/** Closes a checkpoint folder after waiting for a save in flight. Call it before the session ends. NULL is allowed. */
DDP_API void ddp_checkpoint_folder_destroy(ddp_checkpoint_folder* folder);
/** Saves a step. Collective. Each rank gives what it writes: everything on rank 0 and nothing elsewhere, or its own
 * tensors and slices. Together they make every tensor whole, with each element once. step is not negative and equal on
 * all ranks; a step that exists is replaced. Rank 0's metadata is saved.
 *
 * The step is on the disk when the call returns. If one rank fails (no space, no permission, a tensor that is not
 * whole), all fail with its error, what was saved before is unchanged, and a later save may succeed. If a rank is lost
 * or late, the others fail with DDP_PEER_LOST or DDP_TIMEOUT, and so does every later save: create the folder again. */
DDP_API ddp_status ddp_checkpoint_folder_save(ddp_checkpoint_folder* folder, int64_t step,
                                              const ddp_tensor_slice* slices, size_t count,
                                              const ddp_metadata_entry* metadata, size_t metadata_count);
/** Starts saving a step: copies the tensors and returns, and a thread of the folder writes the copy. *save is for
 * ddp_checkpoint_folder_wait(). One save runs at a time: the call waits for the one before, and returns its failure
 * instead of starting if no wait has returned it. The memory of the copy is kept until the folder is destroyed.
 *
 * Tensors on a GPU are copied to pinned memory by a stream of the folder's own, behind the work on the current stream,
 * and the host does not wait for that. The current stream waits for the copies, so that later work cannot change what
 * is being saved; with no_follow it does not, and ddp_checkpoint_folder_follow() is called before such work is
 * enqueued. Source: torch.distributed.checkpoint.async_save, which leaves waiting for the save before to its caller. */
DDP_API ddp_status ddp_checkpoint_folder_save_async(ddp_checkpoint_folder* folder, int64_t step,
                                                    const ddp_tensor_slice* slices, size_t count,
                                                    const ddp_metadata_entry* metadata, size_t metadata_count,
                                                    uint64_t* save);
/** Makes this thread's current stream wait until the last ddp_checkpoint_folder_save_async() has copied its tensors
 * from the GPU. The host does not wait. Does nothing if there were none. */
DDP_API ddp_status ddp_checkpoint_folder_follow(ddp_checkpoint_folder* folder);
/** Waits until a save has ended, and returns its failure if it failed. timeout_ms 0 means the folder's; a deadline that
 * passes is DDP_TIMEOUT, and the save goes on. */
DDP_API ddp_status ddp_checkpoint_folder_wait(ddp_checkpoint_folder* folder, uint64_t save, int64_t timeout_ms);
/** Returns 1 if a save has ended, 0 if not. Does not wait. */
DDP_API int32_t ddp_checkpoint_folder_has_ended(ddp_checkpoint_folder* folder, uint64_t save);
/** Lists the saved steps. *count becomes their number; the first `capacity` of them, in ascending order, are written to
 * steps, which may be NULL if capacity is 0. Not collective. */
DDP_API ddp_status ddp_checkpoint_folder_steps(ddp_checkpoint_folder* folder, int64_t* steps, size_t capacity,
                                               size_t* count);
/** Opens the checkpoint of a step. Not collective. */
DDP_API ddp_status ddp_checkpoint_folder_open_step(ddp_checkpoint_folder* folder, int64_t step, ddp_checkpoint** out);
/** Opens the newest checkpoint, the same on every rank; *out is NULL if there is none. Collective. Waits for a save in
 * flight. With verify = 1 the ranks first read all of it, each some of the files. If not every byte is as it was
 * written, one line that says what is wrong is delivered to skipped, and the next older checkpoint is tried;
 * DDP_CORRUPT if none is left. skipped.deliver may be NULL. */
DDP_API ddp_status ddp_checkpoint_folder_open_latest(ddp_checkpoint_folder* folder, int32_t verify, ddp_sink skipped,
                                                     ddp_checkpoint** out);

/** @} */

#ifdef __cplusplus
}
#endif
#endif
