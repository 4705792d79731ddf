// SPDX-License-Identifier: BSD-3-Clause
// The state of a job as metrics, which docs/metrics.md lists.
#pragma once

#include <string>

#include "launcher/local/job_view.hpp"

namespace ddp::launcher {

// OpenMetrics 1.0, and the text format of Prometheus before it, in which counters are declared with their suffix and
// units are not.
enum class MetricsFormat { OpenMetrics, Prometheus };

std::string metrics_text(const JobView& state, MetricsFormat format);
const char* content_type(MetricsFormat format);

}  // namespace ddp::launcher
