// Metadata whose values are bytes, both ways.
#include <gtest/gtest.h>

#include "absl/strings/cord.h"
#include "common/http2/grpc_framing.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "tests/router/support/wire_client.h"

namespace quire {
namespace {

const std::string kBytes("\0\1\xfe,\n", 5);

// Sends back what it is given, at the beginning and at the end.
class Echo final : public GrpcCallHandler {
 public:
  explicit Echo(std::shared_ptr<GrpcCall> call) : call_(std::move(call)) {}
  Step Read(std::string_view) override {
    return [this] {
      for (const auto& [name, value] : call_->head().metadata) {
        if (!name.starts_with("x-")) continue;
        call_->AddInitialMetadata(name, value);
        call_->AddTrailingMetadata(name, value);
      }
      call_->SendBytes("");
      call_->Finish(absl::OkStatus());
    };
  }

 private:
  const std::shared_ptr<GrpcCall> call_;
};

wire::Answer AnswerTo(const wire::HeaderPairs& metadata) {
  wire::WireClient client;
  client.methods.Add("test.Echo", "Echo", {.begin = [](std::shared_ptr<GrpcCall> call) {
                       return std::make_shared<Echo>(std::move(call));
                     }});
  client.Hello();
  client.Say(wire::Headers(1, wire::Post("/test.Echo/Echo", metadata)) +
             wire::Data(1, wire::Message(""), wire::kEndStream));
  return client.answers[1];
}

TEST(BinaryMetadata, IsDecodedAsItComesAndEncodedAsItLeaves) {
  const std::string text = http2::ToBinaryHeader(kBytes);
  const wire::Answer answer = AnswerTo({{"x-some-bin", text}, {"x-plain", "a,b"}});
  EXPECT_EQ(answer.status(), "0");
  EXPECT_EQ(answer.header("x-some-bin"), text);
  EXPECT_EQ(answer.trailer("x-some-bin"), text);
  EXPECT_EQ(answer.trailer("x-plain"), "a,b");
}

TEST(BinaryMetadata, AListIsSeveralValues) {
  const wire::Answer answer = AnswerTo({{"x-some-bin", "YQ==,Yg,Yw"}});
  std::vector<std::string> values;
  for (const auto& [name, value] : answer.trailers) {
    if (name == "x-some-bin") values.push_back(value);
  }
  EXPECT_EQ(values, (std::vector<std::string>{"YQ", "Yg", "Yw"}));
}

TEST(BinaryMetadata, WhatIsNoBase64OrTooLongAListIsRefusedByName) {
  EXPECT_EQ(AnswerTo({{"x-some-bin", std::string(31, ',')}}).status(), "0");
  for (const std::string& wrong : {std::string("%"), std::string(32, ',')}) {
    const wire::Answer answer = AnswerTo({{"x-some-bin", wrong}});
    EXPECT_EQ(answer.status(), "3");
    EXPECT_EQ(answer.trailer("grpc-message").find("x-some-bin: "), 0u);
  }
}

// What a client of this side reads of it, too.
TEST(StatusDetails, NameTheFieldAndTheTimeToComeBack) {
  wire::WireClient client;
  client.Hello();
  client.pipeline.mode = FakePipeline::Mode::kManual;
  client.Say(wire::Call(1));
  client.pipeline.live.begin()->second.sink->OnError(
      {ApiCode::kRateLimited, "too many", "sampling.n", 2500});
  client.pipeline.live.clear();
  client.Hear();
  const wire::Answer& answer = client.answers[1];
  std::vector<http2::Header> trailers;
  for (const auto& [name, value] : answer.trailers) trailers.push_back({name, value});
  const absl::Status status = http2::StatusOfTrailers(trailers, 200);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  const auto payload = status.GetPayload("type.googleapis.com/google.rpc.Status");
  ASSERT_TRUE(payload.has_value());
  google::rpc::Status told;
  ASSERT_TRUE(told.ParseFromString(std::string(*payload)));
  EXPECT_EQ(told.code(), 8);
  EXPECT_EQ(told.message(), StatusMessage(status));
  ASSERT_EQ(told.details_size(), 2);
  google::rpc::BadRequest bad;
  ASSERT_TRUE(told.details(0).UnpackTo(&bad));
  EXPECT_EQ(bad.field_violations(0).field(), "sampling.n");
  google::rpc::RetryInfo retry;
  ASSERT_TRUE(told.details(1).UnpackTo(&retry));
  EXPECT_EQ(retry.retry_delay().seconds(), 2);
  EXPECT_EQ(retry.retry_delay().nanos(), 500'000'000);
}

}  // namespace
}  // namespace quire
