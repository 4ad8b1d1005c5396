// Reads along what one router says to its workers and hears from them, and holds it to what its
// clients get: a journal of its own beside the router's.
//
// One per life of a router, on the world's thread.
//  1. A client gets an output only after one came from the attempt that was sent last and not given
//     up, on the stream that it was sent on, at the next index.
//  2. Each attempt has a higher number, and begins with just what came before.
//  3. A worker may never be further ahead of the client than the window.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/fleet_sim/stoppable_stream.h"

namespace quire::sim {

class WireWatch {
 public:
  WireWatch(uint32_t window, std::function<void(const std::string&)> violate)
      : window_(window), violate_(std::move(violate)) {}

  StreamTap NewStream();
  void Asked(uint64_t request, bool streaming);
  // A client has so many outputs of a choice, and has taken so many.
  void Told(uint64_t request, uint32_t choice, uint64_t count);
  void Took(uint64_t request, uint32_t choice, uint64_t count);

 private:
  struct Choice {
    uint64_t accepted = 0;
    uint64_t taken = 0;
  };
  struct Request {
    bool streaming = false;
    uint32_t attempt = 0;  // sent last; 0: none
    uint64_t stream = 0;
    bool given_up = false;
    std::vector<Choice> choices;
  };
  void Wrote(uint64_t stream, std::string_view bytes);
  void Reads(uint64_t stream, std::string_view bytes);
  // Outputs below `up_to` may come.
  void Allowed(uint64_t number, const Request& request, size_t choice, uint64_t up_to);
  void Violate(uint64_t number, const std::string& what) {
    violate_("request " + std::to_string(number) + " " + what);
  }

  const uint32_t window_;
  const std::function<void(const std::string&)> violate_;
  uint64_t last_stream_ = 0;
  std::map<uint64_t, Request> requests_;
};

}  // namespace quire::sim
