#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "bench/client/load.h"
#include "quire/v1/inference.grpc.pb.h"

namespace quire::bench {
namespace {

class GrpcLoad;

std::chrono::system_clock::time_point DeadlineOf(const LoadOptions& options) {
  return std::chrono::system_clock::now() + std::chrono::seconds(options.timeout_s);
}

// One streamed call; deletes itself.
class StreamCall final : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  StreamCall(GrpcLoad& load, int64_t number);
  void Begin(v1::Inference::Stub& stub);
  void OnReadDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  void CancelAt(int64_t tokens);
  void Take(const v1::GenerateResponse& event);

  GrpcLoad& load_;
  const LoadOptions& options_;
  const uint64_t seed_;
  const int cancel_after_;
  grpc::ClientContext context_;
  v1::GenerateRequest request_;
  v1::GenerateResponse message_;
  Outcome outcome_;
  int64_t begun_at_ = 0;
  bool usage_seen_ = false;
};

class GrpcLoad final : public Load {
 public:
  GrpcLoad(const LoadOptions& options, Tally& tally) : options(options), tally(tally) {
    for (int32_t i = 0; i < options.channels; ++i) {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // a connection of its own
      arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
      arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
      if (options.keepalive_ms > 0) {
        arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, options.keepalive_ms);
        arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
        arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
      }
      stubs_.push_back(v1::Inference::NewStub(grpc::CreateCustomChannel(
          options.target, grpc::InsecureChannelCredentials(), arguments)));
    }
  }

  void Next() override {
    const int64_t number = tally.Begin();
    if (number < 0) return;
    v1::Inference::Stub& stub = *stubs_[static_cast<size_t>(number) % stubs_.size()];
    if (options.unary) {
      Unary(stub);
    } else {
      (new StreamCall(*this, number))->Begin(stub);
    }
  }

  void Ended(const Outcome& outcome) {
    if (options.rate == 0) Next();
    tally.Count(outcome);
  }

  const LoadOptions& options;
  Tally& tally;

 private:
  struct UnaryCall {
    grpc::ClientContext context;
    v1::TokenizeRequest request;
    v1::TokenizeResponse response;
    int64_t begun_at = 0;
  };

  void Unary(v1::Inference::Stub& stub) {
    auto* call = new UnaryCall;
    call->context.set_deadline(DeadlineOf(options));
    call->request.set_model(options.model);
    call->request.set_text(std::string(static_cast<size_t>(2 * options.prompt_tokens), 'a'));
    call->begun_at = SteadyMicros();
    stub.async()->Tokenize(&call->context, &call->request, &call->response,
                           [this, call](const grpc::Status& status) {
                             Outcome outcome;
                             outcome.status = std::to_string(status.error_code());
                             outcome.error = status.error_message();
                             outcome.complete = status.ok();
                             outcome.ended_at_us = SteadyMicros();
                             outcome.total_us = outcome.ended_at_us - call->begun_at;
                             outcome.first_us = outcome.total_us;
                             outcome.tokens = call->response.token_ids_size();
                             delete call;
                             Ended(outcome);
                           });
  }

  std::vector<std::unique_ptr<v1::Inference::Stub>> stubs_;
};

StreamCall::StreamCall(GrpcLoad& load, int64_t number)
    : load_(load),
      options_(load.options),
      seed_(static_cast<uint64_t>(load.options.first_seed + number)),
      cancel_after_(CancelAfter(load.options, number)) {}

void StreamCall::Begin(v1::Inference::Stub& stub) {
  request_.set_model(options_.model);
  const std::vector<int32_t> prompt = PromptOf(options_, seed_);
  request_.mutable_token_ids()->mutable_ids()->Add(prompt.begin(), prompt.end());
  request_.mutable_sampling()->set_seed(seed_);
  request_.mutable_sampling()->set_max_tokens(options_.max_tokens);
  request_.mutable_sampling()->set_ignore_eos(true);
  request_.set_omit_text(true);
  request_.set_joined_events(true);
  context_.set_deadline(DeadlineOf(options_));
  begun_at_ = SteadyMicros();
  stub.async()->Generate(&context_, &request_, this);
  AddHold();  // the call may end, and with it this object, before the next line
  StartRead(&message_);
  StartCall();
  CancelAt(0);
  RemoveHold();
}

void StreamCall::CancelAt(int64_t tokens) {
  if (cancel_after_ < 0 || tokens < cancel_after_) return;
  outcome_.cancelled = true;
  context_.TryCancel();
}

void StreamCall::OnReadDone(bool ok) {
  if (!ok) return;
  Take(message_);
  for (const v1::GenerateResponse& event : message_.more()) Take(event);
  StartRead(&message_);
}

void StreamCall::Take(const v1::GenerateResponse& event) {
  if (event.has_delta()) {
    const v1::Delta& delta = event.delta();
    if (delta.first_index() != static_cast<uint64_t>(outcome_.tokens)) outcome_.wrong = true;
    const std::vector<int32_t> ids(delta.token_ids().begin(), delta.token_ids().end());
    if (outcome_.Take(options_, seed_, ids, begun_at_)) load_.tally.Opened();
    if (!outcome_.cancelled) CancelAt(outcome_.tokens);
  }
  usage_seen_ = usage_seen_ || event.has_usage();
}

void StreamCall::OnDone(const grpc::Status& status) {
  outcome_.status = std::to_string(status.error_code());
  outcome_.error = status.error_message();
  outcome_.ended_at_us = SteadyMicros();
  outcome_.total_us = outcome_.ended_at_us - begun_at_;
  outcome_.complete =
      status.ok() && usage_seen_ && !outcome_.wrong && outcome_.tokens == options_.max_tokens;
  outcome_.told_when = context_.GetServerTrailingMetadata().count("retry-after") > 0;
  GrpcLoad& load = load_;
  const Outcome outcome = std::move(outcome_);
  delete this;
  load.Ended(outcome);
}

}  // namespace

std::unique_ptr<Load> MakeGrpcLoad(const LoadOptions& options, Tally& tally) {
  return std::make_unique<GrpcLoad>(options, tally);
}

}  // namespace quire::bench
