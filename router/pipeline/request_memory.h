// Counts what requests hold: each tenant's account, and the prompts that wait for tokenization.
//
// Owner: the pipeline, on the router's executor; Of may be called on any thread.
//  1. What a request holds, including its choices, is charged before any of it is built, and
//     released when the request is gone.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "common/memory_account.h"
#include "router/admission/admission.h"
#include "router/core/tenant.h"
#include "router/pipeline/request.h"
#include "router/pipeline/tenant_memory.h"

namespace quire {

class RequestMemory {
 public:
  struct Limits {
    size_t tenant_bytes = 0;
    size_t waiting_prompt_bytes = 0;
  };
  // `process` may be shared with others; the admission outlives this object.
  RequestMemory(std::shared_ptr<MemoryAccount> process, const Limits& limits, Admission& admission);

  std::shared_ptr<MemoryAccount> Of(const TenantProfile* tenant) {
    return tenants_.Of(tenant == nullptr ? "" : tenant->name);
  }

  // Counts what the request holds, and the prompt's bytes until it is tokenised, or until its
  // client has left and its work has ended. Returns a refusal, and holds nothing, where that would
  // be too much.
  std::optional<Refusal> Hold(LiveRequest& request);
  // The prompt is tokenised: counts its tokens, and the part of the prompt that the answer
  // contains.
  std::optional<Refusal> HoldTokens(LiveRequest& request);

 private:
  Admission& admission_;
  TenantMemory tenants_;
  const std::shared_ptr<MemoryAccount> waiting_;  // of all prompts that are not tokenised yet
};

}  // namespace quire
