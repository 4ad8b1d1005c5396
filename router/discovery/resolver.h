// Names to addresses, as the system resolves them.
//
// Called on the router's executor, which also runs the callbacks. Destroying a resolver abandons
// its lookups: one that hangs delays nothing.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/runtime/runtime.h"
#include "common/status.h"

namespace quire {

class Resolver {
 public:
  // Numeric addresses, each once, in no order.
  using Done = std::function<void(absl::StatusOr<std::vector<std::string>> addresses)>;

  virtual ~Resolver() = default;
  // UNAVAILABLE when the name is unknown or no server answers; RESOURCE_EXHAUSTED when too many
  // names, or too many callers for this one, wait already. `done` never runs inside the call.
  virtual void Resolve(const std::string& host, Done done) = 0;
};

using Addresses = absl::StatusOr<std::vector<std::string>>;

// The result of getaddrinfo; blocks until it returns.
Addresses LookUpBySystem(const std::string& host);

// Runs a thread for each name, at most kMaxLookups at a time. A caller whose name is already being
// looked up waits for that answer: a lookup that hangs takes one place, however many callers it
// has.
inline constexpr size_t kMaxLookups = 16;
inline constexpr size_t kMaxWaitersPerName = 64;
std::unique_ptr<Resolver> MakeThreadResolver(Executor& executor,
                                             std::function<Addresses(const std::string&)> look_up);

}  // namespace quire
