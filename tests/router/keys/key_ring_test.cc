#include "router/keys/key_ring.h"

#include <gtest/gtest.h>

#include <map>

#include "common/runtime/virtual_background.h"
#include "common/runtime/virtual_runtime.h"
#include "router/keys/tenant_access.h"

namespace quire {
namespace {

class FakeFiles final : public Files {
 public:
  absl::StatusOr<std::string> Read(const std::string& path, size_t max_bytes) override {
    ++reads;
    const auto found = content.find(path);
    if (found == content.end()) return absl::NotFoundError(AbslView(path + ": is not there"));
    if (found->second.size() > max_bytes) return absl::ResourceExhaustedError("too large");
    return found->second;
  }
  std::map<std::string, std::string> content;
  int reads = 0;
};

constexpr char kRest[] = "-of-this-test";  // a key is no shorter

std::string File(const std::vector<std::pair<std::string, std::string>>& keys) {
  std::string text = "{\"keys\":[";
  for (const auto& [key, members] : keys) {
    if (text.back() == '}') text += ',';
    text += "{\"sha256\":\"" + HexOfHash(HashOfKey(key + kRest)) + "\"," + members + "}";
  }
  return text + "]}";
}

class KeyRingTest : public testing::Test {
 protected:
  void Make(const std::string& file) {
    files.content["keys"] = file;
    ring = std::make_unique<KeyRing>(*KeyTable::Parse(file), metrics, log);
    ring->Watch({world.executor(), background, files}, {.paths = {"keys"}}, {file},
                [](const std::string& text) { return KeyTable::Parse(text); });
  }
  void Later() { world.RunUntil(world.clock().Now() + 3 * kMicrosPerSecond); }
  Result<KeyRing::Tenant> Ask(const std::string& key, const std::string& tenant = "") {
    const std::string header = "Bearer " + key + kRest;
    return ring->Authenticate({header, tenant});
  }
  std::string NameOf(const std::string& key, const std::string& tenant = "") {
    const auto found = Ask(key, tenant);
    return found.ok() ? found.value()->name : "";
  }
  bool Shows(const std::string& line) {
    return metrics.Render().find(line + "\n") != std::string::npos;
  }

  VirtualWorld world{1};
  VirtualBackground background{world.executor(), 1000};
  FakeFiles files;
  Metrics metrics;
  NullLogger log;
  std::unique_ptr<KeyRing> ring;
};

TEST_F(KeyRingTest, WithoutKeysEveryoneIsServedAsNobody) {
  KeyRing open(nullptr, metrics, log);
  EXPECT_FALSE(open.required());
  const auto tenant = open.Authenticate({"Bearer whatever", "acme"});
  ASSERT_TRUE(tenant.ok());
  EXPECT_EQ(tenant.value(), nullptr);
}

TEST_F(KeyRingTest, TheHeaderDecides) {
  Make(File({{"good-key", R"("tenant":"acme")"}}));
  for (const char* header : {"Bearer good-key-of-this-test", "bearer good-key-of-this-test",
                             "BEARER  good-key-of-this-test "}) {
    EXPECT_TRUE(ring->Authenticate({header, ""}).ok()) << header;
  }
  for (const char* header : {"", "Bearer", "Bearer ", "Bearer   ", "Basic good-key-of-this-test",
                             "good-key-of-this-test", "Bearergood-key-of-this-test",
                             "Bearer bad-key", "Bearer good-key-of-this-test2"}) {
    const auto refused = ring->Authenticate({header, ""});
    ASSERT_FALSE(refused.ok()) << header;
    EXPECT_EQ(refused.error().code, ApiCode::kUnauthenticated) << header;
    EXPECT_EQ(refused.error().message.find("bad-key"), std::string::npos);
  }
  EXPECT_EQ(ring->Authenticate({"Bearer good-key-of-this-test", "", true}).error().code,
            ApiCode::kUnauthenticated);
  EXPECT_TRUE(Shows("quire_router_auth_refusals_total{reason=\"missing\"} 7"));
  EXPECT_TRUE(Shows("quire_router_auth_refusals_total{reason=\"unknown\"} 3"));
}

TEST_F(KeyRingTest, OnlyADelegateNamesAnotherTenant) {
  Make(File({{"gate", R"("tenant":"gateway","delegate":true,"models":["demo","m2"],)"
                      R"("requests_per_minute":5,"highest_priority":0)"},
             {"acme", R"("tenant":"acme","models":["demo","m3"],"max_concurrent":7)"},
             {"beta", R"("tenant":"beta","models":["m3"])"}}));
  EXPECT_EQ(NameOf("acme", "acme"), "acme");  // its own name is no claim
  EXPECT_EQ(Ask("acme", "beta").error().code, ApiCode::kPermissionDenied);
  EXPECT_EQ(Ask("acme", "x").error().param, "x-quire-tenant");
  EXPECT_EQ(Ask("gate", "no spaces").error().code, ApiCode::kPermissionDenied);
  EXPECT_EQ(NameOf("gate"), "gateway");

  const auto known = Ask("gate", "acme").value();
  EXPECT_EQ(known->name, "acme");
  EXPECT_EQ(known->max_concurrent, 7u);  // the tenant's own limits
  EXPECT_EQ(known->models, std::vector<std::string>{"demo"});
  EXPECT_EQ(known->highest_priority, 0);
  EXPECT_FALSE(known->delegate);
  EXPECT_TRUE(known->listed);
  const auto nothing = Ask("gate", "beta").value();
  for (const char* model : {"demo", "m2", "m3"}) EXPECT_FALSE(MayUse(nothing.get(), model));

  const auto other = Ask("gate", "new-one").value();
  EXPECT_EQ(other->name, "new-one");
  EXPECT_EQ(other->CacheDomain(), "tenant:new-one");
  EXPECT_EQ(other->requests_per_minute, 5u);
  EXPECT_FALSE(other->delegate);
  EXPECT_FALSE(other->listed);
  EXPECT_TRUE(Shows("quire_router_auth_refusals_total{reason=\"forbidden\"} 3"));
}

TEST_F(KeyRingTest, AChangedFileIsInForceAndABrokenOneChangesNothing) {
  Make(File({{"first", R"("tenant":"acme")"}}));
  const auto held = Ask("first").value();
  Later();
  EXPECT_GT(files.reads, 1);
  EXPECT_TRUE(Shows("quire_router_api_key_reloads_total 0"));

  files.content["keys"] = File({{"second", R"("tenant":"acme")"}, {"third", R"("tenant":"b")"}});
  Later();
  EXPECT_EQ(NameOf("first"), "");
  EXPECT_EQ(NameOf("second"), "acme");
  EXPECT_EQ(held->name, "acme");  // what came in before goes on under what it came with
  EXPECT_TRUE(Shows("quire_router_api_keys 2"));

  const std::string good = files.content["keys"];
  files.content["keys"] = good.substr(0, good.size() / 2);
  Later();
  EXPECT_EQ(NameOf("second"), "acme");
  EXPECT_TRUE(Shows("quire_router_api_key_reload_failures_total 1"));
  files.content.erase("keys");
  Later();
  EXPECT_EQ(NameOf("second"), "acme");
  EXPECT_TRUE(Shows("quire_router_api_key_reload_failures_total 2"));
  files.content["keys"] = File({{"fourth", R"("tenant":"c")"}});
  Later();
  EXPECT_EQ(NameOf("second"), "");
  EXPECT_EQ(NameOf("fourth"), "c");
  EXPECT_TRUE(Shows("quire_router_api_key_reloads_total 2"));
}

// Batches go on without their key: with the rights that it had, or fewer.
TEST_F(KeyRingTest, WorkWithoutItsKeyHasTheRightsOfThatKeyAndNeverMore) {
  Make(File({{"one", R"("tenant":"acme")"},
             {"two", R"("tenant":"acme","models":["demo"],"highest_priority":3)"},
             {"gate", R"("tenant":"gateway","delegate":true)"}}));
  const TenantProfile narrow = *Ask("two").value();
  ASSERT_TRUE(ring->TenantNow(narrow));
  EXPECT_EQ((*ring->TenantNow(narrow))->models, narrow.models);
  EXPECT_EQ((*ring->TenantNow(narrow))->highest_priority, narrow.highest_priority);
  EXPECT_TRUE((*ring->TenantNow(*Ask("one").value()))->models.empty());
  // A tenant that a gateway named has the gateway's key alone.
  const TenantProfile named = *Ask("gate", "someone").value();
  ASSERT_TRUE(ring->TenantNow(named));
  EXPECT_EQ((*ring->TenantNow(named))->name, "someone");
  EXPECT_FALSE((*ring->TenantNow(named))->delegate);
  // Its key is gone, and the other one may do less, or more.
  files.content["keys"] = File({{"one", R"("tenant":"acme","models":["demo","other"])"}});
  Later();
  ASSERT_TRUE(ring->TenantNow(narrow));
  EXPECT_EQ((*ring->TenantNow(narrow))->models, std::vector<std::string>{"demo"});
  EXPECT_EQ((*ring->TenantNow(narrow))->highest_priority, 3);
  EXPECT_FALSE(ring->TenantNow(named));
  files.content["keys"] = File({{"else", R"("tenant":"beta")"}});
  Later();
  EXPECT_FALSE(ring->TenantNow(narrow));
  const KeyRing open(nullptr, metrics, log, "quire_open");
  EXPECT_FALSE(open.TenantNow(narrow));
  ASSERT_TRUE(open.TenantNow(TenantProfile()));
  EXPECT_EQ(*open.TenantNow(TenantProfile()), nullptr);
}

TEST_F(KeyRingTest, LabelsAreTheFilesTenantsAndAtMostAHundred) {
  std::vector<std::pair<std::string, std::string>> keys;
  for (size_t i = 0; i <= kMaxTenantLabels; ++i) {
    keys.push_back(
        {"key" + std::to_string(i), "\"tenant\":\"t" + std::to_string(i) + "\",\"delegate\":true"});
  }
  Make(File(keys));
  ring->CountRequest(Ask("key0").value());
  ring->CountRequest(Ask("key" + std::to_string(kMaxTenantLabels - 1)).value());
  ring->CountRequest(Ask("key" + std::to_string(kMaxTenantLabels)).value());
  ring->CountRequest(Ask("key0", "made-up-by-a-client").value());
  const auto count = [&](const std::string& tenant) {
    return "quire_router_tenant_requests_total{tenant=\"" + tenant + "\"} ";
  };
  EXPECT_TRUE(Shows(count("t0") + "1"));
  EXPECT_TRUE(Shows(count("t99") + "1"));
  EXPECT_TRUE(Shows(count("other") + "2"));
  const std::string text = metrics.Render();
  EXPECT_EQ(text.find("t100"), std::string::npos);
  EXPECT_EQ(text.find("made-up"), std::string::npos);
}

TEST(TenantAccess, ModelsAreSeenAndUsedByThoseWhoMay) {
  const std::vector<ModelEntry> models = {{"demo", "id", 1, 1, 0}, {"m2", "id2", 1, 1, 0}};
  TenantProfile profile;
  EXPECT_EQ(VisibleModels(models, nullptr).size(), 2u);
  EXPECT_EQ(VisibleModels(models, &profile).size(), 2u);
  EXPECT_FALSE(CheckModelAccess(models, &profile, "m2"));
  profile.models = {"m2", "gone"};
  ASSERT_EQ(VisibleModels(models, &profile).size(), 1u);
  EXPECT_FALSE(CheckModelAccess(models, &profile, "m2"));
  for (const char* name : {"demo", "gone", "never", ""}) {
    const auto refused = CheckModelAccess(models, &profile, name);
    ASSERT_TRUE(refused) << name;
    EXPECT_EQ(refused->code, ApiCode::kNotFound);
    EXPECT_EQ(refused->param, "model");
    if (std::string_view(name) != "demo") {
      EXPECT_EQ(refused->message.find("demo"), std::string::npos);
    }
  }
  EXPECT_FALSE(CheckModelAccess({models[1]}, &profile, ""));  // the only one
  EXPECT_TRUE(CheckModelAccess({models[0]}, &profile, ""));
}

TEST(TenantAccess, AnAdapterIsANameOfItsOwn) {
  std::vector<ModelEntry> models = {{"demo", "id", 1, 1, 0}, {"sql", "id", 1, 1, 0}};
  models[1].parent = "demo";
  TenantProfile profile;
  profile.models = {"sql"};
  EXPECT_FALSE(CheckModelAccess(models, &profile, "sql"));
  EXPECT_FALSE(CheckModelAccess(models, &profile, "demo:sql"));
  for (const char* name : {"demo", "", "demo:other", ":", "sqlsql"}) {
    EXPECT_TRUE(CheckModelAccess(models, &profile, name)) << name;
  }
  profile.models = {"demo"};
  EXPECT_FALSE(CheckModelAccess(models, &profile, "")) << "the only model";
  EXPECT_TRUE(CheckModelAccess(models, &profile, "sql"));
  EXPECT_TRUE(CheckModelAccess(models, &profile, "demo:sql"));
  // A model may be called like an adapter behind another one's name.
  models.push_back({"demo:sql", "id2", 1, 1, 0});
  profile.models = {"sql"};
  EXPECT_TRUE(CheckModelAccess(models, &profile, "demo:sql"));
}

TEST(TenantAccess, PriorityIsHeldToTheTenantsHighest) {
  auto profile = std::make_shared<TenantProfile>();
  GenerateRequest request;
  request.priority = -5;
  ApplyTenant(profile, request);
  EXPECT_EQ(request.priority, -5);
  profile->highest_priority = -1;
  ApplyTenant(profile, request);
  EXPECT_EQ(request.priority, -1);
  request.priority = 9;
  ApplyTenant(profile, request);
  EXPECT_EQ(request.priority, 9);
  EXPECT_EQ(request.tenant, profile);
}

TEST_F(KeyRingTest, WrongKeysAtTheLimitAreToldSoAndOneMoreComesBackLater) {
  Make(File({{"good-key", R"("tenant":"acme")"}}));
  ring->SlowWrongKeys(world.clock());
  const auto ask = [&](const std::string& key, const std::string& address) {
    const std::string header = "Bearer " + key + kRest;
    Credentials credentials{header, ""};
    credentials.address = *ClientAddress::Parse(address);
    return ring->Authenticate(credentials);
  };
  for (int i = 0; i < static_cast<int>(kWrongKeysRate.burst); ++i) {
    EXPECT_EQ(ask("guess" + std::to_string(i), "192.0.2.1").error().code,
              ApiCode::kUnauthenticated);
  }
  const auto slowed = ask("one-more", "192.0.2.1");
  EXPECT_EQ(slowed.error().code, ApiCode::kRateLimited);
  EXPECT_EQ(slowed.error().retry_after_ms, kWrongKeysRetryMs);
  EXPECT_TRUE(ask("good-key", "192.0.2.1").ok()) << "a right one is never slowed down";
  EXPECT_EQ(ask("guess", "198.51.100.1").error().code, ApiCode::kUnauthenticated);
  EXPECT_TRUE(Shows("quire_router_auth_refusals_total{reason=\"too_many\"} 1"));
  world.RunUntil(world.clock().Now() + kMicrosPerSecond);
  EXPECT_EQ(ask("guess", "192.0.2.1").error().code, ApiCode::kUnauthenticated);
  EXPECT_EQ(ask("guess", "192.0.2.1").error().code, ApiCode::kRateLimited);
}

TEST_F(KeyRingTest, AKeyThatIsTooShortIsRefusedThoughTheFileHasIt) {
  Make("{\"keys\":[{\"sha256\":\"" + HexOfHash(HashOfKey("fifteen-letters")) +
       "\",\"tenant\":\"acme\"}]}");
  const auto refused = ring->Authenticate({"Bearer fifteen-letters", ""});
  EXPECT_NE(refused.error().message.find("shorter than 16 bytes"), std::string::npos);
}

}  // namespace
}  // namespace quire
