// Admission through random lives of requests: nothing leaks, quotas hold over any time, shares
// follow weights, and what was told is added up.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "router/admission/admission.h"

namespace quire {
namespace {

constexpr Micros kSecond = kMicrosPerSecond;

struct Life {
  std::string tenant;
  bool queued = false;
  bool launched = false;
};

std::shared_ptr<const TenantProfile> Tenant(const std::string& name, uint32_t weight,
                                            uint64_t tokens_per_minute, uint32_t concurrent) {
  TenantProfile profile;
  profile.name = name;
  profile.weight = weight;
  profile.tokens_per_minute = tokens_per_minute;
  profile.max_concurrent = concurrent;
  return std::make_shared<const TenantProfile>(std::move(profile));
}

TEST(AdmissionRandom, NothingLeaksAndQuotasHold) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const auto below = [&random](uint64_t n) { return random() % n; };
    RouterLimits limits;
    limits.max_live_requests = 40;
    limits.max_queued_requests = 20;
    limits.max_queued_per_tenant = 12;
    limits.max_journal_bytes = 4000;
    limits.max_tenants = 4;
    Admission admission(limits);
    const std::vector<std::shared_ptr<const TenantProfile>> tenants = {
        nullptr, Tenant("a", 1, 6000, 0), Tenant("b", 3, 0, 5), Tenant("c", 1, 600, 3)};
    std::map<uint64_t, Life> lives;
    std::map<std::string, double> taken;  // tokens, by tenant
    uint64_t last = 0, admitted = 0, refused = 0;
    const Micros start = 77 * kSecond;
    Micros now = start;
    const auto leave = [&](uint64_t id) {
      // Never more than was reserved, so that no debt blurs the quota.
      const uint64_t tokens = lives.at(id).launched ? below(100) : 0;
      taken[lives.at(id).tenant] += static_cast<double>(tokens);
      admission.Leave(id, tokens, now);
      lives.erase(id);
    };
    for (int step = 0; step < 3000; ++step) {
      now += static_cast<Micros>(below(200)) * kMicrosPerMilli;
      const uint64_t what = below(6);
      if (what <= 1) {
        const auto& tenant = tenants[below(tenants.size())];
        const uint64_t id = ++last;
        if (admission.Enter(id, tenant, static_cast<int32_t>(below(3)) - 1, now)) {
          ++refused;
        } else {
          ++admitted;
          lives[id].tenant = tenant == nullptr ? "" : tenant->name;
        }
      } else if (what <= 3 && !lives.empty()) {
        auto it = lives.lower_bound(below(last) + 1);
        if (it == lives.end()) it = lives.begin();
        if (it->second.launched) {
          admission.JournalGrew(it->first, below(64));
        } else if (!it->second.queued) {
          const QueueResult result =
              admission.Queue(it->first, {below(2) == 0 ? "m" : "k", 100, below(20)}, now);
          it->second.queued = !result.refusal;
          if (result.refusal) {
            ++refused;
            leave(it->first);
          }
          if (result.pushed_out) {
            ++refused;
            EXPECT_TRUE(lives.at(*result.pushed_out).queued);
            leave(*result.pushed_out);
          }
        } else if (below(4) == 0) {
          leave(it->first);
        }
      } else if (what == 4) {
        if (const auto next = admission.Next(below(2) == 0 ? "m" : "k")) {
          admission.Launch(*next, now);
          lives.at(*next).launched = true;
        }
      } else if (!lives.empty()) {
        auto it = lives.lower_bound(below(last) + 1);
        if (it != lives.end()) leave(it->first);
      }
      admission.CheckInvariants();
      ASSERT_EQ(admission.live(), lives.size());
      size_t of_b = 0, of_c = 0;
      for (const auto& [id, life] : lives) {
        of_b += life.tenant == "b" ? 1 : 0;
        of_c += life.tenant == "c" ? 1 : 0;
      }
      ASSERT_LE(of_b, 5u);
      ASSERT_LE(of_c, 3u);
    }
    const double minutes = static_cast<double>(now - start) / (60.0 * kSecond);
    EXPECT_LE(taken["a"], 6000 * (1 + minutes)) << "a bucket, and what flowed in since";
    EXPECT_LE(taken["c"], 600 * (1 + minutes));
    while (!lives.empty()) leave(lives.begin()->first);
    admission.CheckInvariants();
    EXPECT_EQ(admission.live(), 0u);
    EXPECT_EQ(admission.queue().size(), 0u);
    EXPECT_EQ(admission.journal_bytes(), 0u);
    EXPECT_EQ(admission.admitted_total(), admitted);
    uint64_t told = 0;
    for (size_t i = 0; i < kRefusalCauses; ++i) {
      told += admission.refused_total(static_cast<RefusalCause>(i));
    }
    EXPECT_EQ(told, refused);
    EXPECT_GT(refused, 20u) << "limits were met";
    if (::testing::Test::HasFailure()) break;
  }
}

// Three tenants that always have something queued, one of them with requests ten times as large.
TEST(AdmissionRandom, WhatWasServedFollowsWeightsWhateverRequestsReallyTook) {
  std::mt19937_64 random(7);
  RouterLimits limits;
  Admission admission(limits);
  const std::vector<std::shared_ptr<const TenantProfile>> tenants = {
      Tenant("light", 1, 0, 0), Tenant("heavy", 3, 0, 0), Tenant("bulky", 1, 0, 0)};
  const uint64_t sizes[] = {50, 50, 500};
  std::map<uint64_t, size_t> whose;
  uint64_t last = 0;
  const auto ask = [&](size_t which) {
    const uint64_t id = ++last;
    ASSERT_FALSE(admission.Enter(id, tenants[which], 0, 0).has_value());
    ASSERT_FALSE(admission.Queue(id, {"m", 2 * sizes[which], 0}, 0).refusal.has_value());
    whose[id] = which;
  };
  for (size_t which = 0; which < 3; ++which) {
    for (int i = 0; i < 5; ++i) ask(which);
  }
  double served[3] = {};
  for (int i = 0; i < 5000; ++i) {
    const uint64_t id = *admission.Next("m");
    const size_t which = whose.at(id);
    admission.Launch(id, i);
    const uint64_t tokens = random() % (2 * sizes[which]);  // half of what it might have taken
    served[which] += static_cast<double>(tokens);
    admission.Leave(id, tokens, i);
    ask(which);
  }
  EXPECT_NEAR(served[1] / served[0], 3.0, 0.1);
  EXPECT_NEAR(served[2] / served[0], 1.0, 0.1);
}

}  // namespace
}  // namespace quire
