// Constraints for the tag model: a vocabulary of its 64 tokens, and grammars over it.
//
// Any thread; what is compiled once is kept for the process.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/grammar/grammar.h"
#include "common/ids.h"

namespace quire::test {

inline constexpr TokenId kTagEnd = 63;  // of the model's end-of-sequence

std::shared_ptr<const grammar::Vocabulary> TagVocabulary();

Constraint ConstraintOf(ConstraintKind kind, std::string_view source);

// Aborts where the constraint cannot be compiled.
std::shared_ptr<const grammar::Grammar> TagGrammar(const Constraint& constraint);

// What the tokens spell; the end is nothing.
std::string TagText(std::span<const TokenId> tokens);

// Constraints of every kind whose texts the tag model's tokens can write, with ends after few and
// after many tokens.
std::span<const Constraint> TagConstraints();

}  // namespace quire::test
