/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * libddp's C interface (C99): all headers of ddp/c/ but training.h, which is the training kit's. C++ programs include
 * ddp/ddp.hpp, thin headers over this one.
 *
 * Errors: every function that can fail returns a ddp_status. After anything but DDP_OK, ddp_error_last() has one line
 * for this thread that says what was tried, on what, why it failed and which rank caused it.
 *
 * Threads: a session, its groups and reducers may be used from any thread, by one thread at a time for each group. All
 * ranks of a group must call the same operations in the same order.
 *
 * Names: the object comes first (ddp_group_new, ddp_store_get). Functions that have a counterpart in PyTorch, such as
 * the collectives, keep its name and do the same; their descriptions say what differs.
 *
 * Options: in a struct of options, 0 and NULL mean the default, so `ddp_group_options options = {0};` has all defaults.
 * Therefore a flag whose default is on is negated, such as no_warm_start. Each of these structs begins with its size,
 * so that later versions may add fields: DDP_..._INIT sets it, and 0 means the layout of version 0.1.0. A struct that
 * is larger than this libddp knows is accepted if the rest is all zeros; otherwise it is DDP_INVALID_ARGUMENT.
 *
 * Units: counts are in elements unless a name says bytes; times are in milliseconds; text is UTF-8 that ends with NUL.
 *
 * Pointers: the description says where NULL is allowed. Elsewhere NULL makes a call fail with DDP_INVALID_ARGUMENT;
 * functions that return no status need a valid pointer. Where a description says that *name "becomes" something, name
 * points to memory of the caller.
 */
#ifndef DDP_DDP_H
#define DDP_DDP_H

#include "ddp/c/base.h"
#include "ddp/c/checkpoint.h"
#include "ddp/c/collectives.h"
#include "ddp/c/cuda.h"
#include "ddp/c/failure.h"
#include "ddp/c/group.h"
#include "ddp/c/keep.h"
#include "ddp/c/reducer.h"
#include "ddp/c/session.h"
#include "ddp/c/spawn.h"
#include "ddp/c/store.h"
#include "ddp/c/survival.h"

#endif
