// One ModelStreamInfer call: requests that come one after the other, run at once, and are
// distinguished by their ids.
//
// Owners: its GrpcCall, and the work posted by it (shared_ptr in each); event loop only, except for
// Read.
//
// Invariants:
// 1. No two running requests have the same id. An error of one request carries its id and does not
//    affect the others.
// 2. One request is read at a time, and none while more than kMaxWaiting responses wait to be
//    written.
// 3. Every step's outputs are one response, or all are one where the request says so; the last has
//    triton_final_response = true.
// 4. After the client's half-close the call ends with its last request; when the client is gone,
//    all of them end.
// 5. A request's whole answer above GrpcEdgeLimits::background_write_bytes is written on a
//    background thread; the request is running until then.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "inference/open_inference.pb.h"
#include "router/grpc/message_writer.h"
#include "router/grpc/oip/infer_call.h"
#include "router/grpc/services.h"
#include "router/oip/infer_answer.h"

namespace quire::oip {

inline constexpr size_t kMaxWaiting = 1024;

using StreamWriter = MessageWriter<inference::ModelStreamInferResponse>;

class StreamCall final : public GrpcCallHandler, public std::enable_shared_from_this<StreamCall> {
 public:
  StreamCall(GrpcServices& services, std::shared_ptr<GrpcCall> call);
  ~StreamCall() override;

  Step Read(std::string_view message) override;
  void OnHalfClose() override;
  void OnCancelled() override;
  void OnTaken(uint64_t whose, uint64_t index) override;
  void OnDrained() override;

 private:
  class Part final : public ResponseSink {
   public:
    Part(StreamCall& owner, uint64_t its_number, InferRequest its_request)
        : call(owner),
          number(its_number),
          request(std::move(its_request)),
          answer(request),
          hold(owner.services_.pipeline.MemoryOf(request.generate.tenant.get())) {}
    void OnStarted(const Started& started) override { answer.Add(started); }
    void OnDelta(const Delta& delta) override { call.PartDelta(*this, delta); }
    void OnChoiceEnd(const ChoiceEnd& end) override { answer.Add(end); }
    void OnFinished(const Usage&) override { call.PartFinished(*this); }
    void OnError(const ApiError& error) override { call.PartError(*this, error); }

    StreamCall& call;
    const uint64_t number;
    InferRequest request;  // less what the pipeline was given
    InferAnswer answer;
    MemoryHold hold;             // of it, where it waits until it is whole
    RequestId id = 0;            // 0 once it has ended
    std::string trace_response;  // until it has been reported
    uint64_t told = 0;  // outputs below it were, or will be, reported to the pipeline as taken
    bool flush_posted = false;
  };

  void Take(ReadRequest read);
  void Launch(InferRequest request);
  void Refuse(const InferRequest& request, const ApiError& error);
  void PartDelta(Part& part, const Delta& delta);
  void PartFinished(Part& part);
  void PartError(Part& part, const ApiError& error);
  void Flush(uint64_t number);
  // False: the response would be too large; `part` has ended with that error and is gone.
  [[nodiscard]] bool Emit(Part& part, bool final);
  void AnswerOffLoop(Part& part);
  void Written(uint64_t number, WholeAnswer& answer);
  void EndAnswered(Part& part);
  void Fail(Part& part, const ApiError& error);
  void Send(std::unique_ptr<StreamWriter::Message> message);
  void Drop(Part& part);
  void PauseOrReadOn();
  void EndIfDone();

  GrpcServices& services_;
  const std::shared_ptr<GrpcCall> call_;
  StreamWriter writer_;
  std::map<uint64_t, std::unique_ptr<Part>> parts_;  // that run, by number
  std::set<std::string> ids_;                        // theirs
  uint64_t next_number_ = 1;
  std::string owner_;  // the tenant's name
  const std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
  bool write_posted_ = false;
  bool reading_paused_ = false;
  bool half_closed_ = false;
  bool tenant_known_ = false;  // to the call
  bool ended_ = false;
};

}  // namespace quire::oip
