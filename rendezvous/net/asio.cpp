// SPDX-License-Identifier: BSD-3-Clause
// Asio's own code, compiled here and nowhere else.
#include <utility>

#include <boost/asio/impl/src.hpp>
