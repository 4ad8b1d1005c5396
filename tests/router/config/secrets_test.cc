#include "router/secrets.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>

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

  RouterConfig config;
  VirtualWorld world{1};
  VirtualBackground background{world.executor(), 1000};
  FakeFiles files;
  NullLogger log;
  std::deque<Metrics> metrics;  // of each ring
};

TEST_F(Secrets, WithoutKeysEveryoneIsLetInUnderThePublicSaltKey) {
  const auto keys = Keys();
  ASSERT_TRUE(keys.ok());
  EXPECT_FALSE((*keys)->required());
  EXPECT_EQ(*ReadSaltKey(config, files), "");
}

TEST_F(Secrets, KeysOfTheFileAndOfTheFlag) {
  const std::string hash = HexOfHash(HashOfKey("filed-key"));
  files.content["keys.json"] = "{\"keys\":[{\"sha256\":\"" + hash + "\",\"tenant\":\"acme\"}]}";
  config.api_key_file = "keys.json";
  config.api_keys = {"flag-key-1"};
  const auto keys = Keys();
  ASSERT_TRUE(keys.ok()) << StatusMessage(keys.status());
  EXPECT_EQ((*keys)->Authenticate({"Bearer filed-key", ""}).value()->name, "acme");
  EXPECT_EQ((*keys)->Authenticate({"Bearer flag-key-1", ""}).value()->name, "default");
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
  EXPECT_FALSE(ReadSaltKey(config, files).ok());
  files.content["salt"] = std::string(15, 's') + "\n";
  EXPECT_NE(StatusMessage(ReadSaltKey(config, files).status()).find("--salt-key-file: salt"),
            std::string::npos);
  files.content["salt"] = std::string(16, 's') + "\r\n";
  EXPECT_EQ(*ReadSaltKey(config, files), std::string(16, 's'));
  files.content["salt"] = std::string(4096, 's');
  EXPECT_TRUE(ReadSaltKey(config, files).ok());
  files.content["salt"] += 's';
  EXPECT_FALSE(ReadSaltKey(config, files).ok());
  config.salt_key_file.clear();
  config.api_keys = {"flag-key-1"};
  const std::string drawn = *ReadSaltKey(config, files);
  EXPECT_EQ(drawn.size(), 32u);
  EXPECT_NE(drawn, *ReadSaltKey(config, files));
}

}  // namespace
}  // namespace quire
