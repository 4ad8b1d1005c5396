// What a message takes once it is parsed is never more than its bytes foretold.
#include "router/grpc/parsed_bytes.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <functional>
#include <string>

#include "inference/open_inference.pb.h"
#include "quire/v1/inference.pb.h"

namespace quire {
namespace {

size_t HeapBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

template <class Message>
void ExpectForetold(const std::string& bytes, const char* what) {
  const size_t foretold = ParsedBytes(*Message::descriptor(), bytes);
  const size_t before = HeapBytes();
  Message message;
  ASSERT_TRUE(message.ParseFromString(bytes)) << what;
  const size_t grown = HeapBytes() - before;
  EXPECT_LE(message.SpaceUsedLong(), foretold) << what;
  EXPECT_LE(grown, foretold) << what;
}

constexpr int kMany = 20'000;

TEST(ParsedBytes, NoMessageTakesMoreThanItsBytesForetell) {
  v1::ChatRequest chat;
  for (int i = 0; i < kMany; ++i) chat.add_messages();
  ExpectForetold<v1::ChatRequest>(chat.SerializeAsString(), "empty messages");
  chat.Clear();
  for (int i = 0; i < kMany; ++i) chat.add_messages()->set_content("a text of some more bytes");
  ExpectForetold<v1::ChatRequest>(chat.SerializeAsString(), "messages");

  v1::GenerateRequest generate;
  for (int i = 0; i < kMany; ++i) generate.mutable_sampling()->add_stop("");
  ExpectForetold<v1::GenerateRequest>(generate.SerializeAsString(), "stop strings");
  generate.Clear();
  for (int i = 0; i < kMany; ++i) (*generate.mutable_sampling()->mutable_logit_bias())[i] = 1;
  ExpectForetold<v1::GenerateRequest>(generate.SerializeAsString(), "biases");
  generate.Clear();
  for (int i = 0; i < kMany; ++i) generate.mutable_token_ids()->add_ids(1);
  ExpectForetold<v1::GenerateRequest>(generate.SerializeAsString(), "ids");
  generate.Clear();
  for (int i = 0; i < kMany; ++i) generate.mutable_resume()->add_outputs();
  ExpectForetold<v1::GenerateRequest>(generate.SerializeAsString(), "outputs");
  generate.Clear();
  generate.set_text(std::string(1 << 20, 'x'));
  const std::string text = generate.SerializeAsString();
  ExpectForetold<v1::GenerateRequest>(text, "a text");
  EXPECT_LT(ParsedBytes(*v1::GenerateRequest::descriptor(), text), text.size() + text.size() / 32)
      << "what is honest costs little";

  inference::ModelInferRequest infer;
  for (int i = 0; i < kMany; ++i) infer.add_inputs();
  ExpectForetold<inference::ModelInferRequest>(infer.SerializeAsString(), "inputs");
  infer.Clear();
  for (int i = 0; i < kMany; ++i) (*infer.mutable_parameters())[std::to_string(i)];
  ExpectForetold<inference::ModelInferRequest>(infer.SerializeAsString(), "parameters");
}

TEST(ParsedBytes, FieldsThatNobodyKnowsCount) {
  std::string unknown;
  for (int i = 0; i < kMany; ++i) unknown += std::string("\xF8\x3F\x01", 3);  // field 1023: 1
  ExpectForetold<v1::ChatRequest>(unknown, "unknown numbers");
  unknown.clear();
  for (int i = 0; i < kMany; ++i) unknown += std::string("\xFA\x3F\x00", 3);  // field 1023: ""
  ExpectForetold<v1::ChatRequest>(unknown, "unknown strings");
  unknown.clear();
  for (int i = 0; i < kMany; ++i) unknown += std::string("\xFB\x3F\xFC\x3F", 4);  // groups
  ExpectForetold<v1::ChatRequest>(unknown, "unknown groups");
}

TEST(ParsedBytes, MalformedBytesEnd) {
  for (const std::string& bad : {std::string("\x0A\xFF\xFF\xFF\xFF\x7F", 6), std::string("\x0A"),
                                 std::string(100, '\xFF'), std::string("\x07\x07")}) {
    EXPECT_LT(ParsedBytes(*v1::ChatRequest::descriptor(), bad), 100'000u);
  }
}

}  // namespace
}  // namespace quire
