#include "tests/conformance/grpc_interop/test_service.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "common/status.h"
#include "grpc_interop/testing.pb.h"

namespace quire::interop {
namespace {

namespace pb = ::grpc::testing;

constexpr char kService[] = "grpc.testing.TestService";
constexpr char kLoadService[] = "xds.service.orca.v3.OpenRcaService";
constexpr char kEchoInitial[] = "x-grpc-test-echo-initial";
constexpr char kEchoTrailing[] = "x-grpc-test-echo-trailing-bin";
constexpr char kLoadTrailer[] = "endpoint-load-metrics-bin";
constexpr Micros kMinReportInterval = 100 * kMicrosPerMilli;

void EchoMetadata(GrpcCall& call) {
  const GrpcCallHead& head = call.head();
  if (head.Count(kEchoInitial) > 0) {
    call.AddInitialMetadata(kEchoInitial, std::string(head.Find(kEchoInitial)));
  }
  if (head.Count(kEchoTrailing) > 0) {
    call.AddTrailingMetadata(kEchoTrailing, std::string(head.Find(kEchoTrailing)));
  }
}

absl::Status StatusOf(const pb::EchoStatus& asked) {
  return absl::Status(static_cast<absl::StatusCode>(asked.code()), asked.message());
}

absl::Status CheckPacking(const GrpcCall& call, bool is_expected, bool expected) {
  if (!is_expected || expected == call.packed()) return absl::OkStatus();
  return InvalidArgument(expected ? "expect_compressed: the message came uncompressed"
                                  : "expect_compressed: the message came compressed");
}

absl::Status FillPayload(int32_t bytes, pb::Payload& payload) {
  if (bytes < 0 || bytes > kMaxPayloadBytes) {
    return InvalidArgument("response size " + std::to_string(bytes) + ": 0 to " +
                           std::to_string(kMaxPayloadBytes) + " bytes can be asked for");
  }
  payload.set_type(pb::COMPRESSABLE);
  payload.mutable_body()->assign(static_cast<size_t>(bytes), '\0');
  return absl::OkStatus();
}

pb::load::OrcaLoadReport ReportOf(const pb::TestOrcaReport& asked) {
  pb::load::OrcaLoadReport report;
  report.set_cpu_utilization(asked.cpu_utilization());
  report.set_mem_utilization(asked.memory_utilization());
  *report.mutable_request_cost() = asked.request_cost();
  *report.mutable_utilization() = asked.utilization();
  return report;
}

GrpcCallHandler::Step AnswerEmpty(const std::shared_ptr<GrpcCall>& call, const pb::Empty&) {
  return [call] {
    call->Send(pb::Empty());
    call->Finish(absl::OkStatus());
  };
}

void AnswerUnary(const TestWorld& world, GrpcCall& call, const pb::SimpleRequest& request) {
  EchoMetadata(call);
  const absl::Status packing =
      CheckPacking(call, request.has_expect_compressed(), request.expect_compressed().value());
  if (!packing.ok()) return call.Finish(packing);
  if (request.response_status().code() != 0)
    return call.Finish(StatusOf(request.response_status()));
  pb::SimpleResponse response;
  const absl::Status filled = FillPayload(request.response_size(), *response.mutable_payload());
  if (!filled.ok()) return call.Finish(filled);
  if (request.fill_server_id()) response.set_server_id(world.server_id);
  if (request.has_orca_per_query_report()) {
    call.AddTrailingMetadata(kLoadTrailer,
                             ReportOf(request.orca_per_query_report()).SerializeAsString());
  }
  call.Send(response);
  call.Finish(absl::OkStatus());
}

// What of the client's stream is one number: the bytes of its payloads.
class InputCall final : public GrpcCallHandler {
 public:
  explicit InputCall(std::shared_ptr<GrpcCall> call) : call_(std::move(call)) {}

  Step Read(std::string_view message) override {
    pb::StreamingInputCallRequest request;
    if (!request.ParseFromArray(message.data(), static_cast<int>(message.size()))) return {};
    return [this, request = std::move(request)] {
      const absl::Status packing = CheckPacking(*call_, request.has_expect_compressed(),
                                                request.expect_compressed().value());
      if (!packing.ok()) return call_->Finish(packing);
      payload_bytes_ += request.payload().body().size();
    };
  }
  void OnHalfClose() override {
    pb::StreamingInputCallResponse response;
    response.set_aggregated_payload_size(static_cast<int32_t>(payload_bytes_));
    call_->Send(response);
    call_->Finish(absl::OkStatus());
  }

 private:
  const std::shared_ptr<GrpcCall> call_;
  size_t payload_bytes_ = 0;
};

// Answers of the sizes and at the intervals that the client asks for: with its messages, or once it
// has said all.
class OutputCall final : public GrpcCallHandler, public std::enable_shared_from_this<OutputCall> {
 public:
  OutputCall(TestWorld& world, std::shared_ptr<GrpcCall> call, bool answers_at_end)
      : world_(world), call_(std::move(call)), answers_at_end_(answers_at_end) {
    EchoMetadata(*call_);
  }

  Step Read(std::string_view message) override {
    pb::StreamingOutputCallRequest request;
    if (!request.ParseFromArray(message.data(), static_cast<int>(message.size()))) return {};
    return [this, request = std::move(request)] { Take(request); };
  }
  void OnHalfClose() override {
    half_closed_ = true;
    Answer();
  }
  void OnCancelled() override {
    waiting_.clear();
    if (timer_ != 0) world_.executor.Cancel(std::exchange(timer_, 0));
  }

 private:
  void Take(const pb::StreamingOutputCallRequest& request) {
    if (request.response_status().code() != 0) {
      return call_->Finish(StatusOf(request.response_status()));
    }
    if (request.has_orca_oob_report()) world_.load = ReportOf(request.orca_oob_report());
    for (const pb::ResponseParameters& parameters : request.response_parameters()) {
      waiting_.push_back({parameters.size(), parameters.interval_us()});
    }
    if (!answers_at_end_) Answer();
  }

  void Answer() {
    while (call_->open() && timer_ == 0 && !waiting_.empty()) {
      if (const Micros pause = std::exchange(waiting_.front().pause, 0); pause > 0)
        return Wait(pause);
      pb::StreamingOutputCallResponse response;
      const absl::Status filled = FillPayload(waiting_.front().bytes, *response.mutable_payload());
      if (!filled.ok()) return call_->Finish(filled);
      call_->Send(response);
      waiting_.pop_front();
    }
    if (half_closed_ && waiting_.empty()) call_->Finish(absl::OkStatus());
  }

  void Wait(Micros pause) {
    const Micros due = world_.executor.clock().Now() + pause;
    timer_ = world_.executor.PostAt(due, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      self->timer_ = 0;
      self->Answer();
    });
  }

  struct Waiting {
    int32_t bytes;
    Micros pause;  // before it
  };

  TestWorld& world_;
  const std::shared_ptr<GrpcCall> call_;
  const bool answers_at_end_;
  bool half_closed_ = false;
  std::deque<Waiting> waiting_;
  TimerId timer_ = 0;
};

// The server's load, at the interval that its client asks for, until the client leaves.
class LoadCall final : public GrpcCallHandler, public std::enable_shared_from_this<LoadCall> {
 public:
  LoadCall(TestWorld& world, std::shared_ptr<GrpcCall> call)
      : world_(world), call_(std::move(call)) {}

  Step Read(std::string_view message) override {
    pb::load::OrcaLoadReportRequest request;
    if (!request.ParseFromArray(message.data(), static_cast<int>(message.size()))) return {};
    const Micros asked = request.report_interval().seconds() * kMicrosPerSecond +
                         request.report_interval().nanos() / 1000;
    return [this, asked] {
      interval_ = std::max(asked, kMinReportInterval);
      Report();
    };
  }
  void OnCancelled() override {
    if (timer_ != 0) world_.executor.Cancel(std::exchange(timer_, 0));
  }

 private:
  void Report() {
    call_->Send(world_.load);
    const Micros due = world_.executor.clock().Now() + interval_;
    timer_ = world_.executor.PostAt(due, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self == nullptr || !self->call_->open()) return;
      self->Report();
    });
  }

  TestWorld& world_;
  const std::shared_ptr<GrpcCall> call_;
  Micros interval_ = 0;
  TimerId timer_ = 0;
};

GrpcMethod OutputMethod(TestWorld& world, bool many_messages, bool answers_at_end) {
  GrpcMethod method;
  method.many_messages = many_messages;
  method.begin = [&world, answers_at_end](std::shared_ptr<GrpcCall> call) {
    return std::make_shared<OutputCall>(world, std::move(call), answers_at_end);
  };
  return method;
}

}  // namespace

void AddTestService(TestWorld& world, GrpcMethods& methods) {
  methods.Add(kService, "EmptyCall", OneMessageMethod<pb::Empty>(AnswerEmpty));
  methods.Add(kService, "UnaryCall",
              OneMessageMethod<pb::SimpleRequest>([&world](const std::shared_ptr<GrpcCall>& call,
                                                           const pb::SimpleRequest& request) {
                return [&world, call, request] { AnswerUnary(world, *call, request); };
              }));
  GrpcMethod input;
  input.many_messages = true;
  input.begin = [](std::shared_ptr<GrpcCall> call) {
    return std::make_shared<InputCall>(std::move(call));
  };
  methods.Add(kService, "StreamingInputCall", std::move(input));
  methods.Add(kService, "StreamingOutputCall", OutputMethod(world, false, false));
  methods.Add(kService, "FullDuplexCall", OutputMethod(world, true, false));
  methods.Add(kService, "HalfDuplexCall", OutputMethod(world, true, true));
  GrpcMethod load;
  load.begin = [&world](std::shared_ptr<GrpcCall> call) {
    return std::make_shared<LoadCall>(world, std::move(call));
  };
  methods.Add(kLoadService, "StreamCoreMetrics", std::move(load));
}

}  // namespace quire::interop
