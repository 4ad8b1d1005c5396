// The calls of a load, over gRPC or HTTP.
//
// Owner: main. Next may be called on any thread; a call that has ended begins the next one in a
// closed loop.
#pragma once

#include <memory>

#include "bench/client/tally.h"

namespace quire::bench {

class Load {
 public:
  virtual ~Load() = default;
  // Begins a call, if one is left.
  virtual void Next() = 0;
};

// `options` and `tally` outlive the load.
std::unique_ptr<Load> MakeGrpcLoad(const LoadOptions& options, Tally& tally);
// The same calls without gRPC's library.
std::unique_ptr<Load> MakeHttp2Load(const LoadOptions& options, Tally& tally);
// Connections are kept and used again; one is opened where none is free.
std::unique_ptr<Load> MakeHttpLoad(const LoadOptions& options, Tally& tally);

}  // namespace quire::bench
