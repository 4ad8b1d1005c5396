// A request between Start and its end, and its conversions on the way to a worker.
//
// Owner: the pipeline, on the router's executor. Plain values and pure functions.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/memory_account.h"
#include "common/number_table.h"
#include "common/runtime/runtime.h"
#include "common/wire/values.h"
#include "router/admission/admission.h"
#include "router/chat/salt.h"
#include "router/chat/sampling.h"
#include "router/core/api.h"
#include "router/core/model_text.h"
#include "router/fleet/pools.h"
#include "router/pipeline/answer_plan.h"
#include "router/pipeline/pipeline.h"
#include "router/pipeline/serving_metrics.h"
#include "router/records/request_record.h"
#include "router/routing/room.h"
#include "router/stream/choice_stream.h"

namespace quire {

// The model that a request's name referred to when the request began.
struct ServedModel {
  std::shared_ptr<const ModelText> text;
  ModelFacts facts;
  std::string model_id;
  std::shared_ptr<const AnswerFormat> format;
  std::string adapter = {};  // digest; empty: the model alone

  // What a client resumes the answer with: pools.h.
  std::string Answerer() const { return AnswererOf(model_id, adapter); }
};

// Counts a prompt's bytes for as long as it waits for tokenization.
struct PromptHold {
  PromptHold(std::shared_ptr<MemoryAccount> all, std::shared_ptr<MemoryAccount> tenants)
      : waiting(std::move(all)), tenant(std::move(tenants)) {}
  MemoryHold waiting;  // among all prompts that wait
  MemoryHold tenant;
};

struct LiveRequest : std::enable_shared_from_this<LiveRequest> {
  RequestId id = 0;
  bool over = false;  // released: its sink may be gone
  GenerateRequest ask;
  ResponseSink* sink = nullptr;
  Micros arrived = 0;
  std::optional<ApiError> refused;  // by admission, before it entered
  bool rejected = false;            // by admission, at entry or later
  bool held_ahead = false;          // --max-prefill-ahead made it wait, and that was counted
  TimerId deadline_timer = 0;
  Micros deadline = 0;                      // 0 is none
  std::shared_ptr<PromptHold> prompt_hold;  // until its prompt is tokenised
  std::unique_ptr<MemoryHold> hold;  // everything else that it holds, in its tenant's account
  std::shared_ptr<std::atomic<bool>> cancelled;  // watched by its work in the background, if any
  // Set once its model is known:
  ServedModel model;
  int64_t created = 0;
  SamplingParams sampling;
  std::string_view prompt_field;  // of the client; the prompt is gone by then
  // Set once its prompt is tokenised, which is when it is queued:
  RoomNeed need;
  Micros queued_at = 0;
  SharedTokens prompt_ids;
  bool has_prediction = false;
  SharedTokens prediction_ids;
  std::string prompt_text;         // with echo
  PromptLogprobs prompt_logprobs;  // as they come; first_position is 1
  std::optional<AnswerReading> reading;
  std::shared_ptr<const ThoughtBudget> thought_budget;
  StreamMetrics* felt = nullptr;  // where its times are counted
  uint32_t choices = 0;
  // Set once it was launched, or came with outputs:
  std::vector<ChoiceStream> streams;   // by choice
  std::vector<Micros> last_output_at;  // by choice; 0: none yet
  // By choice: how the previous attempt ended, until the current one writes its first output.
  std::vector<std::optional<AttemptEnd>> moved_by;
  std::vector<bool> ended;                // by choice
  std::vector<Ended> resumed_ends;        // choices that were complete when they were resumed
  bool started = false;                   // OnStarted has been called
  std::optional<uint32_t> cached_tokens;  // of the first attempt
  std::string worker;                     // the worker that took the first attempt
  uint64_t accepted_tokens = 0;           // outputs from workers
  uint64_t accepted_predictions = 0;      // drafts of a prediction, as workers verified them
  uint64_t rejected_predictions = 0;
  uint64_t resumed_tokens = 0;              // outputs that count and that the client brought along
  std::vector<std::string> finish_reasons;  // by choice
  RequestRecord record;                     // its attempts and times, as they come
};

// Owned by the table of the pipeline, and by the turn of the loop that works on it.
using SharedRequest = std::shared_ptr<LiveRequest>;
using RequestTable = NumberTable<RequestId, SharedRequest>;
// nullptr: it has ended.
SharedRequest FindRequest(const RequestTable& requests, RequestId id);

// `work` for a later turn of the loop: nothing happens if the request has ended by then, or the
// table that owns it is gone.
template <class Work>
auto Later(LiveRequest& request, Work work) {
  return [weak = request.weak_from_this(), work = std::move(work)](auto... with) {
    const SharedRequest live = weak.lock();
    if (live != nullptr && !live->over) work(*live, std::move(with)...);
  };
}

// When its client has no more use for it; 0: never.
Micros DeadlineOf(const LiveRequest& request);

// A tenant's most urgent priority limits the priority that its clients may set.
int32_t PriorityOf(const GenerateRequest& ask);

// Checks everything except prompt and sampling; an error names the client's field.
std::optional<ApiError> CheckRequest(const GenerateRequest& ask, const ServedModel& model);

// How its answer is read, and what it must be. An error names the client's field.
std::optional<ApiError> TakePlan(AnswerPlan plan, LiveRequest& request);

// Lengths against the context, max_tokens resolved, the prompt's logprobs against their limit.
std::optional<ApiError> FitPrompt(LiveRequest& request, SharedTokens prompt_ids,
                                  const RouterLimits& limits);

// An error that blames the prompt or the constraint names the client's field.
ApiError InClientsWords(const LiveRequest& request, ApiError error);

// What admission needs to know of it: the most that it may use, and what it needs at a worker.
QueueWish QueueWishOf(const LiveRequest& request);
RoomNeed RoomNeedOf(const LiveRequest& request);
// The tokens that it used: none until a worker has admitted it.
uint64_t TokensTaken(const LiveRequest& request);

// Makes a stream for each choice, unless they exist. The streams of a resumed answer have already
// taken its outputs, and choices that a stop string or their length completed report their end
// again.
void MakeStreams(LiveRequest& request);

// Whether its client brought the whole answer along, so that only the finish reason is missing: no
// worker is needed for that.
bool Complete(const LiveRequest& request);

// Gives the request its key and its place in a trace. Where traces are exported, its workers get a
// traceparent with this router's span; otherwise they get the client's unchanged.
void BeginRecord(const std::optional<trace::Sampler>& sampler, RouterInstance router,
                 RequestNumber number, LiveRequest& request);

// Everything that a worker needs, apart from what the dispatcher fills in.
Submit MakeSubmit(const LiveRequest& request, SaltBook& salts);

// A worker has admitted it; only the first one counts.
void NoteAdmitted(const WorkerRecord& worker, uint32_t cached_tokens, LiveRequest& request);

// The answer begins: records how long its client waited for the first token, if any is to come.
void NoteStart(LiveRequest& request, Micros now);

// The next part of the prompt's logprobs.
void TakePromptLogprobs(LiveRequest& request, const PromptLogprobs& part);

// Outputs of a choice came: counts them, and records how long its client waited for them, and for a
// failover before them.
void NoteOutput(LiveRequest& request, const Output& output, Micros now, ServingMetrics& metrics);

// The record of a request that ends now, from the one that it has kept so far.
RequestRecord RecordOf(const LiveRequest& request, RequestRecord record, RequestEnd end,
                       Micros now);

// Moves the prompt's text and logprobs into it, if they were requested.
Started StartedOf(LiveRequest& request);
Usage UsageOf(const LiveRequest& request);
// How a choice ended when the worker ended it, once its stream is finished.
ChoiceEnd ChoiceEndOf(const LiveRequest& request, const Ended& ended);

}  // namespace quire
