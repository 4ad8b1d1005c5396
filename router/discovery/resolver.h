// Names to addresses, as the system resolves them.
//
// Called on the router's executor, where the answer comes too. Destroying a resolver forgets what
// is asked: a lookup that hangs holds nobody up.
#pragma once

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
  // UNAVAILABLE when the name is unknown or nobody answers; RESOURCE_EXHAUSTED when too many
  // lookups hang already. `done` never runs inside the call.
  virtual void Resolve(const std::string& host, Done done) = 0;
};

using Addresses = absl::StatusOr<std::vector<std::string>>;

// What getaddrinfo says; waits for it.
Addresses LookUpBySystem(const std::string& host);

// A thread for each lookup, at most kMaxLookups at a time.
inline constexpr int kMaxLookups = 16;
std::unique_ptr<Resolver> MakeThreadResolver(Executor& executor,
                                             std::function<Addresses(const std::string&)> look_up);

}  // namespace quire
