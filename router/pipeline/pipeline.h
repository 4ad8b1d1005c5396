// The life of a request in the router: pool → template and tokens → admission → worker → stream →
// end.
//
// Owner: the router's event loop; every call and every callback happens on its executor. The edges
// (http, grpc) hold a sink per request.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/memory_account.h"
#include "common/runtime/runtime.h"
#include "common/wire/adapter_orders.h"
#include "router/core/api.h"
#include "router/core/model_text.h"
#include "router/core/result.h"
#include "router/core/worker_status.h"
#include "router/records/request_record.h"

namespace quire {

// The receiver of an answer. Calls come in the order OnStarted, (OnDelta | OnChoiceEnd)*, then
// exactly one of OnFinished and OnError; after that call, or after Pipeline::Cancel, the pipeline
// forgets the sink.
class ResponseSink {
 public:
  virtual ~ResponseSink() = default;
  // Before OnStarted, once a second: the request waits for this, in words on one line.
  virtual void OnWaiting(const std::string& /*what*/) {}
  virtual void OnStarted(const Started& started) = 0;  // the first output is available
  virtual void OnDelta(const Delta& delta) = 0;
  virtual void OnChoiceEnd(const ChoiceEnd& end) = 0;
  virtual void OnFinished(const Usage& usage) = 0;
  virtual void OnError(const ApiError& error) = 0;
};

using RequestId = uint64_t;  // 0 is none

// The receiver of the tokens of a text, or the text of tokens.
struct TextAsk {
  std::string model;
  std::shared_ptr<const TenantProfile> tenant;
  // Set when no client waits for the answer.
  std::shared_ptr<const std::atomic<bool>> cancelled = nullptr;
};
struct TokenizeAsk {
  TextAsk by;
  Prompt prompt;
  bool wants_pieces = false;
};

struct TokenizeResult {
  std::vector<TokenId> ids;
  std::vector<std::string> pieces;  // the text of each id, if requested
  uint32_t max_model_len = 0;
  std::shared_ptr<const MemoryHold> hold = nullptr;  // of these and of what an edge writes of them
};

using TokenizeDone = std::function<void(Result<TokenizeResult>)>;
using DetokenizeDone = std::function<void(Result<std::string>)>;

// An order to load or unload an adapter at the workers of a model.
struct AdapterAsk {
  AdapterOrder order;      // without a number
  std::string base_model;  // a client's name; empty: the only model, or those that have the adapter
};
// Nothing: it is done everywhere.
using AdapterDone = std::function<void(std::optional<ApiError>)>;
// An order that is waited for; destroying it means that no one waits any more.
class AdapterTask {
 public:
  virtual ~AdapterTask() = default;
};

class Pipeline {
 public:
  virtual ~Pipeline() = default;

  // `sink` outlives the request or is released by Cancel. No callback happens inside this call.
  virtual RequestId Start(GenerateRequest request, ResponseSink* sink) = 0;
  // The client is gone or needs no more: frees everything, calls nothing back.
  virtual void Cancel(RequestId request) = 0;
  // The client has taken the outputs of this choice below `index`; moves the window.
  virtual void Taken(RequestId request, uint32_t choice, uint64_t index) = 0;

  // A source of workers reports its whole list. Workers that no source names any more are removed
  // when they are not needed.
  virtual void WorkersNamed(const std::string& source, std::vector<std::string> targets) = 0;

  // The secret of salts changed: it applies to what is sent from now on. A request that has been
  // sent keeps its salt, also when another worker continues it.
  virtual void UseSaltKey(const std::string& key) = 0;

  // The account of what a tenant's requests hold; nullptr: the requests without a credential. Any
  // thread.
  virtual std::shared_ptr<MemoryAccount> MemoryOf(const TenantProfile* tenant) = 0;

  virtual std::vector<ModelEntry> Models() const = 0;
  // Whether a request may name the model; each request asks, so that it is cheap where it can be.
  virtual bool Serves(const std::string& name) const {
    const std::vector<ModelEntry> models = Models();
    return std::any_of(models.begin(), models.end(),
                       [&](const ModelEntry& model) { return model.name == name; });
  }
  // The text side of a served name; an empty name stands for the only one. NOT_FOUND or
  // INVALID_ARGUMENT names what is served; UNAVAILABLE: it is not known yet, and may be loaded now.
  virtual Result<std::shared_ptr<const ModelText>> TextOf(const std::string& name) = 0;
  // These count for the tenant's quotas like other requests; answers past max_tokenize_answer_bytes
  // are refused.
  virtual void Tokenize(TokenizeAsk ask, TokenizeDone done) = 0;
  virtual void Detokenize(TextAsk by, std::vector<TokenId> ids, DetokenizeDone done) = 0;

  // The process may serve: it is listening, found its peers, and is not draining (/readyz); a
  // request would be served now: some worker ended a step within 10 s and is not stuck (/health).
  virtual bool Ready() const = 0;
  virtual bool Healthy() const = 0;
  // No new requests; running ones continue.
  virtual void StartDraining() = 0;
  // Every live request ends with this error.
  virtual void EndAll(const ApiError& error) = 0;
  virtual size_t LiveRequests() const = 0;
  // The trace context of a request that has not ended; not valid: it is in no trace.
  virtual trace::RequestTrace TraceOf(RequestId /*request*/) const { return {}; }
  // For operators. `done` comes once, after this call, when every worker of the model has answered.
  // An error: nothing is under way.
  virtual Result<std::unique_ptr<AdapterTask>> OrderAdapters(AdapterAsk /*ask*/,
                                                             AdapterDone /*done*/) {
    return ApiError{ApiCode::kUnimplemented, "adapters are not changed here", "", 0};
  }
  virtual std::vector<WorkerStatus> Workers() const { return {}; }
  // Requests that have not ended: those with this x-request-id, or, if it is empty, the latest.
  virtual std::vector<RunningRequest> Running(std::string_view /*request_id*/) const { return {}; }
  // Aborts when an invariant is broken; run by tests and simulation.
  virtual void CheckInvariants() const {}
};

}  // namespace quire
