// An answer in one message, which may be megabytes: large ones are written on a background thread,
// so that no turn of the loop writes them for one client.
//
// Owner: the call that answers, and the work that writes it. Fields are the event loop's, except
// while the answer is being written.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "inference/open_inference.pb.h"
#include "router/grpc/services.h"
#include "router/oip/infer_request.h"

namespace quire::oip {

struct WholeAnswer {
  explicit WholeAnswer(std::shared_ptr<MemoryAccount> account) : hold(std::move(account)) {}

  // The answer's message, a part of the message that is sent or all of it.
  void Fill(inference::ModelInferResponse& out) const;

  InferRequest request;  // less what the pipeline was given
  std::vector<OutputTensor> outputs;
  bool of_stream = false;      // a message of ModelStreamInfer
  bool final = true;           // no response follows for the request
  std::string trace_response;  // empty: the call's metadata says it
  MemoryHold hold;             // of the outputs and their copies while they are written
  // Once it has been written: the message, or the reason why it is not sent.
  std::string bytes;
  std::optional<ApiError> problem;
};

struct AnswerWork {
  std::string owner;      // the tenant's name
  size_t held_bytes = 0;  // by the outputs
  std::shared_ptr<const std::atomic<bool>> cancelled;
};

// Whether an answer that holds so much is written off the loop.
inline bool IsLarge(const GrpcServices& services, size_t held_bytes) {
  return held_bytes > services.limits.background_write_bytes;
}

// Calls `done` on the loop once the answer is written, or its client has left. The error: there is
// no memory, or no place among the background's work.
std::optional<ApiError> WriteOffLoop(const GrpcServices& services, const AnswerWork& work,
                                     const std::shared_ptr<WholeAnswer>& answer,
                                     std::function<void()> done);

}  // namespace quire::oip
