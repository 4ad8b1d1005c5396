// A model's text side as its worker's text bundle describes it: tokenizer, chat templates,
// settings.
//
// Any thread; the objects that it makes are immutable.
#pragma once

#include <memory>
#include <string>

#include "router/core/model_text.h"

namespace quire {

// Reads and compiles a bundle, which is hostile input and takes a while: never call it on the event
// loop.
absl::StatusOr<std::shared_ptr<const ModelText>> MakeBundleText(const std::string& bundle);

}  // namespace quire
