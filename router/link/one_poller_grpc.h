// Leaves one of gRPC's threads to poll its sockets and to call back, instead of half as many as
// there are cores, at least two: with several, each event wakes a second one to poll on while the
// first works, which costs a short request more than the work itself. What is called back only
// posts to the event loop, which is one thread too.
//
// Owner: main, on its thread. gRPC 1.51 has no setting for it, so that for each of the other
// threads a call is made that fails at once and whose callback sleeps.
//  1. Either one thread is left and answers, or none is held: that is tried before the constructor
//     returns.
//  2. Destroyed after all that waits for a callback of gRPC's.
#pragma once

#include <cstddef>
#include <memory>

#include "common/runtime/runtime.h"

namespace quire {

// How many of its threads gRPC 1.51 has call back.
size_t GrpcCallbackThreads();

class OnePollerGrpc {
 public:
  // While a server or channel that is called back lives: its threads are there then. `patience`:
  // how long they may take to answer.
  explicit OnePollerGrpc(size_t threads = GrpcCallbackThreads(),
                         Micros patience = 2 * kMicrosPerSecond);
  ~OnePollerGrpc();  // wakes them, and waits until they are out of here

  // False: gRPC has not as many threads as that, and all of them are left alone.
  bool holds() const;

 private:
  struct Calls;
  std::unique_ptr<Calls> calls_;
};

}  // namespace quire
