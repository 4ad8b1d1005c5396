// Queries the driver in a separate process, which ends with the answer: the worker itself keeps no
// driver, no context, and no effects of one that crashes or hangs.
#pragma once

#include <string>

#include "kernels/cuda/driver/driver_report.h"
#include "worker/device/device_request.h"

namespace quire {

struct AskOptions {
  std::string library = "libcuda.so.1";
  int ranks = 1;                      // devices that are opened, of the requested ones
  int64_t limit_micros = 60'000'000;  // then the query is given up
  int64_t end_micros = 1'000'000;     // how long its end is waited for
};

// Blocking, before other threads run, except one that waits for a process that was started earlier
// and is slow to end. Returns a report, with an error in place of an answer.
kernels::cuda::DriverReport AskDriverApart(const DeviceRequest& request, const AskOptions& options);

}  // namespace quire
