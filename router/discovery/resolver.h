// Names to addresses, as the system resolves them.
//
// Called on the router's executor, where the answer comes too. Destroying a resolver forgets what
// is asked: a lookup that hangs holds nobody up.
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
  // UNAVAILABLE when the name is unknown or nobody answers; RESOURCE_EXHAUSTED when too many
  // names, or too many who ask for this one, wait already. `done` never runs inside the call.
  virtual void Resolve(const std::string& host, Done done) = 0;
};

using Addresses = absl::StatusOr<std::vector<std::string>>;

// What getaddrinfo says; waits for it.
Addresses LookUpBySystem(const std::string& host);

// A thread for each name, at most kMaxLookups at a time. Who asks for a name that is being looked
// up waits for that answer: one that hangs takes one place, however often it is asked for.
inline constexpr size_t kMaxLookups = 16;
inline constexpr size_t kMaxWaitersPerName = 64;
std::unique_ptr<Resolver> MakeThreadResolver(Executor& executor,
                                             std::function<Addresses(const std::string&)> look_up);

}  // namespace quire
