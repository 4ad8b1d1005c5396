// Tokens of a text and text of tokens, for requests that need nothing else.
//
// Owner: the pipeline, on the router's executor; the work is done in the background.
//  1. At most max_tokenize_requests of a tenant are under way, each with a place in admission: it
//     counts for the tenant's quotas, and its tokens count as used.
//  2. `done` is called once, never inside the call that starts the work, and not after this object
//     is gone.
//  3. What is held is charged to the tenant before the work begins, and the answer before it is
//  made.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/metrics/metrics.h"
#include "common/runtime/runtime.h"
#include "router/admission/admission.h"
#include "router/core/limits.h"
#include "router/core/result.h"
#include "router/pipeline/pipeline.h"
#include "router/pipeline/request.h"

namespace quire {

class TokenizeService {
 public:
  // All of them outlive this object.
  struct World {
    Executor& executor;
    Background& background;
    Admission& admission;
    Metrics& metrics;
  };
  TokenizeService(const RouterLimits& limits, const World& world);

  // Its id in admission, the account of its memory, and the request itself.
  struct Place {
    uint64_t id = 0;
    std::shared_ptr<MemoryAccount> account;
    Result<ServedModel> model;
  };
  void Tokenize(Place place, TokenizeAsk ask, TokenizeDone done);
  void Detokenize(Place place, TextAsk by, std::vector<TokenId> ids, DetokenizeDone done);

  size_t live() const { return state_->live; }

 private:
  struct State {  // watched by work in the background
    size_t live = 0;
    std::map<std::string, size_t> by_tenant;  // none is 0
  };
  // A request that is under way.
  template <class Value>
  struct Job;
  template <class Value>
  void Run(std::shared_ptr<Job<Value>> job);
  std::optional<ApiError> Enter(const Place& place, const TextAsk& by, size_t bytes,
                                MemoryHold& hold);
  void Leave(uint64_t id, const std::string& tenant, uint64_t tokens);

  const RouterLimits limits_;
  const World world_;
  Counter& answers_refused_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace quire
