// From plain values to frames for a router, each within the frame limit.
#include <algorithm>
#include <utility>

#include "common/check.h"
#include "common/utf8.h"
#include "common/wire/worker_frames.h"
#include "quire/v1/worker.pb.h"

namespace quire {
namespace {

namespace pb = ::quire::worker::v1;

constexpr size_t kStepHeaderBytes = 1024;                             // all that is not in a list
constexpr size_t kStepListBytes = kMaxFrameBytes - kStepHeaderBytes;  // for the lists of one frame
constexpr size_t kSliceBytes = 64u << 10;  // outputs of one choice, logprobs of one prompt
// Upper bounds of what protobuf needs, tags and lengths included.
constexpr size_t kItemBytes = 96;
constexpr size_t kIdBytes = 5;
constexpr size_t kFloatBytes = 4;
constexpr size_t kTopItemBytes = 16;
constexpr size_t kHashBytes = 8;

// The enumerators of the wire are numbered as ours are.
static_assert(static_cast<int>(EndReason::kSlowClient) == pb::SLOW_CLIENT);
static_assert(static_cast<int>(EndReason::kStop) == pb::STOP);
static_assert(static_cast<int>(RefusalCode::kDeadlinePassed) == pb::DEADLINE_PASSED);
static_assert(static_cast<int>(RefusalCode::kInvalid) == pb::INVALID);
static_assert(static_cast<int>(WorkerState::kRecovering) == pb::RECOVERING);
static_assert(static_cast<int>(WorkerState::kReady) == pb::READY);
static_assert(static_cast<int>(CacheEvents::Kind::kCleared) == pb::CacheEvents::CLEARED);
static_assert(static_cast<int>(AdapterVerdict::kQueueFull) == pb::ADAPTER_QUEUE_FULL);
static_assert(static_cast<int>(AdapterVerdict::kDone) == pb::ADAPTER_DONE);

std::string Bytes(const pb::WorkerFrame& frame) {
  std::string bytes = frame.SerializeAsString();
  QUIRE_CHECK_MSG(bytes.size() <= kMaxFrameBytes, "a frame exceeds its limit");
  return bytes;
}

// Cut at a whole UTF-8 character.
std::string_view Cut(std::string_view text) {
  if (text.size() <= kMaxWireMessageBytes) return text;
  size_t end = kMaxWireMessageBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}
std::string CutCopy(std::string_view text) { return std::string(Cut(text)); }

template <class Message>
void SetKey(const AttemptKey& key, Message* to) {
  to->set_request_number(key.request.value());
  to->set_attempt(key.attempt.value());
}

size_t TopBytes(const TopLogprobs& top) {
  return kTopItemBytes + top.ids.size() * kIdBytes + top.logprobs.size() * kFloatBytes;
}

// Upper bound for token `i` of these lists.
size_t TokenBytes(const std::vector<TopLogprobs>& top, size_t i) {
  return 2 * kIdBytes + kFloatBytes + (i < top.size() ? TopBytes(top[i]) : 0);
}

size_t EndedBytes(const Ended& ended) { return 2 * kItemBytes + Cut(ended.message).size(); }
size_t RefusedBytes(const Refused& refused) {
  return kItemBytes + Cut(refused.field).size() + Cut(refused.message).size();
}

void FillTop(const std::vector<TopLogprobs>& from, size_t begin, size_t end,
             google::protobuf::RepeatedPtrField<pb::TopLogprobs>* to) {
  for (size_t i = begin; i < std::min(end, from.size()); ++i) {
    pb::TopLogprobs* top = to->Add();
    top->mutable_ids()->Add(from[i].ids.begin(), from[i].ids.end());
    top->mutable_logprobs()->Add(from[i].logprobs.begin(), from[i].logprobs.end());
  }
}

template <class Values, class Repeated>
void FillSlice(const Values& from, size_t begin, size_t end, Repeated* to) {
  if (begin >= from.size()) return;
  to->Add(from.begin() + static_cast<ptrdiff_t>(begin),
          from.begin() + static_cast<ptrdiff_t>(std::min(end, from.size())));
}

void FillUsage(const AttemptUsage& from, pb::AttemptUsage* to) {
  to->set_prompt_tokens(from.prompt_tokens);
  to->set_cached_tokens(from.cached_tokens);
  to->set_computed_tokens(from.computed_tokens);
  to->set_recomputed_tokens(from.recomputed_tokens);
  to->set_generated_tokens(from.generated_tokens);
  to->set_discarded_tokens(from.discarded_tokens);
  to->set_draft_tokens(from.draft_tokens);
  to->set_accepted_draft_tokens(from.accepted_draft_tokens);
}

void FillEnded(const Ended& from, pb::Ended* to) {
  SetKey(from.key, to);
  to->set_choice(from.choice);
  to->set_reason(static_cast<pb::EndReason>(from.reason));
  to->set_message(CutCopy(from.message));
  to->set_last_choice(from.last_choice);
  if (from.last_choice) FillUsage(from.usage, to->mutable_usage());
  to->set_by_stop_token(from.by_stop_token);
  to->set_stop_token_id(from.stop_token_id);
  to->set_retryable(from.retryable);
}

void FillRefused(const Refused& from, pb::Refused* to) {
  SetKey(from.key, to);
  to->set_code(static_cast<pb::RefusalCode>(from.code));
  to->set_field(CutCopy(from.field));
  to->set_message(CutCopy(from.message));
  to->set_retry_after_ms(from.retry_after_ms);
}

void FillAdapters(const std::vector<ServedAdapter>& from,
                  google::protobuf::RepeatedPtrField<pb::ServedAdapter>* to) {
  for (const ServedAdapter& adapter : from) {
    pb::ServedAdapter* served = to->Add();
    served->set_name(adapter.name);
    served->set_digest(adapter.digest);
    served->set_parent(adapter.parent);
    served->set_rank(adapter.rank);
  }
}

void FillLoad(const Load& from, pb::Load* to) {
  to->set_running_rows(from.running_rows);
  to->set_waiting_requests(from.waiting_requests);
  to->set_waiting_prefill_tokens(from.waiting_prefill_tokens);
  to->set_running_prefill_tokens(from.running_prefill_tokens);
  to->set_free_blocks(from.free_blocks);
  to->set_evictable_blocks(from.evictable_blocks);
  to->set_held_blocks(from.held_blocks);
  to->set_steps_total(from.steps_total);
}

// Fills frame after frame with the lists of one step.
class StepFrames {
 public:
  explicit StepFrames(const StepFrame& step) : step_(step), event_seq_(step.event_seq) {
    if (!step.events.empty()) event_seq_ = step.first_event_seq - 1;
  }

  std::vector<std::string> Encode() {
    for (const Admitted& admitted : step_.admitted) {
      pb::Admitted* to = Room(kItemBytes)->add_admitted();
      SetKey(admitted.key, to);
      to->set_cached_tokens(admitted.cached_tokens);
      to->set_event_seq(admitted.event_seq);
    }
    // Before outputs: a router that has accepted an output has the logprobs of the whole prompt.
    for (const PromptLogprobs& logprobs : step_.prompt_logprobs) AddPromptLogprobs(logprobs);
    for (const Output& output : step_.outputs) AddOutput(output);
    for (const Ended& ended : step_.ended) FillEnded(ended, Room(EndedBytes(ended))->add_ended());
    for (const Refused& refused : step_.refused) {
      FillRefused(refused, Room(RefusedBytes(refused))->add_refused());
    }
    AddEvents();
    event_seq_ = step_.event_seq;
    Finish();
    return std::move(frames_);
  }

 private:
  // The step to add an item of at most `bytes` to.
  pb::Step* Room(size_t bytes) {
    QUIRE_CHECK(bytes <= kStepListBytes);
    if (used_bytes_ + bytes > kStepListBytes) Finish();
    used_bytes_ += bytes;
    return frame_.mutable_step();
  }

  void Finish() {
    pb::Step* to = frame_.mutable_step();
    to->set_frame_seq(step_.frame_seq + frames_.size());
    to->set_event_seq(event_seq_);
    FillLoad(step_.load, to->mutable_load());
    to->set_last_admitted_submit(step_.last_admitted_submit);
    to->set_routers_attached(step_.routers_attached);
    to->set_state(static_cast<pb::WorkerState>(step_.state));
    to->set_step_age_ms(step_.step_age_ms);
    to->set_step_limit_ms(step_.step_limit_ms);
    to->set_events_dropped(step_.events_dropped || events_dropped_);
    to->set_heartbeat_echo_ms(step_.heartbeat_echo_ms);
    frames_.push_back(Bytes(frame_));
    frame_.Clear();
    used_bytes_ = 0;
  }

  // The end of the slice from `begin` on that fits kSliceBytes; at least one token.
  static size_t SliceEnd(const std::vector<TopLogprobs>& top, size_t begin, size_t count,
                         size_t& bytes) {
    bytes = kItemBytes;
    size_t end = begin;
    while (end < count && (end == begin || bytes + TokenBytes(top, end) <= kSliceBytes)) {
      bytes += TokenBytes(top, end++);
    }
    return end;
  }

  void AddOutput(const Output& output) {
    for (size_t begin = 0, bytes = 0; begin < output.ids.size();) {
      const size_t end = SliceEnd(output.top, begin, output.ids.size(), bytes);
      pb::Output* to = Room(bytes)->add_outputs();
      SetKey(output.key, to);
      to->set_choice(output.choice);
      to->set_first_index(output.first_index + begin);
      if (begin == 0) {
        to->set_accepted_prediction_tokens(output.accepted_prediction_tokens);
        to->set_rejected_prediction_tokens(output.rejected_prediction_tokens);
      }
      FillSlice(output.ids, begin, end, to->mutable_ids());
      FillSlice(output.logprobs, begin, end, to->mutable_logprobs());
      FillTop(output.top, begin, end, to->mutable_top());
      begin = end;
    }
  }

  void AddPromptLogprobs(const PromptLogprobs& from) {
    for (size_t begin = 0, bytes = 0; begin < from.logprobs.size();) {
      const size_t end = SliceEnd(from.top, begin, from.logprobs.size(), bytes);
      pb::PromptLogprobs* to = Room(bytes)->add_prompt_logprobs();
      SetKey(from.key, to);
      to->set_first_position(from.first_position + static_cast<uint32_t>(begin));
      FillSlice(from.logprobs, begin, end, to->mutable_logprobs());
      FillSlice(from.ranks, begin, end, to->mutable_ranks());
      FillTop(from.top, begin, end, to->mutable_top());
      begin = end;
    }
  }

  void AddEvents() {
    for (const CacheEvents& events : step_.events) {
      if (kItemBytes + events.hashes.size() * kHashBytes > kStepListBytes) {
        events_dropped_ = true;
        return;
      }
    }
    for (const CacheEvents& events : step_.events) {
      pb::Step* step = Room(kItemBytes + events.hashes.size() * kHashBytes);
      if (step->events().empty()) step->set_first_event_seq(event_seq_ + 1);
      ++event_seq_;
      pb::CacheEvents* to = step->add_events();
      to->set_kind(static_cast<pb::CacheEvents::Kind>(events.kind));
      to->set_cache_kind(events.cache_kind);
      to->set_parent(events.parent);
      to->mutable_hashes()->Add(events.hashes.begin(), events.hashes.end());
    }
  }

  const StepFrame& step_;
  uint64_t event_seq_;  // of the last event in the frames so far
  bool events_dropped_ = false;
  size_t used_bytes_ = 0;
  pb::WorkerFrame frame_;
  std::vector<std::string> frames_;
};

}  // namespace

std::string EncodeWorkerHello(const WorkerHello& hello) {
  pb::WorkerFrame frame;
  pb::WorkerHello* to = frame.mutable_hello();
  to->set_worker_id(hello.worker_id);
  to->set_epoch(hello.epoch.value());
  to->set_protocol(hello.protocol);
  for (const std::string& feature : hello.features) to->add_features(feature);
  to->set_model_id(hello.model_id);
  to->set_numerics_id(hello.numerics_id);
  for (const CacheGroupInfo& group : hello.cache_groups) {
    pb::CacheGroupInfo* info = to->add_cache_groups();
    info->set_kind(group.kind);
    info->set_groups(group.groups);
    info->set_window(group.window);
  }
  to->set_block_size(hello.block_size);
  to->set_hash_scheme(hello.hash_scheme);
  to->set_capacity_blocks(hello.capacity_blocks);
  pb::Limits* limits = to->mutable_limits();
  limits->set_max_model_len(hello.limits.max_model_len);
  limits->set_max_num_seqs(hello.limits.max_num_seqs);
  limits->set_max_waiting_requests(hello.limits.max_waiting_requests);
  limits->set_max_choices(hello.limits.max_choices);
  limits->set_max_logprobs(hello.limits.max_logprobs);
  limits->set_max_stop_token_ids(hello.limits.max_stop_token_ids);
  limits->set_max_logit_bias(hello.limits.max_logit_bias);
  limits->set_max_frame_bytes(hello.limits.max_frame_bytes);
  to->set_text_bundle_sha256(hello.text_bundle_sha256);
  for (const std::string& name : hello.served_names) to->add_served_names(name);
  to->set_vocab_size(hello.vocab_size);
  to->set_prefix_caching(hello.prefix_caching);
  FillAdapters(hello.adapters, to->mutable_adapters());
  return Bytes(frame);
}

std::string EncodeAdapterResult(const AdapterResult& result) {
  pb::WorkerFrame frame;
  pb::AdapterResult* to = frame.mutable_adapter_result();
  to->set_number(result.number);
  to->set_verdict(static_cast<pb::AdapterVerdict>(result.verdict));
  // It may quote a file: for a string that is not UTF-8 a router refuses the whole frame.
  to->set_message(ValidUtf8(Cut(result.message)));
  to->set_digest(result.digest);
  to->set_retry_after_ms(result.retry_after_ms);
  return Bytes(frame);
}

std::string EncodeAdaptersChanged(const AdaptersChanged& changed) {
  QUIRE_CHECK(changed.held.size() <= static_cast<size_t>(kMaxHeldAdapters));
  pb::WorkerFrame frame;
  pb::AdaptersChanged* to = frame.mutable_adapters_changed();
  FillAdapters(changed.adapters, to->mutable_adapters());
  for (const std::string& digest : changed.held) to->add_held(digest);
  return Bytes(frame);
}

std::string EncodeAttachRefused(std::string_view message, bool fenced) {
  pb::WorkerFrame frame;
  frame.mutable_refused()->set_message(CutCopy(message));
  frame.mutable_refused()->set_fenced(fenced);
  return Bytes(frame);
}

std::string EncodeDraining(uint64_t remaining_ms) {
  pb::WorkerFrame frame;
  frame.mutable_draining()->set_remaining_ms(remaining_ms);
  return Bytes(frame);
}

std::string EncodeSnapshotChunk(const SnapshotChunk& part) {
  QUIRE_CHECK(part.parents.size() == part.hashes.size());
  pb::WorkerFrame frame;
  pb::SnapshotChunk* to = frame.mutable_snapshot_chunk();
  to->set_snapshot_number(part.snapshot_number);
  to->set_index(part.index);
  to->set_last(part.last);
  to->set_cache_kind(part.cache_kind);
  to->mutable_hashes()->Add(part.hashes.begin(), part.hashes.end());
  to->mutable_parents()->Add(part.parents.begin(), part.parents.end());
  to->set_event_seq(part.event_seq);
  return Bytes(frame);
}

std::vector<std::string> EncodeStep(const StepFrame& step) { return StepFrames(step).Encode(); }

size_t EncodedBytesBound(const StepLists& output) {
  size_t bytes = kStepHeaderBytes + output.admitted.size() * kItemBytes;
  for (const Output& item : output.outputs) {
    bytes += kItemBytes;
    for (size_t i = 0; i < item.ids.size(); ++i) bytes += TokenBytes(item.top, i);
  }
  for (const PromptLogprobs& item : output.prompt_logprobs) {
    bytes += kItemBytes;
    for (size_t i = 0; i < item.logprobs.size(); ++i) bytes += TokenBytes(item.top, i);
  }
  for (const Ended& ended : output.ended) bytes += EndedBytes(ended);
  for (const Refused& refused : output.refused) bytes += RefusedBytes(refused);
  return bytes;
}

}  // namespace quire
