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
#include <string>
#include <string_view>
#include <vector>

#include "router/core/api.h"

namespace quire {

class AnswerEvents {
 public:
  virtual ~AnswerEvents() = default;

  // Before everything else: the request's id, and the time in case it fails before it begins.
  virtual void Name(std::string_view request_id, int64_t unix_seconds) = 0;
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
  std::string session;  // the client's name for its conversation, where no header has one
  size_t tools_left_out =
      0;  // tools that only their maker's service has, which the model is not shown
  std::vector<std::string> unknown_fields;
  std::unique_ptr<AnswerEvents> answer;
};

}  // namespace quire
