#include "common/grammar/grammar.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "common/text/bridge_call.h"

namespace quire::grammar {
namespace {

constexpr char kFaultUrl[] = "quire/grammar.Fault";

// Of a bridge call; the code may carry a fault.
absl::Status ToStatus(int32_t code, const text::OwnedBytes& error) {
  absl::Status status = text::BridgeStatus(code & ((1 << QTB_FAULT_SHIFT) - 1), error);
  const int32_t fault = code >> QTB_FAULT_SHIFT;
  if (fault != 0)
    status.SetPayload(kFaultUrl, absl::Cord(std::string(1, static_cast<char>(fault))));
  return status;
}

// Ids are below kMaxVocabSize, so both readings of the 32 bits agree.
const uint32_t* ToIds(std::span<const TokenId> ids) {
  return reinterpret_cast<const uint32_t*>(ids.data());
}

QtbLimits ToLimits(const Limits& limits) {
  return {.max_grammar_symbols = limits.max_grammar_symbols,
          .max_items_in_row = limits.max_items_in_row,
          .initial_lexer_fuel = limits.initial_lexer_fuel,
          .step_lexer_fuel = limits.step_lexer_fuel,
          .step_max_items = limits.step_max_items,
          .max_lexer_states = limits.max_lexer_states,
          .max_depth = limits.max_depth};
}

absl::Status TooLong(const char* field, size_t size, size_t limit) {
  absl::Status status = absl::ResourceExhaustedError(absl::StrCat(
      "constraint: ", field, " has ", size, " bytes; at most ", limit, " are compiled"));
  const char fault = static_cast<char>(Fault::kTooLarge);
  status.SetPayload(kFaultUrl, absl::Cord(std::string(1, fault)));
  return status;
}

}  // namespace

Fault FaultOf(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kFaultUrl);
  return payload.has_value() ? static_cast<Fault>((*payload)[0]) : Fault::kNone;
}

struct Vocabulary::Impl {
  ~Impl() { qtb_vocabulary_free(handle); }

  const QtbVocabulary* handle = nullptr;
  int32_t width = 0;
};

Vocabulary::Vocabulary(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Vocabulary::~Vocabulary() = default;

absl::StatusOr<std::shared_ptr<const Vocabulary>> Vocabulary::Make(
    const text::Tokenizer& tokenizer, int32_t width, std::span<const TokenId> end_ids) {
  auto impl = std::make_unique<Impl>();
  impl->width = width;
  text::OwnedBytes error;
  const int32_t code =
      qtb_vocabulary_new(tokenizer.handle(), static_cast<size_t>(width < 0 ? 0 : width),
                         ToIds(end_ids), end_ids.size(), &impl->handle, error.out());
  if (code != QTB_OK) return ToStatus(code, error);
  return std::shared_ptr<const Vocabulary>(new Vocabulary(std::move(impl)));
}

size_t Vocabulary::EstimateBytes(const text::Tokenizer& tokenizer) {
  return qtb_vocabulary_estimate(tokenizer.handle());
}

size_t Vocabulary::EstimateBytes(int64_t tokens, int64_t token_bytes) {
  return qtb_vocabulary_estimate_of(static_cast<size_t>(tokens), static_cast<size_t>(token_bytes));
}

int32_t Vocabulary::width() const { return impl_->width; }
size_t Vocabulary::MemoryBytes() const { return qtb_vocabulary_bytes(impl_->handle); }

struct Grammar::Impl {
  ~Impl() { qtb_grammar_free(handle); }

  QtbGrammar* handle = nullptr;
};

struct Matcher::Impl {
  ~Impl() { qtb_matcher_free(handle); }

  QtbMatcher* handle = nullptr;
};

Grammar::Grammar(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Grammar::~Grammar() = default;

absl::StatusOr<std::shared_ptr<const Grammar>> Grammar::Compile(
    std::shared_ptr<const Vocabulary> vocabulary, const Constraint& constraint,
    const Limits& limits, const std::atomic<bool>* cancelled) {
  if (constraint.source.size() > kMaxConstraintBytes) {
    return TooLong("source", constraint.source.size(), kMaxConstraintBytes);
  }
  if (constraint.whitespace_pattern.size() > kMaxWhitespacePatternBytes) {
    return TooLong("whitespace_pattern", constraint.whitespace_pattern.size(),
                   kMaxWhitespacePatternBytes);
  }
  const QtbConstraint wanted = {.source = text::ToSpan(constraint.source),
                                .whitespace_pattern = text::ToSpan(constraint.whitespace_pattern),
                                .limits = ToLimits(limits),
                                .cancelled = text::ToFlag(cancelled),
                                .kind = static_cast<uint8_t>(constraint.kind),
                                .compact = constraint.compact,
                                .closed = constraint.closed};
  auto impl = std::make_unique<Impl>();
  text::OwnedBytes error;
  const int32_t code =
      qtb_grammar_new(vocabulary->impl_->handle, &wanted, &impl->handle, error.out());
  if (code != QTB_OK) return ToStatus(code, error);
  return std::shared_ptr<const Grammar>(new Grammar(std::move(impl)));
}

std::unique_ptr<Matcher> Grammar::NewMatcher() const {
  auto impl = std::make_unique<Matcher::Impl>();
  text::OwnedBytes error;
  qtb_grammar_matcher(impl_->handle, &impl->handle, error.out());
  return std::unique_ptr<Matcher>(new Matcher(std::move(impl)));
}

size_t Grammar::MemoryBytes() const { return sizeof(Impl) + qtb_grammar_bytes(impl_->handle); }

Matcher::Matcher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Matcher::~Matcher() = default;

namespace {

// A matcher that could not be copied.
absl::Status Broken() { return absl::InternalError("the grammar library lost this matcher"); }

}  // namespace

absl::Status Matcher::Accept(std::span<const TokenId> tokens) {
  if (impl_->handle == nullptr) return Broken();
  text::OwnedBytes error;
  const int32_t code = qtb_matcher_accept(impl_->handle, ToIds(tokens), tokens.size(), error.out());
  return ToStatus(code, error);
}

absl::Status Matcher::Mask(std::span<uint32_t> bits) {
  if (impl_->handle == nullptr) return Broken();
  text::OwnedBytes error;
  return ToStatus(qtb_matcher_mask(impl_->handle, bits.data(), bits.size(), error.out()), error);
}

bool Matcher::Finished() const {
  return impl_->handle != nullptr && (qtb_matcher_state(impl_->handle) & 1) != 0;
}

bool Matcher::MayEnd() const {
  return impl_->handle != nullptr && (qtb_matcher_state(impl_->handle) & 2) != 0;
}

absl::StatusOr<std::span<const TokenId>> Matcher::Forced() {
  if (impl_->handle == nullptr) return Broken();
  const uint32_t* ids = nullptr;
  size_t size = 0;
  text::OwnedBytes error;
  const int32_t code = qtb_matcher_forced(impl_->handle, &ids, &size, error.out());
  if (code != QTB_OK) return ToStatus(code, error);
  return std::span<const TokenId>(reinterpret_cast<const TokenId*>(ids), size);
}

std::unique_ptr<Matcher> Matcher::Fork() const {
  auto impl = std::make_unique<Impl>();
  text::OwnedBytes error;
  if (impl_->handle != nullptr) qtb_matcher_fork(impl_->handle, &impl->handle, error.out());
  return std::unique_ptr<Matcher>(new Matcher(std::move(impl)));
}

size_t Matcher::MemoryBytes() const {
  return sizeof(Impl) + (impl_->handle == nullptr ? 0 : qtb_matcher_bytes(impl_->handle));
}

}  // namespace quire::grammar
