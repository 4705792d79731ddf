// SPDX-License-Identifier: BSD-3-Clause
// The only place that includes Boost.Asio: what ddprun uses of it, compiled once in asio.cpp (linking ddprun::store
// defines BOOST_ASIO_SEPARATE_COMPILATION). Include it from .cpp files where possible: it costs 1 s a file.
// Asio opens sockets without CLOEXEC, which leaks them into workers that another thread is just forking. Create and
// accept sockets with SOCK_CLOEXEC yourself (net/listen.hpp) and hand them to Asio with assign().
#pragma once

#include <utility>  // first: Boost 1.74's awaitable.hpp uses std::exchange without it

#include <boost/asio/buffer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>

namespace ddp::rendezvous {

namespace asio = boost::asio;

}  // namespace ddp::rendezvous
