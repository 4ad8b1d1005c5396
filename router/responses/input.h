// The items of a /v1/responses request become the messages of a chat.
//
// Pure; any thread. Input is hostile: depth and values of JSON in texts are bounded with the
// body's, and an error names the item.
#pragma once

#include <map>
#include <optional>
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

  // nullptr: no kept answer has such an item, or `problem` says why it may not be taken. It stays
  // until this object goes. A reference of a few bytes brings an item of any size: what all of them
  // bring is charged, and bounded like a prompt.
  const json::Value* Find(std::string_view id, FieldError& problem);
  // Of an item that Find has found.
  const json::Value* Found(std::string_view id) const;
  bool keeps() const { return keeping_.store != nullptr; }

 private:
  const Keeping& keeping_;
  const RequestLimits& limits_;
  // By the response's id: its items.
  const json::Value* Output(const std::string& response, FieldError& problem);

  std::map<std::string, json::Value> outputs_;
  size_t bytes_ = 0;  // that references have brought
};

// A string, or a list of items of text kinds. Items that refer to others are looked up in `kept`.
FieldError ReadInput(const json::Value& value, const RequestLimits& limits, KeptItems& kept,
                     Conversation& out);

// The same input as items with ids, which continue `before` items, for a response that is kept.
std::string ItemsOf(const json::Value& value, const KeptItems& kept, size_t before);
// How many items an input has.
size_t CountItems(const json::Value& value);

}  // namespace quire::responses
