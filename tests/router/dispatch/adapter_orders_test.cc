// Orders about adapters: to whom they go, how the answers of several workers become one, what is
// lost and what takes too long.
#include "router/dispatch/adapter_orders.h"

#include <gtest/gtest.h>

#include <optional>

#include "common/runtime/virtual_runtime.h"

namespace quire {
namespace {

using OrderVerdict = AdapterVerdict;

class AdapterOrdersTest : public testing::Test {
 protected:
  uint64_t Begin(size_t workers, AdapterOrder::Kind kind = AdapterOrder::Kind::kLoad) {
    std::vector<AdapterOrders::Target> targets;
    for (uint32_t i = 0; i < workers; ++i) {
      targets.push_back({WorkerIndex(i), "worker " + std::to_string(i)});
    }
    return Begin(targets, kind);
  }
  uint64_t Begin(const std::vector<AdapterOrders::Target>& targets,
                 AdapterOrder::Kind kind = AdapterOrder::Kind::kLoad) {
    AdapterOrder order;
    order.kind = kind;
    order.name = "sql";
    order.path = "/x";
    return orders_.Begin(order, targets, [this](std::optional<ApiError> error) {
      ++ended_;
      error_ = std::move(error);
    });
  }
  void Answer(uint32_t worker, uint64_t number, OrderVerdict verdict,
              const std::string& message = "", const std::string& digest = "d") {
    orders_.Answered(WorkerIndex(worker), {number, verdict, message, digest, 0});
  }

  VirtualWorld world_{1};
  DispatchCounters counters_;
  std::vector<std::pair<uint32_t, AdapterOrder>> sent_;
  AdapterOrders orders_{world_.executor(),
                        [this](WorkerIndex worker, const AdapterOrder& order) {
                          sent_.emplace_back(worker.value(), order);
                        },
                        counters_};
  int ended_ = 0;
  std::optional<ApiError> error_;
};

TEST_F(AdapterOrdersTest, EndsWhenEveryWorkerHasDoneIt) {
  const uint64_t number = Begin(2);
  ASSERT_EQ(sent_.size(), 2u);
  EXPECT_EQ(sent_[1].second.number, number);
  EXPECT_EQ(sent_[1].second.path, "/x");
  Answer(0, number, OrderVerdict::kDone);
  Answer(0, number, OrderVerdict::kInvalid);  // twice: the first counts
  Answer(7, number, OrderVerdict::kInvalid);  // was not asked
  EXPECT_EQ(ended_, 0);
  Answer(1, number, OrderVerdict::kDone);
  EXPECT_EQ(ended_, 1);
  EXPECT_FALSE(error_.has_value());
  Answer(1, number, OrderVerdict::kDone);
  EXPECT_EQ(ended_, 1);
  EXPECT_EQ(orders_.size(), 0u);
  EXPECT_EQ(counters_.adapter_orders, 1u);
}

TEST_F(AdapterOrdersTest, SaysWhichWorkersRefuseAndWhy) {
  const uint64_t number = Begin(4);
  Answer(0, number, OrderVerdict::kDone);
  Answer(1, number, OrderVerdict::kNoSlot, "all slots are in use");
  Answer(2, number, OrderVerdict::kNoSlot, "all slots are in use");
  Answer(3, number, OrderVerdict::kInvalid, "a tensor\nis wrong");
  ASSERT_TRUE(error_.has_value());
  EXPECT_EQ(error_->code, ApiCode::kConflict);
  EXPECT_EQ(error_->message,
            "Loading lora adapter 'sql' failed at 3 of 4 workers: all slots are in use (worker 1, "
            "worker 2); a tensor?is wrong (worker 3)");
}

TEST_F(AdapterOrdersTest, HasVllmsWordsWhereItIsLoadedAlready) {
  uint64_t number = Begin(2);
  Answer(0, number, OrderVerdict::kAlready);
  Answer(1, number, OrderVerdict::kAlready);
  ASSERT_TRUE(error_.has_value());
  EXPECT_EQ(error_->code, ApiCode::kInvalidArgument);
  EXPECT_EQ(error_->message,
            "The lora adapter 'sql' has already been loaded. If you want to load the adapter in "
            "place, set 'load_inplace' to True.");
  number = Begin(2);
  Answer(0, number, OrderVerdict::kAlready, "", "d");
  Answer(1, number, OrderVerdict::kDone, "", "d");
  EXPECT_FALSE(error_.has_value()) << "a worker that had it, and one that was without";
  number = Begin(2);
  Answer(0, number, OrderVerdict::kAlready, "", "e");
  Answer(1, number, OrderVerdict::kDone, "", "d");
  ASSERT_TRUE(error_.has_value()) << "two contents under one name";
  EXPECT_NE(error_->message.find("load_inplace"), std::string::npos);
}

TEST_F(AdapterOrdersTest, UnloadsWhereItIsAndIsNotFoundWhereNobodyHasIt) {
  uint64_t number = Begin(2, AdapterOrder::Kind::kUnload);
  Answer(0, number, OrderVerdict::kNotFound, "it is not loaded");
  Answer(1, number, OrderVerdict::kDone);
  EXPECT_EQ(ended_, 1);
  EXPECT_FALSE(error_.has_value());
  number = Begin(2, AdapterOrder::Kind::kUnload);
  Answer(0, number, OrderVerdict::kNotFound, "it is not loaded");
  Answer(1, number, OrderVerdict::kNotFound, "it is not loaded");
  ASSERT_TRUE(error_.has_value());
  EXPECT_EQ(error_->code, ApiCode::kNotFound);
  EXPECT_EQ(error_->message, "The lora adapter 'sql' cannot be found.");
}

TEST_F(AdapterOrdersTest, AWorkerThatIsLostOrSilentIsNamed) {
  const uint64_t first = Begin(2);
  const uint64_t second = Begin(2);
  Answer(0, first, OrderVerdict::kDone);
  orders_.Lost(WorkerIndex(1));
  EXPECT_EQ(ended_, 1);
  ASSERT_TRUE(error_.has_value());
  EXPECT_EQ(error_->code, ApiCode::kUnavailable);
  EXPECT_EQ(error_->retry_after_ms, 1000u);
  EXPECT_NE(error_->message.find("lost before it answered (worker 1)"), std::string::npos);
  world_.RunUntil(world_.clock().Now() + kAdapterOrderTimeout - 1);
  EXPECT_EQ(ended_, 1);
  world_.RunUntil(world_.clock().Now() + 2);
  EXPECT_EQ(ended_, 2);
  EXPECT_NE(error_->message.find("did not answer in time (worker 0)"), std::string::npos);
  Answer(0, second, OrderVerdict::kDone);  // too late
  EXPECT_EQ(ended_, 2);
}

TEST_F(AdapterOrdersTest, WhoCannotTakeItIsNotAsked) {
  Begin({{WorkerIndex(0), "worker 0", "it takes none"}});
  EXPECT_TRUE(sent_.empty());
  EXPECT_EQ(ended_, 0) << "not inside the call";
  world_.RunUntil(world_.clock().Now() + 1);
  EXPECT_EQ(ended_, 1);
  EXPECT_NE(error_->message.find("it takes none (worker 0)"), std::string::npos);
}

TEST_F(AdapterOrdersTest, AForgottenOneEndsForNobody) {
  const uint64_t number = Begin(1);
  orders_.Forget(number);
  orders_.Forget(number);
  Answer(0, number, OrderVerdict::kDone);
  world_.RunUntil(world_.clock().Now() + 2 * kAdapterOrderTimeout);
  EXPECT_EQ(ended_, 0);
}

TEST_F(AdapterOrdersTest, ThoseUnderWayAreLimited) {
  for (size_t i = 0; i < kMaxAdapterOrders; ++i) EXPECT_NE(Begin(1), 0u);
  EXPECT_EQ(Begin(1), 0u);
  EXPECT_EQ(counters_.adapter_orders_refused, 1u);
  EXPECT_EQ(sent_.size(), kMaxAdapterOrders);
  Answer(0, 1, OrderVerdict::kDone);
  EXPECT_NE(Begin(1), 0u);
}

}  // namespace
}  // namespace quire
