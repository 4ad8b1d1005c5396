#include "router/admission/admission.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(Admission, AdmitsUpToItsLimitAndNotOneMore) {
  RouterLimits limits;
  limits.max_live_requests = 3;
  Admission admission(limits);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(admission.TryAdmit().has_value());
  const auto refused = admission.TryAdmit();
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->code, ApiCode::kUnavailable);
  EXPECT_GT(refused->retry_after_ms, 0u);
  EXPECT_NE(refused->message.find("3"), std::string::npos);
  EXPECT_EQ(admission.live(), 3u);
  EXPECT_EQ(admission.refused_total(), 1u);
  admission.Release();
  EXPECT_FALSE(admission.TryAdmit().has_value());
}

TEST(Admission, NothingComesInWhileDraining) {
  Admission admission{RouterLimits()};
  EXPECT_FALSE(admission.TryAdmit().has_value());
  admission.StartDraining();
  EXPECT_EQ(admission.TryAdmit()->code, ApiCode::kUnavailable);
  EXPECT_EQ(admission.live(), 1u);
  admission.Release();
}

TEST(AdmissionDeathTest, APlaceIsGivenBackOnce) {
  Admission admission{RouterLimits()};
  EXPECT_DEATH(admission.Release(), "admitted");
}

}  // namespace
}  // namespace quire
