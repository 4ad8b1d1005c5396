// What tests tell the library that stands in for NCCL, and what it tells them.
//
// The library is opened as the real one is; two functions are beyond NCCL's, found by name. They
// reach the communicators of their own process. Another process is reached by a file, whose name is
// in its environment as FAKE_NCCL_ORDER: "1 hang" is for rank 1 and what it comes to next, and is
// taken away when it is obeyed. Words are hang, error (found behind the op) and die (by SIGKILL).
#pragma once

namespace quire::kernels::cuda::test {

// Ops count from 0 within a communicator, from these orders on; −1: never.
struct FakeNcclOrders {
  int rank = -1;            // that they are for; −1: all
  int polls_of_init = 0;    // times that a start is still under way
  int polls_of_op = 0;      // times that a call is still under way
  int init_error = 0;       // what the start ends with
  int id_error = 0;         // what ncclGetUniqueId returns
  int call_error_at = -1;   // the op whose call fails
  int async_error_at = -1;  // the op behind which an error is found
  int hang_at = -1;         // the op that this rank never comes to
};

struct FakeNcclCounts {
  int started = 0;
  int aborted = 0;
  int destroyed = 0;
  int finalized = 0;
  int blocking = 0;  // communicators that were not asked to be non-blocking
  int ops = 0;       // that ended, of every rank
  int stuck = 0;     // ends that NCCL would not have come back from: a graph still held an op
};

using FakeNcclSet = void (*)(const FakeNcclOrders* orders);  // "fake_nccl_set": also clears counts
using FakeNcclRead = void (*)(FakeNcclCounts* counts);       // "fake_nccl_read"

}  // namespace quire::kernels::cuda::test
