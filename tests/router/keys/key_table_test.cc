#include "router/keys/key_table.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

std::string Hash(const std::string& key) { return HexOfHash(HashOfKey(key)); }

absl::StatusOr<std::shared_ptr<const KeyTable>> Parse(const std::string& keys) {
  return KeyTable::Parse("{\"keys\":[" + keys + "]}");
}

// As long as a key must be.
std::string Long(const std::string& key) {
  return key.size() >= kMinApiKeyBytes ? key : key + "-0123456789abcdef";
}

std::string Entry(const std::string& key, const std::string& tenant, const std::string& rest = "") {
  return "{\"sha256\":\"" + Hash(Long(key)) + "\",\"tenant\":\"" + tenant + "\"" +
         (rest.empty() ? "" : "," + rest) + "}";
}

TEST(KeyTable, HashIsWhatSha256sumPrints) {
  EXPECT_EQ(Hash("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(KeyTable, ReadsWhatAKeyMayDo) {
  const auto table =
      Parse(Entry("key-one", "acme",
                  R"("models":["demo","m2"],"cache_group":"shared","weight":3,)"
                  R"("requests_per_minute":60,"tokens_per_minute":9000,"max_concurrent":4,)"
                  R"("highest_priority":-2,"delegate":true,"comment":"the first")") +
            "," + Entry("key-two", "beta"));
  ASSERT_TRUE(table.ok()) << StatusMessage(table.status());
  const auto one = (*table)->Find(Long("key-one"));
  ASSERT_NE(one, nullptr);
  EXPECT_EQ(one->name, "acme");
  EXPECT_EQ(one->models, (std::vector<std::string>{"demo", "m2"}));
  EXPECT_EQ(one->CacheDomain(), "group:shared");
  EXPECT_EQ(one->weight, 3u);
  EXPECT_EQ(one->requests_per_minute, 60u);
  EXPECT_EQ(one->tokens_per_minute, 9000u);
  EXPECT_EQ(one->max_concurrent, 4u);
  EXPECT_EQ(one->highest_priority, -2);
  EXPECT_TRUE(one->delegate);
  const auto two = (*table)->Find(Long("key-two"));
  ASSERT_NE(two, nullptr);
  EXPECT_EQ(two->CacheDomain(), "tenant:beta");
  EXPECT_FALSE(two->delegate);
  EXPECT_EQ((*table)->tenants(), (std::vector<std::string>{"acme", "beta"}));
  EXPECT_EQ((*table)->FindTenant("beta"), two);
  EXPECT_EQ((*table)->FindTenant("gamma"), nullptr);
}

TEST(KeyTable, OnlyTheWholeKeyIsFound) {
  const auto table = *Parse(Entry("key-one", "acme"));
  EXPECT_NE(table->Find(Long("key-one")), nullptr);
  for (const std::string& other : {std::string(), std::string("key-on"), std::string("key-one "),
                                   Long("KEY-ONE"), Hash(Long("key-one"))}) {
    EXPECT_EQ(table->Find(other), nullptr) << other;
  }
  const std::string longest(kMaxApiKeyBytes, 'k');
  const auto with_longest = *Parse(Entry(longest, "a") + "," + Entry(longest + "k", "b"));
  EXPECT_NE(with_longest->Find(longest), nullptr);
  EXPECT_EQ(with_longest->Find(longest + "k"), nullptr);
}

TEST(KeyTable, SeveralHashesStandForOneTenantWhileAKeyIsReplaced) {
  const auto table = Parse("{\"sha256\":[\"" + Hash(Long("old")) + "\",\"" + Hash(Long("new")) +
                           "\"],\"tenant\":\"acme\"}");
  ASSERT_TRUE(table.ok()) << StatusMessage(table.status());
  EXPECT_EQ((*table)->Find(Long("old")), (*table)->Find(Long("new")));
  EXPECT_EQ((*table)->size(), 2u);
}

TEST(KeyTable, MistakesNameTheMemberAndNeverASecret) {
  const std::string hash = Hash("k");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"([])", "keys[0]"},
      {R"({"tenant":"a"})", "keys[0].sha256"},
      {R"({"sha256":"s3cr3t","tenant":"a"})", "keys[0].sha256"},
      {"{\"sha256\":\"" + hash.substr(1) + "g\",\"tenant\":\"a\"}", "keys[0].sha256"},
      {R"({"sha256":[],"tenant":"a"})", "keys[0].sha256"},
      {R"({"key":"s3cr3t","tenant":"a"})", "keys[0].key"},
      {R"({"api_key":"s3cr3t","tenant":"a"})", "keys[0].api_key"},
      {"{\"sha256\":\"" + hash + "\"}", "keys[0].tenant"},
      {Entry("k", ""), "keys[0].tenant"},
      {Entry("k", "a b"), "keys[0].tenant"},
      {Entry("k", std::string(kMaxTenantNameBytes + 1, 'a')), "keys[0].tenant"},
      {Entry("k", "a", "\"weight\":0"), "keys[0].weight"},
      {Entry("k", "a", "\"weight\":1001"), "keys[0].weight"},
      {Entry("k", "a", "\"requests_per_minute\":-1"), "keys[0].requests_per_minute"},
      {Entry("k", "a", "\"tokens_per_minute\":\"many\""), "keys[0].tokens_per_minute"},
      {Entry("k", "a", "\"max_concurrent\":0"), "keys[0].max_concurrent"},
      {Entry("k", "a", "\"models\":[]"), "keys[0].models"},
      {Entry("k", "a", "\"models\":[\"\"]"), "keys[0].models"},
      {Entry("k", "a", "\"delegate\":1"), "keys[0].delegate"},
      {Entry("k", "a", "\"modles\":[]"), "keys[0].\"modles\""},
      {Entry("k", "a") + "," + Entry("k", "b"), "keys[1].sha256"},
      {Entry("k", "a") + "," + Entry("l", "a", "\"weight\":2"), "keys[1]: tenant"},
  };
  for (const auto& [keys, mention] : cases) {
    const auto table = Parse(keys);
    ASSERT_FALSE(table.ok()) << keys;
    const std::string message = StatusMessage(table.status());
    EXPECT_NE(message.find(mention), std::string::npos) << message;
    EXPECT_EQ(message.find("s3cr3t"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  for (const char* text :
       {"", "[]", "{}", "{\"keys\":{}}", "{\"keys\":[],\"more\":1}", "nonsense"}) {
    EXPECT_FALSE(KeyTable::Parse(text).ok()) << text;
  }
}

TEST(KeyTable, LongestTenantNameAndWidestRangesAreServed) {
  const std::string name(kMaxTenantNameBytes, 'a');
  const auto table = Parse(Entry("k", name,
                                 R"("weight":1000,"requests_per_minute":4294967295,)"
                                 R"("highest_priority":-2147483648)"));
  ASSERT_TRUE(table.ok()) << StatusMessage(table.status());
  EXPECT_EQ((*table)->tenants()[0], name);
}

TEST(KeyTable, KeysAtTheLimitAreServedAndOneMoreIsRefused) {
  std::string keys;
  for (size_t i = 0; i < kMaxApiKeys; ++i) {
    keys += (i > 0 ? "," : "") + Entry("key" + std::to_string(i), "acme");
  }
  ASSERT_TRUE(Parse(keys).ok());
  const auto over = Parse(keys + "," + Entry("one more", "acme"));
  ASSERT_FALSE(over.ok());
  EXPECT_NE(StatusMessage(over.status()).find(std::to_string(kMaxApiKeys)), std::string::npos);
}

TEST(KeyTable, PlainKeysAreOfOneTenant) {
  const auto table = KeyTable::OfPlainKeys({"sk-first-key-0123", "sk-second-key-0123"}, "default");
  ASSERT_TRUE(table.ok());
  EXPECT_EQ((*table)->Find("sk-second-key-0123")->name, "default");
  const auto joined = KeyTable::Join(**Parse(Entry("filed", "acme")), **table);
  ASSERT_TRUE(joined.ok());
  EXPECT_EQ((*joined)->size(), 3u);
  EXPECT_TRUE(KeyTable::OfPlainKeys({std::string(kMinApiKeyBytes, 'k')}, "default").ok());
  const auto one_less = KeyTable::OfPlainKeys(
      {"sk-first-key-0123", std::string(kMinApiKeyBytes - 1, 'k')}, "default");
  EXPECT_EQ(StatusMessage(one_less.status()),
            "number 2 must have 16 to 512 bytes, has 15; `openssl rand -hex 24` makes a good one");
  EXPECT_FALSE(KeyTable::Join(**table, **table).ok());
}

}  // namespace
}  // namespace quire
