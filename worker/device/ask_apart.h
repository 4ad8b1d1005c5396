// Asks the driver in a process of its own, which ends with the answer: the worker itself keeps no
// driver, no context, and no trace of one that crashes or hangs.
#pragma once

#include <string>

#include "kernels/cuda/driver/driver_report.h"
#include "worker/device/device_request.h"

namespace quire {

struct AskOptions {
  std::string library = "libcuda.so.1";
  int ranks = 1;                      // devices that are opened, of those that are wanted
  int64_t limit_micros = 60'000'000;  // then it is given up
  int64_t end_micros = 1'000'000;     // that its end is waited for
};

// Blocking, before other threads run, except one that waits for a process that was asked before and
// is slow to end; a report with an error in place of an answer.
kernels::cuda::DriverReport AskDriverApart(const DeviceRequest& request, const AskOptions& options);

}  // namespace quire
