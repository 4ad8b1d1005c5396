// What sends a batch's lines: the router's own HTTP routes in production, a script in tests.
//
// Event loop only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "common/memory_account.h"
#include "common/runtime/runtime.h"
#include "router/batches/objects.h"
#include "router/core/tenant.h"

namespace quire::batches {

struct LineRequest {
  std::string path;
  std::string body;
  std::string request_id;
  std::shared_ptr<const TenantProfile> tenant;
  std::shared_ptr<const MemoryHold> hold;  // counts the body's bytes
};

struct LineAnswer {
  int status = 0;
  std::string body;
  Micros retry_after = 0;  // 0: the answer does not say
};

// A line under way; destroying it cancels its work.
class SentLine {
 public:
  virtual ~SentLine() = default;
};

class Sender {
 public:
  virtual ~Sender() = default;
  // Requests would be served now.
  virtual bool Ready() const = 0;
  // What the creator may do now; nullopt: the tenant has no key any more.
  virtual std::optional<std::shared_ptr<const TenantProfile>> TenantNow(const Creator& creator) = 0;
  virtual std::shared_ptr<MemoryAccount> MemoryOf(const TenantProfile* tenant) = 0;
  // `done` runs once, later and never from inside; not after the line was destroyed.
  virtual std::unique_ptr<SentLine> Send(LineRequest request,
                                         std::function<void(LineAnswer)> done) = 0;
};

}  // namespace quire::batches
