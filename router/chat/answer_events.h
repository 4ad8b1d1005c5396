// The answer of one request in the words of an API that speaks of items or blocks: text, thoughts
// and calls, as events of a stream or as one whole.
//
// Owner: the call that answers; event loop only. The pipeline's order holds: Begin, (Add | End)*,
// then Finish or Fail.
//  1. What it appends depends on what it was given alone, not on how the outputs were cut.
//  2. Ids derive from the request's id and from positions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "router/core/api.h"

namespace quire {

class AnswerEvents {
 public:
  virtual ~AnswerEvents() = default;

  // The time of the call that follows, in microseconds of a clock that never runs back: for APIs
  // whose answers have durations.
  virtual void At(int64_t /*now*/) {}
  // Before everything else: the request's id, and the time in case it fails before it begins.
  virtual void Name(std::string_view request_id, int64_t unix_seconds) = 0;
  // Before Begin, once a second while the model is loaded.
  virtual void Wait() {}
  // What breaks the silence of a stream; empty: what AgentApi says. After Name.
  virtual std::string KeepAlive() const { return {}; }
  // Each appends the events of a stream to `out`; nullptr: the answer is collected, for Whole.
  virtual void Begin(const Started& started, std::string* out) = 0;
  virtual void Add(const Delta& delta, std::string* out) = 0;
  virtual void End(const ChoiceEnd& end) = 0;
  virtual void Finish(const Usage& usage, std::string* out) = 0;
  // Of a stream; also before Begin.
  virtual void Fail(const ApiError& error, std::string& out) = 0;
  // After Finish.
  virtual std::string Whole() const = 0;
  // At most what is kept of the answer so far.
  virtual size_t held_bytes() const = 0;
};

// A body of such an API, read.
struct AgentRequest {
  GenerateRequest generate;
  bool stream = false;
  // How long the model shall stay loaded when it is idle, in microseconds; < 0: for ever.
  std::optional<int64_t> keep_alive = std::nullopt;
  // Nothing is asked of the model: it shall be loaded or, with a keep_alive of 0, unloaded.
  bool only_load = false;
  std::string session;  // the client's name for its conversation, where no header has one
  size_t tools_left_out =
      0;  // tools that only their maker's service has, which the model is not shown
  std::vector<std::string> unknown_fields;
  std::unique_ptr<AnswerEvents> answer;
};

}  // namespace quire
