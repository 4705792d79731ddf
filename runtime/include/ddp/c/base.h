/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Basics of all C headers of libddp: statuses, element types, buffers, bytes, the last error.
 */
#ifndef DDP_C_BASE_H
#define DDP_C_BASE_H

#include <stddef.h>
#include <stdint.h>

/** Marks a function that libddp.so exports. All functions of these headers are exported, and nothing else is. */
#if defined(__GNUC__)
#define DDP_API __attribute__((visibility("default")))
#else
#define DDP_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** Result of a call. */
typedef enum ddp_status {
  DDP_OK = 0,               /**< the call did what it says */
  DDP_INVALID_ARGUMENT = 1, /**< the caller's input is wrong: a size, a name, a missing variable, calls out of order */
  DDP_TIMEOUT = 2,          /**< a deadline passed */
  DDP_PEER_LOST = 3,        /**< another rank died or left */
  DDP_ABORTED = 4,          /**< the group was aborted by an earlier error */
  DDP_MISMATCH = 5,         /**< ranks disagree, for example about a parameter's shape */
  DDP_SYSTEM = 6,           /**< the operating system or a backend failed */
  DDP_CORRUPT = 7           /**< a file does not have the content it should have */
} ddp_status;

/** Type of a buffer's elements. 16-bit floating point is reduced in 32 bits and rounded once, to the nearest, after all
 * contributions are in. */
typedef enum ddp_dtype {
  DDP_FLOAT32 = 0,  /**< IEEE single */
  DDP_FLOAT64 = 1,  /**< IEEE double */
  DDP_INT32 = 2,    /**< 4 bytes */
  DDP_INT64 = 3,    /**< 8 bytes */
  DDP_UINT8 = 4,    /**< 1 byte */
  DDP_INT8 = 5,     /**< 1 byte */
  DDP_INT16 = 6,    /**< 2 bytes */
  DDP_UINT16 = 7,   /**< 2 bytes */
  DDP_UINT32 = 8,   /**< 4 bytes */
  DDP_UINT64 = 9,   /**< 8 bytes */
  DDP_FLOAT16 = 10, /**< IEEE half */
  DDP_BFLOAT16 = 11 /**< the upper half of a float32 */
} ddp_dtype;

/** Kind of device that memory is on. */
typedef enum ddp_device_kind {
  DDP_CPU = 0, /**< the host */
  DDP_CUDA = 1 /**< an NVIDIA GPU */
} ddp_device_kind;

/** One device. All zeros mean the CPU. */
typedef struct ddp_device {
  int32_t kind;  /**< ddp_device_kind; DDP_CUDA is for collectives and messages, in a group with such a backend */
  int32_t index; /**< 0 for the CPU */
} ddp_device;

/** A pointer to `count` elements of one type. Never owns its memory. */
typedef struct ddp_buffer {
  void* data;        /**< the first element; may be NULL if count is 0 */
  size_t count;      /**< in elements, not bytes */
  int32_t dtype;     /**< ddp_dtype */
  ddp_device device; /**< where data is */
} ddp_buffer;

/** A pointer to `size` arbitrary bytes. Never owns its memory. */
typedef struct ddp_bytes {
  const void* data; /**< may be NULL if size is 0 */
  size_t size;      /**< in bytes */
} ddp_bytes;

/** Receives what a call has read. The call runs deliver(context, value) once for each value before it returns; the
 * bytes are gone afterwards. A call that fails delivers nothing. */
typedef struct ddp_sink {
  void* context;                                   /**< passed to deliver unchanged */
  void (*deliver)(void* context, ddp_bytes value); /**< must not be NULL, and must not throw */
} ddp_sink;

/** Returns this thread's message for its last call that failed: one line of UTF-8, empty if none has failed. Never
 * NULL; valid until the next call of this thread fails. Failures of other threads do not change it. */
DDP_API const char* ddp_error_last(void);
/** Sets this thread's message for ddp_error_last(), and returns the status: for libraries above this one, whose
 * functions fail as those of libddp do. */
DDP_API ddp_status ddp_error_set(ddp_status status, const char* message);
/** Returns this library's version, such as "0.1.0". Never NULL; always valid. */
DDP_API const char* ddp_version(void);
/** Returns the size in bytes of one element of a ddp_dtype; 0 for an unknown type. */
DDP_API size_t ddp_dtype_size(int32_t dtype);
/** Copies `from` into `to`, in CPU memory, rounded to the nearest, ties to even. Both are of floating point and of
 * equal count; one of them is DDP_FLOAT32, or both are of one type. They must not overlap. */
DDP_API ddp_status ddp_buffer_convert(ddp_buffer from, ddp_buffer to);

#ifdef __cplusplus
}
#endif
#endif
