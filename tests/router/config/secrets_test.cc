#include "router/secrets.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <vector>

#include "common/runtime/virtual_background.h"
#include "common/runtime/virtual_runtime.h"

namespace quire {
namespace {

class FakeFiles final : public Files {
 public:
  absl::StatusOr<std::string> Read(const std::string& path, size_t max_bytes) override {
    const auto found = content.find(path);
    if (found == content.end()) return absl::NotFoundError(AbslView(path));
    if (found->second.size() > max_bytes) {
      return absl::ResourceExhaustedError(AbslView(path + ": is larger than the limit"));
    }
    return found->second;
  }
  std::map<std::string, std::string> content;
};

class Secrets : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<KeyRing>> Keys() {
    return MakeKeyRing(config, {world.executor(), background, files}, metrics.emplace_back(), log);
  }

  absl::StatusOr<std::unique_ptr<SaltKey>> Salt() {
    return SaltKey::Make(config, {world.executor(), background, files}, metrics.emplace_back(),
                         log);
  }
  void Later() { world.RunUntil(world.clock().Now() + 5 * kMicrosPerSecond); }

  RouterConfig config;
  VirtualWorld world{1};
  VirtualBackground background{world.executor(), 1000};
  FakeFiles files;
  class KeepingLogger final : public Logger {
   public:
    KeepingLogger() : Logger(LogLevel::kError) {}
    std::vector<std::string> errors;

   private:
    void Write(LogLevel, std::string_view message, std::span<const LogField> fields) override {
      std::string line(message);
      for (const LogField& field : fields) line += " " + field.value.text;
      errors.push_back(std::move(line));
    }
  };
  KeepingLogger log;
  std::deque<Metrics> metrics;  // of each ring
};

TEST_F(Secrets, WithoutKeysEveryoneIsLetInUnderThePublicSaltKey) {
  const auto keys = Keys();
  ASSERT_TRUE(keys.ok());
  EXPECT_FALSE((*keys)->required());
  EXPECT_EQ((*Salt())->current(), "");
}

TEST_F(Secrets, KeysOfTheFileAndOfTheFlag) {
  const std::string hash = HexOfHash(HashOfKey("filed-key-0123456789"));
  files.content["keys.json"] = "{\"keys\":[{\"sha256\":\"" + hash + "\",\"tenant\":\"acme\"}]}";
  config.api_key_file = "keys.json";
  config.api_keys = {"flag-key-1-0123456789"};
  const auto keys = Keys();
  ASSERT_TRUE(keys.ok()) << StatusMessage(keys.status());
  EXPECT_EQ((*keys)->Authenticate({"Bearer filed-key-0123456789", ""}).value()->name, "acme");
  EXPECT_EQ((*keys)->Authenticate({"Bearer flag-key-1-0123456789", ""}).value()->name, "default");
  EXPECT_FALSE((*keys)->Authenticate({"Bearer other", ""}).ok());
}

TEST_F(Secrets, ErrorsNameFlagAndFileAndNoSecret) {
  const auto error_of = [](const absl::Status& status) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return StatusMessage(status);
  };
  config.api_key_file = "keys.json";
  EXPECT_EQ(error_of(Keys().status()).find("--api-key-file: keys.json"), 0u);
  files.content["keys.json"] = R"({"keys":[{"key":"s3cr3t","tenant":"a"}]})";
  const std::string plain = error_of(Keys().status());
  EXPECT_NE(plain.find("keys[0].key"), std::string::npos) << plain;
  EXPECT_EQ(plain.find("s3cr3t"), std::string::npos) << plain;
  config.api_key_file.clear();
  config.api_keys = {"s3cr3t"};
  const std::string flag = error_of(Keys().status());
  EXPECT_EQ(flag.find("--api-key: "), 0u) << flag;
  EXPECT_EQ(flag.find("s3cr3t"), std::string::npos) << flag;
}

TEST_F(Secrets, TheSaltKeyIsTheFilesOrDrawnWhereKeysAreGiven) {
  config.salt_key_file = "salt";
  EXPECT_FALSE(Salt().ok());
  files.content["salt"] = std::string(15, 's') + "\n";
  EXPECT_NE(StatusMessage(Salt().status()).find("--salt-key-file: salt"), std::string::npos);
  files.content["salt"] = std::string(16, 's') + "\r\n";
  EXPECT_EQ((*Salt())->current(), std::string(16, 's'));
  files.content["salt"] = std::string(4096, 's');
  EXPECT_TRUE(Salt().ok());
  files.content["salt"] += 's';
  EXPECT_FALSE(Salt().ok());
  config.salt_key_file.clear();
  config.api_keys = {"flag-key-1-0123456789"};
  const std::string drawn = (*Salt())->current();
  EXPECT_EQ(drawn.size(), 32u);
  EXPECT_NE(drawn, (*Salt())->current());
}

TEST_F(Secrets, AChangedSaltKeyIsToldAndABrokenOneKeepsTheOld) {
  config.salt_key_file = "salt";
  files.content["salt"] = std::string(16, 'a');
  const auto salt = *Salt();
  std::vector<std::string> told;
  salt->Follow([&told](const std::string& key) { told.push_back(key); });
  Later();
  EXPECT_TRUE(told.empty());
  files.content["salt"] = std::string(16, 'b') + "\n";
  Later();
  EXPECT_EQ(told, std::vector{std::string(16, 'b')});
  files.content["salt"] = "short";
  Later();
  files.content.erase("salt");
  Later();
  EXPECT_EQ(salt->current(), std::string(16, 'b'));
  EXPECT_EQ(log.errors.size(), 2u) << "a line for each thing that is wrong, once";
  for (const std::string& line : log.errors) EXPECT_EQ(line.find("short"), std::string::npos);
  files.content["salt"] = std::string(16, 'b');
  Later();
  EXPECT_EQ(told.size(), 1u) << "the same key again";
  const std::string text = metrics.back().Render();
  EXPECT_NE(text.find("quire_router_salt_key_reloads_total 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("quire_router_salt_key_reload_failures_total 2\n"), std::string::npos);
}

TEST_F(Secrets, AChangedAdminTokenHoldsAndABrokenOneKeepsTheOld) {
  config.admin_token_file = "token";
  files.content["token"] = "first-token-0123456789\n";
  const auto ring =
      *MakeAdminRing(config, {world.executor(), background, files}, metrics.emplace_back(), log);
  EXPECT_TRUE(ring->Authenticate({"Bearer first-token-0123456789", ""}).ok());
  files.content["token"] = "second-token-0123456789\n";
  Later();
  EXPECT_FALSE(ring->Authenticate({"Bearer first-token-0123456789", ""}).ok());
  EXPECT_TRUE(ring->Authenticate({"Bearer second-token-0123456789", ""}).ok());
  files.content["token"] = "\n";
  Later();
  EXPECT_TRUE(ring->Authenticate({"Bearer second-token-0123456789", ""}).ok());
  EXPECT_FALSE(ring->Authenticate({"Bearer ", ""}).ok());
  EXPECT_EQ(log.errors.size(), 1u);
}

}  // namespace
}  // namespace quire
