// The reader of uploads: what clients send, what is refused and in which words, and its bounds.
#include "router/batches/multipart.h"

#include <gtest/gtest.h>

#include <chrono>

namespace quire::batches {
namespace {

std::string Part(const std::string& name, const std::string& data, const std::string& more = "") {
  return "--X\r\nContent-Disposition: form-data; name=\"" + name + "\"" + more + "\r\n\r\n" + data +
         "\r\n";
}

std::string WhyNot(const std::string& body) {
  const auto parts = ReadForm(body, "X");
  return parts.ok() ? "" : StatusMessage(parts.status());
}

TEST(Multipart, AnUploadIsReadWithItsBytes) {
  const std::string data("\r\n--Y\r\n--\0\xff{}", 13);
  const std::string body =
      Part("purpose", "batch") +
      Part("file", data, "; filename=\"a \\\"b\\\".jsonl\"\r\nContent-Type: text/plain") +
      Part("empty", "") + "--X--\r\n";
  const auto parts = ReadForm(body, "X");
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 3u);
  EXPECT_EQ((*parts)[0].name, "purpose");
  EXPECT_EQ((*parts)[0].data, "batch");
  EXPECT_FALSE((*parts)[0].is_file);
  EXPECT_EQ((*parts)[1].filename, "a \"b\".jsonl");
  EXPECT_TRUE((*parts)[1].is_file);
  EXPECT_EQ((*parts)[1].data, data);
  EXPECT_EQ((*parts)[2].data, "");
}

TEST(Multipart, BoundariesOfContentTypes) {
  EXPECT_EQ(*BoundaryOf("multipart/form-data; boundary=abc"), "abc");
  EXPECT_EQ(*BoundaryOf("Multipart/Form-Data ; charset=x; Boundary=\"a:b\""), "a:b");
  EXPECT_EQ(*BoundaryOf("multipart/form-data;boundary=" + std::string(kMaxBoundaryBytes, 'b')),
            std::string(kMaxBoundaryBytes, 'b'));
  for (const std::string& wrong :
       {std::string("application/json"), std::string("multipart/form-data"),
        std::string("multipart/form-data; boundary="), std::string("multipart/form-data; boundary"),
        std::string("multipart/form-data; boundary=\"a"),
        std::string("multipart/form-data; boundary=a; boundary=b"),
        std::string("multipart/form-data; boundary=\"a\rb\""),
        "multipart/form-data; boundary=" + std::string(kMaxBoundaryBytes + 1, 'b')}) {
    EXPECT_FALSE(BoundaryOf(wrong).ok()) << wrong;
  }
}

TEST(Multipart, WhatNoClientSendsIsRefusedByName) {
  const std::string good = Part("a", "1");
  EXPECT_EQ(WhyNot(good + "--X--"), "");
  EXPECT_NE(WhyNot("hello\r\n" + good + "--X--").find("does not begin"), std::string::npos);
  EXPECT_NE(WhyNot(good + "--X--\r\nmore").find("follows"), std::string::npos);
  EXPECT_NE(WhyNot(good).find("part 1 has no end"), std::string::npos);
  EXPECT_NE(WhyNot(good + "--X").find("part 2"), std::string::npos);
  EXPECT_NE(WhyNot("--X\r\nContent-Type: a\r\n\r\n1\r\n--X--").find("no Content-Disposition"),
            std::string::npos);
  EXPECT_NE(WhyNot(Part("a", "1", "; name=\"b\"") + "--X--").find("two names"), std::string::npos);
  EXPECT_NE(WhyNot(Part("a\tb", "1") + "--X--").find("control"), std::string::npos);
  EXPECT_NE(WhyNot(Part("a", "1", "\r\nContent-Transfer-Encoding: base64") + "--X--")
                .find("Content-Transfer-Encoding"),
            std::string::npos);
  EXPECT_NE(
      WhyNot(Part("a", "1", "\r\n folded: x") + "--X--").find("header without a name and a colon"),
      std::string::npos);
}

TEST(Multipart, PartsAndHeadersAtTheirLimitsAndOneMore) {
  std::string most;
  for (size_t i = 0; i < kMaxParts; ++i) most += Part("p", "");
  EXPECT_EQ(WhyNot(most + "--X--"), "");
  EXPECT_NE(WhyNot(most + Part("p", "") + "--X--").find("more than 16 parts"), std::string::npos);
  const size_t rest = Part("", "").size() - std::string("--X\r\n\r\n").size();
  const std::string name(kMaxPartHeaderBytes - rest, 'n');
  EXPECT_EQ(WhyNot(Part(name, "") + "--X--"), "");
  EXPECT_NE(WhyNot(Part(name + "n", "") + "--X--").find("4096 bytes"), std::string::npos);
}

// What begins like a boundary everywhere costs no more than its length.
TEST(Multipart, ManyNearBoundariesAreReadInOnePass) {
  const std::string boundary(kMaxBoundaryBytes, 'b');
  std::string data;
  while (data.size() < (16u << 20)) data += "\r\n--" + boundary.substr(1) + "\r";
  const std::string body = "--" + boundary +
                           "\r\nContent-Disposition: form-data; name=\"f\"\r\n\r\n" + data +
                           "\r\n--" + boundary + "--";
  const auto begin = std::chrono::steady_clock::now();
  const auto parts = ReadForm(body, boundary);
  ASSERT_TRUE(parts.ok());
  EXPECT_EQ(parts->front().data.size(), data.size());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace quire::batches
