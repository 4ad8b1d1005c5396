// What the tests of constraints share: a small vocabulary, compiling, and walking texts.
//
// Values only; test code.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/grammar/grammar.h"

namespace quire::grammar {

inline constexpr TokenId kEnd = 262;       // </s> of the tiny tokenizer
inline constexpr int32_t kWidth = 300;     // wider than its tokens
inline constexpr TokenId kUserMark = 263;  // <|user|>, special

// Of text::TinyByteLevelJson(), made once.
std::shared_ptr<const Vocabulary> TinyVocabulary();

Constraint Of(ConstraintKind kind, std::string_view source);
absl::StatusOr<std::shared_ptr<const Grammar>> Compile(ConstraintKind kind, std::string_view source,
                                                       const Limits& limits = {});
absl::StatusOr<std::shared_ptr<const Grammar>> Compile(const Constraint& constraint,
                                                       const Limits& limits = {});

// One token for each byte.
std::vector<TokenId> Bytes(std::string_view text);

// Whether the text is accepted byte by byte and may end after it.
bool Takes(const Grammar& grammar, std::string_view text);

// A new matcher's mask, or the one it has by now.
std::vector<uint32_t> MaskOf(Matcher& matcher);
bool Has(const std::vector<uint32_t>& mask, TokenId id);

// "fault 3: message", or "ok".
std::string Refused(const absl::Status& status);

}  // namespace quire::grammar
