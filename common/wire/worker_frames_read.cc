#include <google/protobuf/arena.h>

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/wire/worker_frames.h"
#include "quire/v1/worker.pb.h"

namespace quire {
namespace {

namespace pb = ::quire::worker::v1;

constexpr uint64_t kMaxIndex = uint64_t{1} << 40;  // of an output; far above every context

absl::Status Broken(std::string_view what) {
  return InvalidArgument("worker frame: " + std::string(what));
}

absl::Status CheckText(std::string_view field, const std::string& text) {
  if (text.size() <= kMaxHelloStringBytes) return absl::OkStatus();
  return Broken(std::string(field) + " is longer than " + std::to_string(kMaxHelloStringBytes) +
                " bytes");
}

absl::Status CheckItems(std::string_view field, int count, int limit = kMaxFrameItems) {
  if (count <= limit) return absl::OkStatus();
  return Broken(std::string(field) + " has " + std::to_string(count) + " entries, over " +
                std::to_string(limit));
}

std::string Cut(const std::string& text) { return text.substr(0, kMaxWireMessageBytes); }

template <class Message>
AttemptKey Key(const Message& message) {
  return {RequestNumber(message.request_number()), Attempt(message.attempt())};
}

EndReason ReasonFrom(pb::EndReason reason) {
  switch (reason) {
    case pb::STOP:
      return EndReason::kStop;
    case pb::LENGTH:
      return EndReason::kLength;
    case pb::CANCELLED:
      return EndReason::kCancelled;
    case pb::DEADLINE:
      return EndReason::kDeadline;
    case pb::ROUTER_LOST:
      return EndReason::kRouterLost;
    case pb::DRAINED:
      return EndReason::kDrained;
    case pb::SLOW_CLIENT:
      return EndReason::kSlowClient;
    default:
      return EndReason::kFailed;
  }
}

RefusalCode RefusalFrom(pb::RefusalCode code) {
  switch (code) {
    case pb::INVALID:
      return RefusalCode::kInvalid;
    case pb::QUEUE_FULL:
      return RefusalCode::kQueueFull;
    case pb::NOT_READY:
      return RefusalCode::kNotReady;
    case pb::IS_DRAINING:
      return RefusalCode::kDraining;
    case pb::TOO_LARGE:
      return RefusalCode::kTooLarge;
    case pb::UNSUPPORTED:
      return RefusalCode::kUnsupported;
    case pb::STALE_ATTEMPT:
      return RefusalCode::kStaleAttempt;
    case pb::DUPLICATE:
      return RefusalCode::kDuplicate;
    case pb::WRONG_MODEL:
      return RefusalCode::kWrongModel;
    case pb::DEADLINE_PASSED:
      return RefusalCode::kDeadlinePassed;
    default:
      return RefusalCode::kUnspecified;
  }
}

WorkerState StateFrom(pb::WorkerState state) {
  switch (state) {
    case pb::READY:
      return WorkerState::kReady;
    case pb::STUCK:
      return WorkerState::kStuck;
    case pb::DRAIN:
      return WorkerState::kDraining;
    case pb::RECOVERING:
      return WorkerState::kRecovering;
    default:
      return WorkerState::kStarting;
  }
}

template <class From>
absl::Status ReadTop(const From& from, std::vector<TopLogprobs>& to) {
  to.reserve(from.size());
  for (const pb::TopLogprobs& top : from) {
    if (top.ids_size() != top.logprobs_size())
      return Broken("top: ids and logprobs differ in number");
    QUIRE_RETURN_IF_ERROR(CheckItems("top", top.ids_size(), kMaxLogprobs + 1));
    to.push_back(
        {{top.ids().begin(), top.ids().end()}, {top.logprobs().begin(), top.logprobs().end()}});
  }
  return absl::OkStatus();
}

absl::Status ReadOutput(const pb::Output& from, Output& to) {
  const int count = from.ids_size();
  if (count == 0) return Broken("output: ids are empty");
  if (from.first_index() > kMaxIndex) return Broken("output: first_index is out of range");
  if (from.choice() >= kMaxChoices) return Broken("output: choice is out of range");
  constexpr uint32_t kMostDrafts = std::numeric_limits<uint16_t>::max();
  if (from.accepted_prediction_tokens() > kMostDrafts ||
      from.rejected_prediction_tokens() > kMostDrafts) {
    return Broken("output: prediction tokens are out of range");
  }
  if (from.logprobs_size() != 0 && from.logprobs_size() != count) {
    return Broken("output: logprobs and ids differ in number");
  }
  if (from.top_size() != 0 && from.top_size() != count) {
    return Broken("output: top and ids differ in number");
  }
  to.key = Key(from);
  to.choice = from.choice();
  to.first_index = from.first_index();
  to.accepted_prediction_tokens = static_cast<uint16_t>(from.accepted_prediction_tokens());
  to.rejected_prediction_tokens = static_cast<uint16_t>(from.rejected_prediction_tokens());
  to.ids.assign(from.ids().begin(), from.ids().end());
  for (TokenId id : to.ids) {
    if (id < 0) return Broken("output: a token id is negative");
  }
  to.logprobs.assign(from.logprobs().begin(), from.logprobs().end());
  to.top.clear();
  return ReadTop(from.top(), to.top);
}

// Room for `count` outputs, keeping their small buffers. Buffers that a worker could make large are
// freed, so that the memory that stays is bounded.
std::vector<Output> RoomFor(std::vector<Output> outputs, size_t count) {
  constexpr size_t kKeptOutputs = 1024;
  constexpr size_t kKeptIds = 16;
  if (outputs.capacity() > kKeptOutputs) outputs = std::vector<Output>();
  for (Output& output : outputs) {
    const bool small = output.ids.capacity() <= kKeptIds &&
                       output.logprobs.capacity() <= kKeptIds && output.top.empty();
    if (!small) output = Output();
  }
  outputs.resize(count);
  return outputs;
}

absl::StatusOr<PromptLogprobs> ReadPromptLogprobs(const pb::PromptLogprobs& from) {
  const int count = from.logprobs_size();
  if (from.top_size() != 0 && from.top_size() != count) {
    return Broken("prompt_logprobs: top and logprobs differ in number");
  }
  if (from.ranks_size() != 0 && from.ranks_size() != count) {
    return Broken("prompt_logprobs: ranks and logprobs differ in number");
  }
  PromptLogprobs to;
  to.key = Key(from);
  to.first_position = from.first_position();
  to.logprobs.assign(from.logprobs().begin(), from.logprobs().end());
  to.ranks.assign(from.ranks().begin(), from.ranks().end());
  QUIRE_RETURN_IF_ERROR(ReadTop(from.top(), to.top));
  return to;
}

absl::StatusOr<Ended> ReadEnded(const pb::Ended& from) {
  if (from.choice() >= kMaxChoices) return Broken("ended: choice is out of range");
  Ended to;
  to.key = Key(from);
  to.choice = from.choice();
  to.reason = ReasonFrom(from.reason());
  to.message = Cut(from.message());
  to.last_choice = from.last_choice();
  const pb::AttemptUsage& usage = from.usage();
  to.usage = {.prompt_tokens = usage.prompt_tokens(),
              .cached_tokens = usage.cached_tokens(),
              .computed_tokens = usage.computed_tokens(),
              .recomputed_tokens = usage.recomputed_tokens(),
              .generated_tokens = usage.generated_tokens(),
              .discarded_tokens = usage.discarded_tokens(),
              .draft_tokens = usage.draft_tokens(),
              .accepted_draft_tokens = usage.accepted_draft_tokens()};
  to.by_stop_token = from.by_stop_token();
  to.stop_token_id = from.stop_token_id();
  to.retryable = from.retryable();
  return to;
}

absl::StatusOr<CacheEvents> ReadEvents(const pb::CacheEvents& from) {
  CacheEvents to;
  switch (from.kind()) {
    case pb::CacheEvents::STORED:
      to.kind = CacheEvents::Kind::kStored;
      break;
    case pb::CacheEvents::REMOVED:
      to.kind = CacheEvents::Kind::kRemoved;
      break;
    case pb::CacheEvents::CLEARED:
      to.kind = CacheEvents::Kind::kCleared;
      break;
    default:
      return Broken("events: the kind is unknown");
  }
  if (from.cache_kind() >= kMaxCacheGroupKinds) return Broken("events: cache_kind is out of range");
  to.cache_kind = from.cache_kind();
  to.parent = from.parent();
  to.hashes.assign(from.hashes().begin(), from.hashes().end());
  return to;
}

absl::Status CheckStepItems(const pb::Step& from) {
  QUIRE_RETURN_IF_ERROR(CheckItems("admitted", from.admitted_size()));
  QUIRE_RETURN_IF_ERROR(CheckItems("outputs", from.outputs_size()));
  QUIRE_RETURN_IF_ERROR(CheckItems("prompt_logprobs", from.prompt_logprobs_size()));
  QUIRE_RETURN_IF_ERROR(CheckItems("ended", from.ended_size()));
  QUIRE_RETURN_IF_ERROR(CheckItems("refused", from.refused_size()));
  return CheckItems("events", from.events_size());
}

void ReadPulse(const pb::Step& from, StepFrame& to) {
  to.frame_seq = from.frame_seq();
  to.event_seq = from.event_seq();
  const pb::Load& load = from.load();
  to.load = {load.running_rows(),
             load.waiting_requests(),
             load.waiting_prefill_tokens(),
             load.running_prefill_tokens(),
             load.free_blocks(),
             load.evictable_blocks(),
             load.held_blocks(),
             load.steps_total()};
  to.last_admitted_submit = from.last_admitted_submit();
  to.routers_attached = from.routers_attached();
  to.state = StateFrom(from.state());
  to.step_age_ms = from.step_age_ms();
  to.step_limit_ms = from.step_limit_ms();
  to.events_dropped = from.events_dropped();
  to.heartbeat_echo_ms = from.heartbeat_echo_ms();
  to.first_event_seq = from.first_event_seq();
}

absl::StatusOr<WorkerMessage> ReadStep(const pb::Step& from, std::vector<Output> storage) {
  QUIRE_RETURN_IF_ERROR(CheckStepItems(from));
  StepFrame to;
  ReadPulse(from, to);
  for (const pb::Admitted& admitted : from.admitted()) {
    to.admitted.push_back({Key(admitted), admitted.cached_tokens(), admitted.event_seq()});
  }
  to.outputs = RoomFor(std::move(storage), static_cast<size_t>(from.outputs_size()));
  for (int i = 0; i < from.outputs_size(); ++i) {
    QUIRE_RETURN_IF_ERROR(ReadOutput(from.outputs(i), to.outputs[static_cast<size_t>(i)]));
  }
  for (const pb::PromptLogprobs& logprobs : from.prompt_logprobs()) {
    QUIRE_ASSIGN_OR_RETURN(PromptLogprobs read, ReadPromptLogprobs(logprobs));
    to.prompt_logprobs.push_back(std::move(read));
  }
  for (const pb::Ended& ended : from.ended()) {
    QUIRE_ASSIGN_OR_RETURN(Ended read, ReadEnded(ended));
    to.ended.push_back(std::move(read));
  }
  for (const pb::Refused& refused : from.refused()) {
    to.refused.push_back({Key(refused), RefusalFrom(refused.code()), Cut(refused.field()),
                          Cut(refused.message()), refused.retry_after_ms()});
  }
  for (const pb::CacheEvents& events : from.events()) {
    QUIRE_ASSIGN_OR_RETURN(CacheEvents read, ReadEvents(events));
    to.events.push_back(std::move(read));
  }
  return WorkerMessage(std::move(to));
}

bool IsDigest(const std::string& text) {
  return text.size() == kAdapterDigestBytes && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

using AdapterFields = google::protobuf::RepeatedPtrField<pb::ServedAdapter>;

absl::Status ReadAdapters(const AdapterFields& from, std::vector<ServedAdapter>& to) {
  QUIRE_RETURN_IF_ERROR(CheckItems("adapters", from.size(), kMaxServedAdapters));
  for (const pb::ServedAdapter& adapter : from) {
    const absl::Status name = CheckAdapterName(adapter.name());
    if (!name.ok()) return Broken("an adapter's name " + StatusMessage(name));
    if (!IsDigest(adapter.digest())) return Broken("an adapter's digest is no SHA-256");
    QUIRE_RETURN_IF_ERROR(CheckText("an adapter's parent", adapter.parent()));
    to.push_back({adapter.name(), adapter.digest(), adapter.parent(), adapter.rank()});
  }
  return absl::OkStatus();
}

absl::Status CheckHello(const pb::WorkerHello& from) {
  QUIRE_RETURN_IF_ERROR(CheckText("worker_id", from.worker_id()));
  QUIRE_RETURN_IF_ERROR(CheckText("model_id", from.model_id()));
  QUIRE_RETURN_IF_ERROR(CheckText("numerics_id", from.numerics_id()));
  QUIRE_RETURN_IF_ERROR(CheckText("hash_scheme", from.hash_scheme()));
  QUIRE_RETURN_IF_ERROR(CheckItems("features", from.features_size(), kMaxHelloStrings));
  QUIRE_RETURN_IF_ERROR(CheckItems("served_names", from.served_names_size(), kMaxHelloStrings));
  QUIRE_RETURN_IF_ERROR(CheckItems("cache_groups", from.cache_groups_size(), kMaxCacheGroupKinds));
  for (const std::string& feature : from.features()) {
    QUIRE_RETURN_IF_ERROR(CheckText("a feature", feature));
  }
  for (const std::string& name : from.served_names()) {
    QUIRE_RETURN_IF_ERROR(CheckText("a served name", name));
    if (name.empty()) return Broken("a served name is empty");
  }
  if (from.model_id().empty()) return Broken("model_id is empty");
  if (from.served_names_size() == 0) return Broken("served_names is empty");
  if (from.text_bundle_sha256().size() != 32) return Broken("text_bundle_sha256 has not 32 bytes");
  const uint32_t max_model_len = from.limits().max_model_len();
  if (max_model_len == 0 || max_model_len > kMaxServedModelLen) {
    return Broken("limits.max_model_len is out of range");
  }
  if (from.vocab_size() == 0 || from.vocab_size() > kMaxServedVocab) {
    return Broken("vocab_size is out of range");
  }
  return absl::OkStatus();
}

absl::StatusOr<WorkerMessage> ReadHello(const pb::WorkerHello& from) {
  QUIRE_RETURN_IF_ERROR(CheckHello(from));
  WorkerHello to;
  to.worker_id = from.worker_id();
  to.epoch = Epoch(from.epoch());
  to.protocol = from.protocol();
  to.features.assign(from.features().begin(), from.features().end());
  to.model_id = from.model_id();
  to.numerics_id = from.numerics_id();
  for (const pb::CacheGroupInfo& group : from.cache_groups()) {
    QUIRE_RETURN_IF_ERROR(CheckText("a cache group's kind", group.kind()));
    to.cache_groups.push_back({group.kind(), group.groups(), group.window()});
  }
  to.block_size = from.block_size();
  to.hash_scheme = from.hash_scheme();
  to.capacity_blocks = from.capacity_blocks();
  const pb::Limits& limits = from.limits();
  to.limits = {limits.max_model_len(),  limits.max_num_seqs(),   limits.max_waiting_requests(),
               limits.max_choices(),    limits.max_logprobs(),   limits.max_stop_token_ids(),
               limits.max_logit_bias(), limits.max_frame_bytes()};
  to.text_bundle_sha256 = from.text_bundle_sha256();
  to.served_names.assign(from.served_names().begin(), from.served_names().end());
  to.vocab_size = from.vocab_size();
  to.prefix_caching = from.prefix_caching();
  QUIRE_RETURN_IF_ERROR(ReadAdapters(from.adapters(), to.adapters));
  QUIRE_RETURN_IF_ERROR(CheckServedAdapters(to.adapters, to.served_names));
  return WorkerMessage(std::move(to));
}

absl::StatusOr<WorkerMessage> ReadSnapshotChunk(const pb::SnapshotChunk& from) {
  if (from.hashes_size() != from.parents_size()) {
    return Broken("snapshot_chunk: hashes and parents differ in number");
  }
  if (from.cache_kind() >= kMaxCacheGroupKinds) {
    return Broken("snapshot_chunk: cache_kind is out of range");
  }
  SnapshotChunk to;
  to.snapshot_number = from.snapshot_number();
  to.index = from.index();
  to.last = from.last();
  to.cache_kind = from.cache_kind();
  to.hashes.assign(from.hashes().begin(), from.hashes().end());
  to.parents.assign(from.parents().begin(), from.parents().end());
  to.event_seq = from.event_seq();
  return WorkerMessage(std::move(to));
}

AdapterVerdict VerdictFrom(pb::AdapterVerdict verdict) {
  const bool known = pb::AdapterVerdict_IsValid(verdict);
  return known ? static_cast<AdapterVerdict>(verdict) : AdapterVerdict::kFailed;
}

absl::StatusOr<WorkerMessage> ReadAdapterResult(const pb::AdapterResult& from) {
  if (!from.digest().empty() && !IsDigest(from.digest())) {
    return Broken("adapter_result: the digest is no SHA-256");
  }
  return WorkerMessage(AdapterResult{from.number(), VerdictFrom(from.verdict()),
                                     Cut(from.message()), from.digest(), from.retry_after_ms()});
}

absl::StatusOr<WorkerMessage> ReadAdaptersChanged(const pb::AdaptersChanged& from) {
  QUIRE_RETURN_IF_ERROR(CheckItems("held", from.held_size(), kMaxHeldAdapters));
  AdaptersChanged to;
  QUIRE_RETURN_IF_ERROR(ReadAdapters(from.adapters(), to.adapters));
  for (const std::string& digest : from.held()) {
    if (!IsDigest(digest)) return Broken("a held adapter's digest is no SHA-256");
    to.held.push_back(digest);
  }
  return WorkerMessage(std::move(to));
}

const pb::WorkerFrame* ParseInto(google::protobuf::Arena& arena, std::string_view frame) {
  auto* message = google::protobuf::Arena::CreateMessage<pb::WorkerFrame>(&arena);
  const bool parsed = message->ParseFromArray(frame.data(), static_cast<int>(frame.size()));
  return parsed ? message : nullptr;
}

}  // namespace

absl::Status CheckAdapterName(std::string_view name) {
  if (name.empty()) return InvalidArgument("is empty");
  if (name.size() > kMaxHelloStringBytes) {
    return InvalidArgument("has " + std::to_string(name.size()) + " bytes; at most " +
                           std::to_string(kMaxHelloStringBytes) + " are served");
  }
  if (name.find(':') == std::string_view::npos) return absl::OkStatus();
  return InvalidArgument("has a ':', which parts a model from its adapter; use '-' or '_'");
}

absl::Status CheckServedAdapters(const std::vector<ServedAdapter>& adapters,
                                 const std::vector<std::string>& served_names) {
  std::set<std::string_view> names(served_names.begin(), served_names.end());
  for (const ServedAdapter& adapter : adapters) {
    if (!names.insert(adapter.name).second) return Broken("an adapter's name is given twice");
    if (std::find(served_names.begin(), served_names.end(), adapter.parent) == served_names.end()) {
      return Broken("an adapter's parent is no served name");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<WorkerMessage> DecodeWorkerFrame(std::string_view frame, StepFrame storage) {
  if (frame.size() > kMaxFrameBytes) return Broken("is larger than 1 MiB");
  // A step holds a message for every row: allocated one by one they would cost more than all work
  // on them.
  alignas(8) std::array<char, 16384> first_block;
  google::protobuf::ArenaOptions options;
  options.initial_block = first_block.data();
  options.initial_block_size = first_block.size();
  google::protobuf::Arena arena(options);
  const pb::WorkerFrame* message = ParseInto(arena, frame);
  if (message == nullptr) return Broken("is no WorkerFrame message");
  const pb::WorkerFrame& from = *message;
  switch (from.frame_case()) {
    case pb::WorkerFrame::kHello:
      return ReadHello(from.hello());
    case pb::WorkerFrame::kStep:
      return ReadStep(from.step(), std::move(storage.outputs));
    case pb::WorkerFrame::kSnapshotChunk:
      return ReadSnapshotChunk(from.snapshot_chunk());
    case pb::WorkerFrame::kDraining:
      return WorkerMessage(DrainingNotice{from.draining().remaining_ms()});
    case pb::WorkerFrame::kRefused:
      return WorkerMessage(AttachRefused{Cut(from.refused().message()), from.refused().fenced()});
    case pb::WorkerFrame::kAdapterResult:
      return ReadAdapterResult(from.adapter_result());
    case pb::WorkerFrame::kAdaptersChanged:
      return ReadAdaptersChanged(from.adapters_changed());
    default:
      return Broken("holds no frame that this version knows");
  }
}

}  // namespace quire
