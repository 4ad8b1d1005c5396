#include "common/http2/grpc_framing.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "common/ascii.h"

namespace quire::http2 {
namespace {

std::string Framed(std::string_view message, char flag = 0) {
  std::string out;
  AppendMessage(out, message);
  out[0] = flag;
  return out;
}

std::string Packed(const std::string& message, int window_bits) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, message.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(message.data()));
  stream.avail_in = static_cast<uInt>(message.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::vector<std::string> ReadAll(MessageReader& reader, std::string_view bytes, size_t step) {
  std::vector<std::string> messages;
  for (size_t at = 0; at < bytes.size(); at += step) {
    std::string_view rest = bytes.substr(at, step);
    std::string_view message;
    while (reader.Next(rest, message)) messages.emplace_back(message);
    if (!reader.status().ok()) break;
    EXPECT_TRUE(rest.empty());
  }
  return messages;
}

TEST(MessageReader, AnySplitGivesTheSameMessages) {
  const std::vector<std::string> messages = {"one", "", std::string(70'000, 'x'), "four", ""};
  std::string bytes;
  for (const std::string& message : messages) bytes += Framed(message);
  for (const size_t step : std::vector<size_t>{1, 2, 4, 5, 1000, bytes.size()}) {
    MessageReader reader(100'000);
    EXPECT_EQ(ReadAll(reader, bytes, step), messages) << step;
    EXPECT_TRUE(reader.status().ok());
    EXPECT_FALSE(reader.in_message());
  }
}

TEST(MessageReader, TheLimitIsMetByThePrefixAlone) {
  MessageReader reader(1000);
  EXPECT_EQ(ReadAll(reader, Framed(std::string(1000, 'x')), 1 << 20).size(), 1u);
  std::string longer = Framed(std::string(1001, 'x'));
  longer.resize(5);
  EXPECT_TRUE(ReadAll(reader, longer, 1).empty());
  EXPECT_EQ(reader.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(StatusMessage(reader.status()), "Received message larger than max (1001 vs. 1000)");
  EXPECT_TRUE(ReadAll(reader, Framed("x"), 100).empty()) << "an error is final";
}

TEST(MessageReader, AMessageThatIsCutIsKnown) {
  MessageReader reader(1000);
  const std::string bytes = Framed("message");
  for (size_t end = 1; end < bytes.size(); ++end) {
    MessageReader cut(1000);
    EXPECT_TRUE(ReadAll(cut, bytes.substr(0, end), 1).empty());
    EXPECT_TRUE(cut.in_message()) << end;
    EXPECT_EQ(cut.held(), end <= 5 ? 0 : end - 5);
  }
}

TEST(MessageReader, AMessageIsTakenByItself) {
  const std::string bytes = Framed(std::string(1000, 'x')) + Framed("y");
  MessageReader reader(1000);
  std::string_view rest = std::string_view(bytes).substr(0, 500);
  std::string_view message;
  EXPECT_FALSE(reader.Next(rest, message));
  rest = std::string_view(bytes).substr(500);
  ASSERT_TRUE(reader.Next(rest, message));
  const char* held = message.data();
  const std::string taken = reader.Take(message);
  EXPECT_EQ(taken, std::string(1000, 'x'));
  EXPECT_EQ(taken.data(), held) << "without a copy";
  ASSERT_TRUE(reader.Next(rest, message));
  EXPECT_EQ(reader.Take(message), "y");
}

TEST(MessageReader, HowAMessageIsCompressedIsSaidAndItIsHandedOutAsItCame) {
  const std::string bytes = Framed("packed", 1) + Framed("plain") + Framed("packed", 1);
  for (const size_t step : {size_t{3}, bytes.size()}) {
    MessageReader reader(100, Encoding::kDeflate);
    std::vector<Encoding> packings;
    for (size_t at = 0; at < bytes.size(); at += step) {
      std::string_view rest = std::string_view(bytes).substr(at, step);
      std::string_view message;
      while (reader.Next(rest, message)) {
        packings.push_back(reader.packing());
        EXPECT_EQ(message, packings.size() == 2 ? "plain" : "packed");
      }
    }
    EXPECT_EQ(packings,
              (std::vector<Encoding>{Encoding::kDeflate, Encoding::kIdentity, Encoding::kDeflate}));
  }
}

TEST(Unpack, GzipAndDeflateWithinTheLimit) {
  const std::string text = std::string(50'000, 'a') + "end";
  const std::array<std::pair<Encoding, int>, 2> ways = {
      {{Encoding::kGzip, 15 + 16}, {Encoding::kDeflate, 15}}};
  for (const auto& [encoding, bits] : ways) {
    const std::string packed = Packed(text, bits);
    EXPECT_EQ(Unpack(encoding, packed, {.most = text.size()}).value(), text);
    EXPECT_EQ(Unpack(encoding, packed, {.most = text.size() - 1}).status().code(),
              absl::StatusCode::kResourceExhausted);
    for (const std::string& broken :
         {packed + "x", packed.substr(0, packed.size() - 1), std::string("no such thing")}) {
      EXPECT_EQ(Unpack(encoding, broken, {.most = 1 << 20}).status().code(),
                absl::StatusCode::kInternal);
    }
    EXPECT_EQ(Unpack(encoding, "", {.most = 10}).value(), "");
  }
}

TEST(Unpack, ABombGetsNoMoreMemoryThanTheLimit) {
  const std::string bomb = Packed(std::string(8 << 20, 'b'), 15 + 16);
  ASSERT_LT(bomb.size(), 100'000u);
  EXPECT_EQ(Unpack(Encoding::kGzip, bomb, {.most = 100'000}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST(Unpack, AClientThatLeftStopsItBetweenTwoSteps) {
  // A message of two steps is read to its end where its client stays.
  const std::string packed = Packed(std::string(2 * kUnpackStepBytes, 'b'), 15 + 16);
  std::atomic<bool> cancelled{false};
  UnpackLimits limits = {.most = 8 << 20, .cancelled = &cancelled};
  EXPECT_TRUE(Unpack(Encoding::kGzip, packed, limits).ok());
  // What breaks behind the first step is not met by who has left.
  const std::string broken = packed.substr(0, packed.size() - 1);
  EXPECT_EQ(Unpack(Encoding::kGzip, broken, limits).status().code(), absl::StatusCode::kInternal);
  cancelled = true;
  EXPECT_EQ(Unpack(Encoding::kGzip, broken, limits).status().code(), absl::StatusCode::kCancelled);
}

TEST(Unpack, WhatALongMessageOfNothingTakesIsStepsToo) {
  // Blocks of no bytes: all of it is input, and nothing comes out.
  std::string packed = Packed("", 15);
  packed.resize(2);  // zlib's head
  const std::string_view empty("\0\0\0\xff\xff", 5);
  while (packed.size() < 3 * kUnpackStepBytes) packed += empty;
  packed += std::string_view("\1\0\0\xff\xff\0\0\0\1", 9);
  EXPECT_EQ(Unpack(Encoding::kDeflate, packed, {.most = 10}).value(), "");
}

TEST(Unpack, IsChargedBeforeItTakesMemory) {
  const size_t bytes = 100'000;
  const std::string packed = Packed(std::string(bytes, 'b'), 15);
  const auto peak = [&](size_t room) {
    const auto account = std::make_shared<MemoryAccount>(room);
    MemoryHold hold(account);
    hold.Resize(1000);
    return Unpack(Encoding::kDeflate, packed, {.most = bytes, .hold = &hold}).status();
  };
  // The last buffer and the one before it, which is what 4096 has doubled to.
  const size_t needed = 1000 + 65'536 + (bytes + 1);
  EXPECT_TRUE(peak(needed).ok());
  EXPECT_EQ(peak(needed - 1).code(), absl::StatusCode::kUnavailable);
}

TEST(MessageReader, FlagsThatMeanNothingAreRefused) {
  for (const char flag : {char{1}, char{2}, '\xFF'}) {
    MessageReader reader(1000);
    EXPECT_TRUE(ReadAll(reader, Framed("x", flag), 100).empty());
    EXPECT_EQ(reader.status().code(), absl::StatusCode::kInternal);
  }
}

TEST(GrpcFraming, EncodingsByName) {
  EXPECT_EQ(EncodingOf("gzip"), Encoding::kGzip);
  EXPECT_EQ(EncodingOf("identity"), Encoding::kIdentity);
  EXPECT_EQ(EncodingOf("snappy"), std::nullopt);
}

TEST(GrpcFraming, Timeouts) {
  EXPECT_EQ(ParseTimeout("100m"), 100'000);
  EXPECT_EQ(ParseTimeout("1n"), 1);
  EXPECT_EQ(ParseTimeout("0S"), 0);
  EXPECT_EQ(ParseTimeout("99999999H"), 99'999'999LL * 3'600'000'000LL);
  for (const char* wrong : {"", "m", "1", "1x", "-1S", "+1S", "123456789S", "1.5S", " 1S", "1 S"}) {
    EXPECT_EQ(ParseTimeout(wrong), std::nullopt) << wrong;
  }
  EXPECT_EQ(PrintTimeout(1), "1u");
  EXPECT_EQ(PrintTimeout(0), "1u");
  EXPECT_EQ(PrintTimeout(99'999'999), "99999999u");
  EXPECT_EQ(PrintTimeout(100'000'000), "100000m");
  EXPECT_EQ(PrintTimeout(100'000'001), "100001m") << "never shorter than what is meant";
  for (int64_t micros = 1; micros < INT64_MAX / 20; micros *= 7) {
    EXPECT_GE(*ParseTimeout(PrintTimeout(micros)), micros);
  }
}

TEST(GrpcFraming, MessagesOfStatuses) {
  const std::string text = "50% \xC3\xA9\n";
  EXPECT_EQ(PercentEncode(text), "50%25 %C3%A9%0A");
  EXPECT_EQ(PercentDecode(PercentEncode(text)), text);
  EXPECT_EQ(PercentEncode("ab\xc3\xa9", 8), "ab%C3%A9");
  EXPECT_EQ(PercentEncode("ab\xc3\xa9", 7), "ab") << "cut at a character";
  EXPECT_EQ(PercentEncode("ab\xc3\xa9", 1), "a");
  EXPECT_EQ(PercentEncode("ab", 0), "");
  EXPECT_EQ(PercentEncode("\x80\x80\x80\x80\x80\x80", 16), "%80%80%80%80%80") << "none has a begin";
  for (const char* odd : {"%", "%2", "%zz", "100%"}) EXPECT_EQ(PercentDecode(odd), odd);
}

TEST(GrpcFraming, StatusOfTrailers) {
  const std::vector<Header> fine = {{"grpc-status", "0"}};
  EXPECT_TRUE(StatusOfTrailers(fine, 200).ok());
  const std::vector<Header> bad = {{"grpc-status", "8"}, {"grpc-message", "a%20b"}};
  EXPECT_EQ(StatusOfTrailers(bad, 200), absl::ResourceExhaustedError("a b"));
  const std::vector<Header> odd = {{"grpc-status", "99"}};
  EXPECT_EQ(StatusOfTrailers(odd, 200).code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(StatusOfTrailers({}, 200).code(), absl::StatusCode::kUnknown);
  EXPECT_EQ(StatusOfTrailers({}, 503).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(StatusOfTrailers({}, 404).code(), absl::StatusCode::kUnimplemented);
  for (const char* text : {"", "x", "-1", "17", "1x", "4294967296"}) {
    EXPECT_EQ(ParseStatusCode(text), absl::StatusCode::kUnknown) << text;
  }
}

TEST(GrpcFraming, ResetsAsStatuses) {
  EXPECT_EQ(CodeOfReset(ErrorCode::kRefusedStream), absl::StatusCode::kUnavailable);
  EXPECT_EQ(CodeOfReset(ErrorCode::kCancel), absl::StatusCode::kCancelled);
  EXPECT_EQ(CodeOfReset(ErrorCode::kEnhanceYourCalm), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(CodeOfReset(ErrorCode::kProtocolError), absl::StatusCode::kInternal);
  EXPECT_EQ(CodeOfReset(static_cast<ErrorCode>(1000)), absl::StatusCode::kUnknown);
  EXPECT_STREQ(NameOf(ErrorCode::kCancel), "CANCEL");
  EXPECT_STREQ(NameOf(static_cast<ErrorCode>(1000)), "?");
}

TEST(BinaryHeader, IsBase64WithPaddingOrWithout) {
  const std::string bytes("\0\xff\x01", 3);
  EXPECT_EQ(ToBinaryHeader(bytes), "AP8B");
  EXPECT_EQ(ToBinaryHeader("a"), "YQ");
  for (const char* text : {"YQ", "YQ=="}) EXPECT_EQ(FromBinaryHeader(text), "a");
  EXPECT_EQ(FromBinaryHeader(""), "");
  for (const char* wrong : {"Y", "YQ=", "Y*==", "YQ===", "%"}) {
    EXPECT_EQ(FromBinaryHeader(wrong), std::nullopt) << wrong;
  }
}

}  // namespace
}  // namespace quire::http2
