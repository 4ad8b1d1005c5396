// A constraint on the text of an answer, moved behind the thoughts of a model that thinks first.
//
// A pure function; any thread.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "common/dialect/forcing.h"
#include "common/wire/constraint.h"

namespace quire {

// Nothing: the model has no thoughts, and the constraint holds as it is. INVALID_ARGUMENT: this
// kind of constraint cannot follow its thoughts.
absl::StatusOr<std::optional<Constraint>> BehindThought(const dialect::Forcing& forcing,
                                                        const Constraint& constraint);

}  // namespace quire
