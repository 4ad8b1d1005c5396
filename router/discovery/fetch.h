// One HTTP GET whose answer may be long: the seam between a watch and the network.
//
// Owner: the caller of Get, on the router's executor; all calls and callbacks happen there. The
// receiver outlives the fetch; destroying the fetch ends it, after which nothing is called.
//  1. Callbacks come as OnHead, OnBody*, OnEnd, or as OnEnd alone; none comes inside Get, and none
//     after OnEnd. The fetch may be destroyed inside any of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "common/runtime/runtime.h"
#include "common/status.h"

namespace quire {

class FetchReceiver {
 public:
  virtual ~FetchReceiver() = default;
  virtual void OnHead(int status, uint32_t retry_after_s) = 0;
  virtual void OnBody(std::string_view bytes) = 0;
  // OK when the answer was complete.
  virtual void OnEnd(const absl::Status& status) = 0;
};

class Fetch {
 public:
  virtual ~Fetch() = default;
};

class Fetcher {
 public:
  virtual ~Fetcher() = default;
  // `path` begins with "/" and is already encoded. `timeout` bounds the whole fetch.
  virtual std::unique_ptr<Fetch> Get(const std::string& path, Micros timeout,
                                     FetchReceiver& receiver) = 0;
};

}  // namespace quire
