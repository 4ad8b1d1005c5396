// What tests tell the library that stands in for NCCL, and what it tells them.
//
// The library is opened as the real one is; these two functions are beyond NCCL's, found by name.
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
};

using FakeNcclSet = void (*)(const FakeNcclOrders* orders);  // "fake_nccl_set": also clears counts
using FakeNcclRead = void (*)(FakeNcclCounts* counts);       // "fake_nccl_read"

}  // namespace quire::kernels::cuda::test
