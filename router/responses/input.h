// The items of a /v1/responses request become the messages of a chat.
//
// Pure; any thread. Input is hostile: depth and values of JSON in texts are bounded with the
// body's, and an error names the item.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "router/chat/conversation.h"
#include "router/chat/json_fields.h"
#include "router/responses/store.h"

namespace quire::responses {

// The items of kept answers, by their ids.
class KeptItems {
 public:
  KeptItems(const Keeping& keeping, const RequestLimits& limits)
      : keeping_(keeping), limits_(limits) {}

  // nullptr: no kept answer has such an item. It stays until this object goes.
  const json::Value* Find(std::string_view id);
  bool keeps() const { return keeping_.store != nullptr; }

 private:
  const Keeping& keeping_;
  const RequestLimits& limits_;
  std::map<std::string, json::Value> outputs_;  // by the response's id; each a list
};

// A string, or a list of items of text kinds. Items that refer to others are looked up in `kept`.
FieldError ReadInput(const json::Value& value, const RequestLimits& limits, KeptItems& kept,
                     Conversation& out);

// The same input as items with ids, which continue `before` items, for a response that is kept.
std::string ItemsOf(const json::Value& value, KeptItems& kept, size_t before);
// How many items an input has.
size_t CountItems(const json::Value& value);

}  // namespace quire::responses
