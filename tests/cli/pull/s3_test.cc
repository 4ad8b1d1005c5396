#include "cli/pull/s3.h"

#include <gtest/gtest.h>

#include <string>

namespace quire::pull {
namespace {

constexpr char kTime[] = "20260131T235959Z";

S3Settings Account() {
  S3Settings settings;
  settings.region = "eu-west-1";
  settings.key_id = "AKIAIOSFODNN7EXAMPLE";
  settings.secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
  return settings;
}

std::string SignatureOf(const Address& address) {
  return address.target.substr(address.target.find("X-Amz-Signature=") + 16);
}

// The signatures are those of botocore 1.44 for the same requests.
TEST(S3, SignaturesAreThoseOfAwssOwnClient) {
  S3Settings settings = Account();
  auto list =
      SignedAddress(settings, {"models", "", {{"prefix", "a/b c"}, {"list-type", "2"}}, kTime});
  ASSERT_TRUE(list.ok()) << list.status();
  EXPECT_EQ(list->Origin(), "https://models.s3.eu-west-1.amazonaws.com:443");
  EXPECT_EQ(SignatureOf(*list), "1c0cbe1116c3002c38b7a5cce26da31181671dcb7bc6c277a0f59b65c853eb74");
  settings.endpoint = "http://127.0.0.1:9000/";
  const auto object = SignedAddress(settings, {"models", "a b/x+y.gguf", {}, kTime});
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_TRUE(object->target.starts_with("/models/a%20b/x%2By.gguf?X-Amz-Algorithm="));
  EXPECT_EQ(SignatureOf(*object),
            "2fae391e5f4cd02450339464e508e1c9dea8ddb9335077b5f0a3474258a91e9c");
  settings.session_token = "tok/en==";
  EXPECT_EQ(SignatureOf(*SignedAddress(settings, {"models", "a b/x+y.gguf", {}, kTime})),
            "d2ce467bd77a9b67876b7579fa904f863b505cf9a2fce57c96f9783badbc6e5d");
}

TEST(S3, WithoutAnAccountNothingIsSigned) {
  S3Settings settings;
  const auto object = SignedAddress(settings, {"my.models", "x.gguf", {}, kTime});
  ASSERT_TRUE(object.ok());
  // A certificate for *.s3 covers no bucket with a dot.
  EXPECT_EQ(object->host, "s3.us-east-1.amazonaws.com");
  EXPECT_EQ(object->target, "/my.models/x.gguf");
  settings.endpoint = "ftp://x";
  EXPECT_TRUE(absl::IsInvalidArgument(SignedAddress(settings, {"b", "k", {}, kTime}).status()));
}

TEST(S3, SettingsComeFromTheEnvironment) {
  const S3Settings settings = S3SettingsFrom({{"AWS_ENDPOINT_URL", "http://a"},
                                              {"AWS_ENDPOINT_URL_S3", "http://b"},
                                              {"AWS_DEFAULT_REGION", "one"},
                                              {"AWS_REGION", "two"}});
  EXPECT_EQ(settings.endpoint, "http://b");
  EXPECT_EQ(settings.region, "two");
  EXPECT_EQ(S3SettingsFrom({}).region, "us-east-1");
}

TEST(S3, ListsAreReadWithCare) {
  const std::string object =
      "<Contents><Key>a &amp; b/x.json</Key><ETag>&quot;e1&quot;</ETag><Size>7</Size></Contents>";
  const std::string head = "<ListBucketResult xmlns=\"x\">";
  const auto page = ParseS3List(head + object +
                                "<NextContinuationToken>t&lt;1</NextContinuationToken>"
                                "</ListBucketResult>");
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_EQ(page->objects.size(), 1u);
  EXPECT_EQ(page->objects[0].key, "a & b/x.json");
  EXPECT_EQ(page->objects[0].etag, "\"e1\"");
  EXPECT_EQ(page->objects[0].size, 7);
  EXPECT_EQ(page->next, "t<1");
  for (const std::string& wrong :
       {std::string("<Error/>"), head + "<Contents><Size>7</Size></Contents>",
        head + "<Contents><Key>k</Key></Contents>",
        head + "<Contents><Key>k</Key><Size>-7</Size></Contents>",
        head + "<Contents><Key>k</Key><Size>7 </Size></Contents>",
        head + "<Contents><Key>k</Key><Size>7</Size><ETag>a\r\nb</ETag></Contents>",
        head + "<Contents>"}) {
    EXPECT_FALSE(ParseS3List(wrong).ok()) << wrong;
  }
  std::string many = head;
  for (size_t i = 0; i < kMaxObjects; ++i) many += object;
  EXPECT_TRUE(ParseS3List(many).ok());
  EXPECT_FALSE(ParseS3List(many + object).ok());
}

}  // namespace
}  // namespace quire::pull
