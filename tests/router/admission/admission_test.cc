// Who is let in: each limit at the limit and one above, quotas and their shares, what is given
// back.
#include "router/admission/admission.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace quire {
namespace {

constexpr Micros kSecond = kMicrosPerSecond;
using Cause = RefusalCause;

struct Quotas {
  uint32_t requests_per_minute = 0;
  uint64_t tokens_per_minute = 0;
  uint32_t max_concurrent = 0;
};

std::shared_ptr<const TenantProfile> Tenant(const std::string& name, const Quotas& quotas = {}) {
  TenantProfile profile;
  profile.name = name;
  profile.requests_per_minute = quotas.requests_per_minute;
  profile.tokens_per_minute = quotas.tokens_per_minute;
  profile.max_concurrent = quotas.max_concurrent;
  return std::make_shared<const TenantProfile>(std::move(profile));
}

class AdmissionTest : public ::testing::Test {
 protected:
  std::optional<Refusal> Enter(std::shared_ptr<const TenantProfile> tenant = nullptr,
                               int32_t priority = 0) {
    auto refusal = admission().Enter(++last_, std::move(tenant), priority, now_);
    admission().CheckInvariants();
    return refusal;
  }
  QueueResult Queue(uint64_t id, uint64_t tokens = 10, uint64_t resumed_bytes = 0) {
    QueueResult result = admission().Queue(id, {"model", tokens, resumed_bytes}, now_);
    admission().CheckInvariants();
    return result;
  }
  // Enters and queues; what refused it.
  std::optional<Cause> Ask(std::shared_ptr<const TenantProfile> tenant = nullptr,
                           uint64_t tokens = 10, int32_t priority = 0) {
    if (const auto refusal = Enter(std::move(tenant), priority)) return refusal->cause;
    const QueueResult result = Queue(last_, tokens);
    if (!result.refusal) return std::nullopt;
    Leave(last_);
    return result.refusal->cause;
  }
  void Leave(uint64_t id, uint64_t tokens = 0) {
    admission().Leave(id, tokens, now_);
    admission().CheckInvariants();
  }
  void LaunchAll() {
    while (const auto id = admission().Next("model")) admission().Launch(*id, now_);
  }
  Admission& admission() {
    if (made_ == nullptr) made_ = std::make_unique<Admission>(limits_);
    return *made_;
  }

  RouterLimits limits_ = {.max_queued_per_tenant = 1024};
  Micros now_ = 1000 * kSecond;
  uint64_t last_ = 0;

 private:
  std::unique_ptr<Admission> made_;
};

TEST_F(AdmissionTest, LiveRequestsAreBounded) {
  limits_.max_live_requests = 3;
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(Enter().has_value());
  const auto refused = Enter();
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->cause, Cause::kLiveRequests);
  EXPECT_EQ(refused->error.code, ApiCode::kUnavailable) << "our capacity, not their quota";
  EXPECT_GT(refused->error.retry_after_ms, 0u);
  EXPECT_NE(refused->error.message.find('3'), std::string::npos);
  EXPECT_EQ(admission().live(), 3u);
  EXPECT_EQ(admission().refused_total(Cause::kLiveRequests), 1u);
  Leave(4);  // was refused: nothing to leave
  Leave(1);
  EXPECT_FALSE(Enter().has_value());
  EXPECT_EQ(admission().admitted_total(), 4u);
}

TEST_F(AdmissionTest, NothingComesInWhileDraining) {
  EXPECT_FALSE(Enter().has_value());
  admission().StartDraining();
  EXPECT_EQ(Enter()->cause, Cause::kDraining);
  EXPECT_FALSE(Queue(1).refusal.has_value()) << "what is inside goes on";
}

TEST_F(AdmissionTest, TheQueueIsBounded) {
  limits_.max_queued_requests = 2;
  EXPECT_FALSE(Ask().has_value());
  EXPECT_FALSE(Ask().has_value());
  EXPECT_EQ(Ask(), Cause::kQueueFull);
  admission().Launch(*admission().Next("model"), now_);
  EXPECT_FALSE(Ask().has_value());
}

TEST_F(AdmissionTest, TheQueueOfATenantIsBounded) {
  limits_.max_queued_per_tenant = 2;
  const auto a = Tenant("a");
  EXPECT_FALSE(Ask(a).has_value());
  EXPECT_FALSE(Ask(a).has_value());
  EXPECT_EQ(Ask(a), Cause::kTenantQueueFull);
  EXPECT_FALSE(Ask(Tenant("b")).has_value());
}

TEST_F(AdmissionTest, WithoutALimitOfItsOwnATenantMayFillTheQueue) {
  limits_.max_queued_per_tenant = 0;
  limits_.max_queued_requests = 2;
  const auto a = Tenant("a");
  EXPECT_FALSE(Ask(a).has_value());
  EXPECT_FALSE(Ask(a).has_value());
  EXPECT_EQ(Ask(a), Cause::kTenantQueueFull);
}

TEST_F(AdmissionTest, ATenantWithLessQueuedPushesOutTheOneWithMost) {
  limits_.max_queued_requests = 4;
  const auto many = Tenant("many");
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(Ask(many).has_value());
  EXPECT_FALSE(Enter(Tenant("few")).has_value());
  const QueueResult result = Queue(last_);
  EXPECT_FALSE(result.refusal.has_value());
  EXPECT_EQ(result.pushed_out, 4u) << "the youngest";
  EXPECT_EQ(result.push_out.error.code, ApiCode::kUnavailable);
  EXPECT_GT(result.push_out.error.retry_after_ms, 0u);
  Leave(4);
  EXPECT_EQ(Ask(many), Cause::kQueueFull);
}

TEST_F(AdmissionTest, JournalBytesShedNewRequestsAndNeverRunningOnes) {
  limits_.max_journal_bytes = 100;
  EXPECT_FALSE(Enter().has_value());
  admission().JournalGrew(1, 99);
  EXPECT_FALSE(Enter().has_value());
  EXPECT_FALSE(Queue(2, 10, 1).refusal.has_value());
  EXPECT_EQ(admission().journal_bytes(), 100u);
  EXPECT_EQ(Enter()->cause, Cause::kJournalFull);
  admission().JournalGrew(1, 50);  // what runs goes on
  Leave(1);
  EXPECT_FALSE(Enter().has_value());
  EXPECT_EQ(Queue(last_, 10, 100).refusal->cause, Cause::kJournalFull) << "brought along";
}

TEST_F(AdmissionTest, TenantsWithAccountsAreBounded) {
  limits_.max_tenants = 2;
  EXPECT_FALSE(Ask(Tenant("a", {.requests_per_minute = 1})).has_value());
  EXPECT_FALSE(Ask(Tenant("b")).has_value());
  EXPECT_EQ(Ask(Tenant("c")), Cause::kTenants);
  Leave(1);
  Leave(2);
  EXPECT_EQ(Ask(Tenant("c")), Cause::kTenants) << "their quotas still count";
  now_ += 60 * kSecond;
  EXPECT_FALSE(Ask(Tenant("c")).has_value());
}

TEST_F(AdmissionTest, RequestsPerMinute) {
  const auto tenant = Tenant("a", {.requests_per_minute = 6});
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(Ask(tenant).has_value());
  const auto refused = Enter(tenant);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->cause, Cause::kRequestsPerMinute);
  EXPECT_EQ(refused->error.code, ApiCode::kRateLimited);
  EXPECT_EQ(refused->error.retry_after_ms, 10'000u);
  now_ += 10 * kSecond - 1;
  EXPECT_EQ(Ask(tenant), Cause::kRequestsPerMinute);
  now_ += 1;
  EXPECT_FALSE(Ask(tenant).has_value()) << "at the time that was told";
  EXPECT_EQ(Ask(tenant), Cause::kRequestsPerMinute);
  EXPECT_FALSE(Ask(Tenant("b")).has_value());
  EXPECT_EQ(admission().quota_refusals().at("a"), 3u);
}

TEST_F(AdmissionTest, AQuotaIsDividedByTheRouters) {
  admission().SetRouters(4);
  const auto tenant = Tenant("a", {.requests_per_minute = 8, .max_concurrent = 100});
  EXPECT_FALSE(Ask(tenant).has_value());
  EXPECT_FALSE(Ask(tenant).has_value());
  EXPECT_EQ(Ask(tenant), Cause::kRequestsPerMinute);
  const auto small = Tenant("b", {.max_concurrent = 2});
  EXPECT_FALSE(Ask(small).has_value()) << "at least one";
  EXPECT_EQ(Ask(small), Cause::kConcurrent);
  admission().SetRouters(1);  // the others are gone
  EXPECT_FALSE(Ask(small).has_value());
  EXPECT_EQ(Ask(small), Cause::kConcurrent);
}

TEST_F(AdmissionTest, ConcurrentRequests) {
  const auto tenant = Tenant("a", {.max_concurrent = 2});
  EXPECT_FALSE(Ask(tenant).has_value());
  EXPECT_FALSE(Ask(tenant).has_value());
  EXPECT_EQ(Ask(tenant), Cause::kConcurrent);
  LaunchAll();
  Leave(1, 10);
  EXPECT_FALSE(Ask(tenant).has_value());
}

TEST_F(AdmissionTest, TokensAreReservedAndWhatWasNotTakenIsGivenBack) {
  const auto tenant = Tenant("a", {.tokens_per_minute = 600});
  EXPECT_FALSE(Ask(tenant, 600).has_value());
  const auto refused = Enter(tenant);
  ASSERT_TRUE(refused.has_value()) << "before anything is tokenised";
  EXPECT_EQ(refused->cause, Cause::kTokensPerMinute);
  EXPECT_EQ(refused->error.retry_after_ms, 60'000u) << "for another one like it";
  LaunchAll();
  Leave(1, 100);
  EXPECT_EQ(Ask(tenant, 501), Cause::kTokensPerMinute);
  EXPECT_FALSE(Ask(tenant, 500).has_value());
}

TEST_F(AdmissionTest, TokensBeyondTheReservationAreADebt) {
  const auto tenant = Tenant("a", {.tokens_per_minute = 60});
  EXPECT_FALSE(Ask(tenant, 10'000).has_value()) << "more than a minute's worth asks for all of it";
  LaunchAll();
  Leave(1, 120);
  const auto refused = Enter(tenant);
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->error.retry_after_ms, 120'000u) << "60 of debt, and 60 for one like it";
  now_ += 120 * kSecond;
  EXPECT_FALSE(Ask(tenant, 60).has_value());
}

TEST_F(AdmissionTest, WhatNeverRanCostsNoTokens) {
  const auto tenant = Tenant("a", {.tokens_per_minute = 100});
  EXPECT_FALSE(Ask(tenant, 100).has_value());
  Leave(1);  // its client left the queue
  EXPECT_FALSE(Ask(tenant, 100).has_value());
  EXPECT_EQ(admission().queue().size(), 1u);
}

TEST_F(AdmissionTest, RetryAfterFollowsThePaceOfTheQueue) {
  limits_.max_queued_requests = 5;
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(Ask().has_value());
  for (int i = 0; i < 5; ++i) {
    now_ += 4 * kSecond;
    admission().Launch(*admission().Next("model"), now_);
    EXPECT_FALSE(Ask().has_value());
  }
  now_ += 4 * kSecond;
  EXPECT_FALSE(Enter().has_value());
  const QueueResult result = Queue(last_);
  ASSERT_TRUE(result.refusal.has_value());
  EXPECT_EQ(result.refusal->error.retry_after_ms, 24'000u) << "six of them, 4 s each";
}

TEST_F(AdmissionTest, AnEmptyPoolIsWaitedForSoLong) {
  limits_.empty_pool_wait_ms = 1500;
  EXPECT_FALSE(Ask().has_value());
  EXPECT_EQ(admission().NextExpiry(), std::nullopt) << "there are workers";
  now_ += 10 * kSecond;
  admission().PoolEmpty("model", true, now_);
  admission().PoolEmpty("model", true, now_ + kSecond);  // still
  EXPECT_EQ(admission().NextExpiry(), now_ + 1500 * kMicrosPerMilli);
  now_ += kSecond;
  EXPECT_FALSE(Ask().has_value());
  now_ += 500 * kMicrosPerMilli;
  EXPECT_EQ(admission().Expired(now_ - 1), std::vector<uint64_t>{});
  EXPECT_EQ(admission().Expired(now_), std::vector<uint64_t>{1});
  EXPECT_EQ(admission().Expired(now_ + kSecond), (std::vector<uint64_t>{1, 2}));
  admission().PoolEmpty("model", false, now_);
  EXPECT_TRUE(admission().Expired(now_ + 100 * kSecond).empty());
}

TEST_F(AdmissionTest, WhoseModelNobodyKnowsIsHeldInTheSameQueue) {
  limits_.max_queued_requests = 2;
  EXPECT_FALSE(Ask().has_value());
  EXPECT_FALSE(Enter().has_value());
  EXPECT_FALSE(admission().Hold(2, now_, now_).refusal.has_value());
  EXPECT_FALSE(Enter().has_value());
  EXPECT_EQ(admission().Hold(3, now_, now_).refusal->cause, Cause::kQueueFull);
  EXPECT_EQ(admission().NextExpiry(), now_ + 1500 * kMicrosPerMilli);
  EXPECT_EQ(admission().Expired(now_ + 1500 * kMicrosPerMilli), std::vector<uint64_t>{2});
  EXPECT_TRUE(admission().held(2));
  admission().Release(2);
  EXPECT_FALSE(Queue(2).refusal.has_value()) << "and then it queues like any other";
  EXPECT_EQ(admission().NextExpiry(), std::nullopt);
  Leave(2);
  EXPECT_EQ(admission().queue().size(), 1u);
}

TEST_F(AdmissionTest, HeldRequestsGiveWayLikeAnyOther) {
  limits_.max_queued_requests = 2;
  const auto many = Tenant("many");
  for (uint64_t id = 1; id <= 2; ++id) {
    EXPECT_FALSE(Enter(many).has_value());
    EXPECT_FALSE(admission().Hold(id, now_, now_).refusal.has_value());
  }
  EXPECT_FALSE(Enter(Tenant("few")).has_value());
  const QueueResult result = admission().Hold(3, now_, now_);
  EXPECT_FALSE(result.refusal.has_value());
  EXPECT_EQ(result.pushed_out, 2u);
  Leave(2);
  EXPECT_EQ(admission().queue().size(), 2u);
}

TEST_F(AdmissionTest, QuotaRefusalsHaveBoundedLabels) {
  limits_.max_tenant_labels = 2;
  for (const char* name : {"a", "b", "c", "d"}) {
    const auto tenant = Tenant(name, {.max_concurrent = 1});
    EXPECT_FALSE(Ask(tenant).has_value());
    EXPECT_EQ(Ask(tenant), Cause::kConcurrent);
  }
  const std::map<std::string, uint64_t> expected = {{"a", 1}, {"b", 1}, {"other", 2}};
  EXPECT_EQ(admission().quota_refusals(), expected);
}

TEST_F(AdmissionTest, ANameThatAGatewayMadeUpIsNoLabel) {
  TenantProfile made_up;
  made_up.name = "whoever";
  made_up.listed = false;
  made_up.max_concurrent = 1;
  const auto tenant = std::make_shared<const TenantProfile>(made_up);
  EXPECT_FALSE(Ask(tenant).has_value());
  EXPECT_EQ(Ask(tenant), Cause::kConcurrent);
  const std::map<std::string, uint64_t> expected = {{"other", 1}};
  EXPECT_EQ(admission().quota_refusals(), expected);
}

TEST(AdmissionDeathTest, ARequestEntersOnce) {
  Admission admission{RouterLimits()};
  EXPECT_FALSE(admission.Enter(1, nullptr, 0, 0).has_value());
  EXPECT_DEATH((void)admission.Enter(1, nullptr, 0, 0), "enters once");
}

}  // namespace
}  // namespace quire
