// How long a client may take for a message that its call awaits.
#include <gtest/gtest.h>

#include "inference/open_inference.pb.h"
#include "router/grpc/oip/stream_call.h"
#include "tests/router/support/wire_client.h"

namespace quire {
namespace {

using wire::Data;
using wire::Frame;
using wire::GenerateBytes;
using wire::Headers;
using wire::kEndStream;
using wire::kGenerate;
using wire::Message;
using wire::Post;
using wire::WireClient;

constexpr Micros kLimit = 2 * kMicrosPerSecond;
constexpr Micros kHour = 3600 * kMicrosPerSecond;
constexpr char kStreamInfer[] = "/inference.GRPCInferenceService/ModelStreamInfer";

GrpcEdgeLimits Limits() {
  GrpcEdgeLimits limits;
  limits.message_timeout = kLimit;
  limits.keep_alive = kHour;  // this client answers no ping
  return limits;
}

std::string InferMessage(const std::string& id) {
  inference::ModelInferRequest request;
  request.set_model_name("demo");
  request.set_id(id);
  auto& input = *request.add_inputs();
  input.set_name("text_input");
  input.set_datatype("BYTES");
  input.add_shape(1);
  input.mutable_contents()->add_bytes_contents("x");
  return Message(request.SerializeAsString());
}

// Of what a client says at first, the rest comes `late` after; the status that it gets.
std::string StatusWhenLate(const std::string& path, const std::string& bytes, size_t at_first,
                           Micros late, uint64_t timeouts) {
  WireClient client(Limits());
  client.Hello();
  client.Say(Headers(1, Post(path)));
  if (at_first > 0) client.Say(Data(1, bytes.substr(0, at_first)));
  client.Wait(late);
  client.Say(Data(1, bytes.substr(at_first), kEndStream));
  client.Wait(kMicrosPerMilli);
  EXPECT_EQ(client.counters.grpc_message_timeouts.value(), timeouts);
  EXPECT_EQ(client.pipeline.seen.size(), 1 - timeouts);
  EXPECT_EQ(client.connection->calls(), 0u);
  EXPECT_FALSE(client.closed) << "other calls of the connection go on";
  return client.answers[1].status();
}

TEST(GrpcMessageTimeout, AMessageWholeAtTheLimitIsServedAndOneTooLateIsRefusedAndCounted) {
  const std::string one = Message(GenerateBytes());
  for (const size_t at_first : {size_t{0}, size_t{3}, size_t{5}, one.size() - 1}) {
    EXPECT_EQ(StatusWhenLate(kGenerate, one, at_first, kLimit - 1, 0), "0") << at_first;
    EXPECT_EQ(StatusWhenLate(kGenerate, one, at_first, kLimit, 1), "4") << at_first;
  }
  const std::string many = InferMessage("a");
  for (const size_t at_first : {size_t{3}, many.size() - 1}) {
    EXPECT_EQ(StatusWhenLate(kStreamInfer, many, at_first, kLimit - 1, 0), "0") << at_first;
    EXPECT_EQ(StatusWhenLate(kStreamInfer, many, at_first, kLimit, 1), "4") << at_first;
  }
  EXPECT_EQ(StatusWhenLate(kStreamInfer, many, 0, 10 * kLimit, 0), "0") << "none is begun";
}

TEST(GrpcMessageTimeout, TheClientHearsWhy) {
  WireClient client(Limits());
  client.Hello();
  client.Say(Headers(1, Post(kGenerate)));
  client.Wait(kLimit);
  EXPECT_EQ(client.answers[1].trailer("grpc-message"),
            "the client's message came too slowly: it must be whole within 2000 ms "
            "(--body-timeout)");
  EXPECT_EQ(client.counters.grpc_cancelled.value(), 0u) << "nothing had begun";
}

TEST(GrpcMessageTimeout, BytesThatTrickleInBuyNoTime) {
  WireClient client(Limits());
  client.Hello();
  client.Say(Headers(1, Post(kGenerate)));
  const std::string bytes = Message(GenerateBytes(3, std::string(100, 'x')));
  for (int i = 0; i < 4; ++i) {
    EXPECT_FALSE(client.answers[1].ended) << i;
    client.Say(Data(1, bytes.substr(static_cast<size_t>(i), 1)));
    client.Wait(kLimit / 4);
  }
  EXPECT_EQ(client.answers[1].status(), "4");
}

TEST(GrpcMessageTimeout, AStreamIsIdleAsLongAsItLikesAndEachMessageHasItsTime) {
  WireClient client(Limits());
  client.Hello();
  const std::string first = InferMessage("a"), second = InferMessage("b");
  client.Say(Headers(1, Post(kStreamInfer)) + Data(1, first.substr(0, 7)));
  client.Wait(kLimit - 1);
  // One ends and the next begins in the same bytes.
  client.Say(Data(1, first.substr(7) + second.substr(0, 7)));
  client.Wait(kLimit - 1);
  client.Say(Data(1, second.substr(7)));
  client.Wait(kHour / 2);
  EXPECT_FALSE(client.answers[1].ended);
  EXPECT_EQ(client.pipeline.seen.size(), 2u);
  client.Say(Data(1, second.substr(0, 7)));
  client.Wait(kLimit);
  EXPECT_EQ(client.answers[1].status(), "4");
  EXPECT_EQ(client.counters.grpc_message_timeouts.value(), 1u);
  EXPECT_EQ(client.pipeline.seen.size(), 2u);
}

TEST(GrpcMessageTimeout, WhoIsHeldBackByItsWindowIsNotTimed) {
  WireClient client(Limits());
  client.Hello(wire::Setting(4, 0));  // no window for answers: they wait here
  client.pipeline.mode = FakePipeline::Mode::kManual;
  client.Say(Headers(1, Post(kStreamInfer)));
  // Its name again and again: each is refused, and after so many refusals nothing more is read.
  for (size_t i = 0; i < oip::kMaxWaiting + 4; ++i) client.Say(Data(1, InferMessage("a")));
  EXPECT_EQ(client.counters.grpc_stream_pauses.value(), 1u);
  client.Say(Data(1, InferMessage("b").substr(0, 7)));
  client.Wait(10 * kLimit);
  EXPECT_EQ(client.counters.grpc_message_timeouts.value(), 0u);
  client.Say(Frame(wire::kWindowUpdate, 0, 1, wire::Number(1 << 30, 4)) +
             Frame(wire::kWindowUpdate, 0, 0, wire::Number(1 << 30, 4)));
  client.Wait(kLimit - 2);
  EXPECT_EQ(client.counters.grpc_message_timeouts.value(), 0u);
  client.Wait(4);
  EXPECT_EQ(client.counters.grpc_message_timeouts.value(), 1u);
}

}  // namespace
}  // namespace quire
