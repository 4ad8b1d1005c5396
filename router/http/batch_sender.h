// Sends the lines of batches through the router's own routes, as if each were a request over HTTP
// under a key of the batch's creator.
//
// Owner: main; event loop only.
#pragma once

#include "router/batches/sender.h"
#include "router/http/services.h"

namespace quire {

class BatchSender final : public batches::Sender {
 public:
  // `keys`: those of clients, whether or not any is required.
  BatchSender(HttpServices& services, KeyRing& keys) : services_(services), keys_(keys) {}

  bool Ready() const override;
  std::optional<std::shared_ptr<const TenantProfile>> TenantNow(
      const batches::Creator& creator) override;
  std::shared_ptr<MemoryAccount> MemoryOf(const TenantProfile* tenant) override;
  std::unique_ptr<batches::SentLine> Send(batches::LineRequest request,
                                          std::function<void(batches::LineAnswer)> done) override;

 private:
  HttpServices& services_;
  KeyRing& keys_;
};

}  // namespace quire
