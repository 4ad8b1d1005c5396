#include "router/grpc/oip/whole_answer.h"

#include <utility>

#include "router/core/result.h"
#include "router/grpc/oip/oip_messages.h"

namespace quire::oip {
namespace {

constexpr size_t kAnswerCopies = 3;  // the outputs, the message that is made of them, its bytes

template <class Message>
void WriteAs(const Message& message, size_t limit, WholeAnswer& answer) {
  answer.problem = CheckSize(message, limit);
  if (!answer.problem) answer.bytes = message.SerializeAsString();
}

void WriteWhole(size_t limit, WholeAnswer& answer) {
  if (answer.of_stream) {
    inference::ModelStreamInferResponse message;
    answer.Fill(*message.mutable_infer_response());
    WriteAs(message, limit, answer);
  } else {
    inference::ModelInferResponse message;
    answer.Fill(message);
    WriteAs(message, limit, answer);
  }
  answer.outputs.clear();
}

}  // namespace

void WholeAnswer::Fill(inference::ModelInferResponse& out) const {
  ToProto(request, outputs, out);
  MarkFinal(final, out);
  if (!trace_response.empty()) {
    (*out.mutable_parameters())["traceresponse"].set_string_param(trace_response);
  }
}

std::optional<ApiError> WriteOffLoop(const GrpcServices& services, const AnswerWork& work,
                                     const std::shared_ptr<WholeAnswer>& answer,
                                     std::function<void()> done) {
  if (!answer->hold.TryResize(kAnswerCopies * work.held_bytes)) return NoMemoryForAnswer();
  const WorkShare share{work.owner, work.held_bytes, work.cancelled};
  const auto write = [answer, limit = services.limits.max_send_bytes] {
    WriteWhole(limit, *answer);
  };
  if (services.background.RunFor(share, write, std::move(done))) return std::nullopt;
  return TooManyLargeRequests();
}

}  // namespace quire::oip
