#include "router/stream/answer_reader.h"

#include <algorithm>
#include <span>

#include "common/check.h"

namespace quire {
namespace {

using dialect::CallIds;
using dialect::Event;

constexpr size_t kNine = 9;

// The last delta, or a new one where `out` already says what comes after it.
Delta& PlaceFor(Event::Kind kind, Deltas& out) {
  const Delta& last = out.back();
  const bool calls = !last.tool_calls.empty();
  const bool late = (kind == Event::Kind::kContent && calls) ||
                    (kind == Event::Kind::kReasoning && (calls || !last.text.empty()));
  if (!late) return out.back();
  Delta next;
  next.choice = last.choice;
  next.first_index = last.first_index + last.ids.size();
  out.push_back(std::move(next));
  return out.back();
}

bool IsAlphanumeric(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  });
}

// Whether an id that the model wrote is one that its templates read back.
bool Keeps(CallIds form, std::string_view written) {
  switch (form) {
    case CallIds::kAny:
      return false;
    case CallIds::kNine:
      return written.size() == kNine && IsAlphanumeric(written);
    case CallIds::kFunctions:
      return written.starts_with("functions.");
  }
  return false;
}

}  // namespace

std::string MakeCallId(CallIds form, BlockHash key, uint32_t choice, uint32_t call) {
  constexpr std::string_view kLetters =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const bool nine = form == CallIds::kNine;
  std::string id = nine ? "" : "call_";
  const size_t size = nine ? kNine : id.size() + 24;
  TokenId round = 0;
  while (id.size() < size) {
    const TokenId place[] = {static_cast<TokenId>(choice), static_cast<TokenId>(call), round++};
    const BlockHash hash = HashBlock(key, place);
    for (uint64_t bits : {hash.low, hash.high}) {
      // Ten letters take 60 of its bits.
      for (int i = 0; i < 10 && id.size() < size; ++i) {
        id += kLetters[bits % kLetters.size()];
        bits /= kLetters.size();
      }
    }
  }
  return id;
}

AnswerReader::AnswerReader(const AnswerReading& reading, uint32_t choice)
    : reading_(reading), choice_(choice), parser_(reading.parser) {}

std::string AnswerReader::IdOf(const Event& begin) {
  const auto index = static_cast<uint32_t>(begin.call);
  const CallIds form = reading_.parser.dialect->ids;
  if (Keeps(form, begin.id) && !ids_.contains(begin.id)) return begin.id;
  if (form == CallIds::kFunctions) {
    std::string id = "functions." + begin.text + ":" + std::to_string(index);
    if (!ids_.contains(id)) return id;
  }
  return MakeCallId(form, reading_.id_key, choice_, index);
}

void AnswerReader::Add(std::span<const Event> events, Deltas& out) {
  for (const Event& event : events) {
    if (complete_) return;
    switch (event.kind) {
      case Event::Kind::kContent:
        PlaceFor(event.kind, out).text += event.text;
        break;
      case Event::Kind::kReasoning:
        PlaceFor(event.kind, out).reasoning += event.text;
        break;
      case Event::Kind::kCallBegin: {
        std::string id = IdOf(event);
        ids_.insert(id);
        ++calls_;
        out.back().tool_calls.push_back(
            {static_cast<uint32_t>(event.call), std::move(id), event.text, ""});
        break;
      }
      case Event::Kind::kArguments: {
        std::vector<ToolCallDelta>& calls = out.back().tool_calls;
        const auto index = static_cast<uint32_t>(event.call);
        // Name and arguments are pieces of their own.
        const bool goes_on =
            !calls.empty() && calls.back().index == index && calls.back().id.empty();
        if (!goes_on) calls.push_back({index, "", "", ""});
        calls.back().arguments += event.text;
        break;
      }
      case Event::Kind::kCallEnd:
        complete_ = reading_.one_call;
        break;
    }
  }
}

}  // namespace quire
