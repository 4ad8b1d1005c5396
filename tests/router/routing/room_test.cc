// Room at made-up workers: each bound at its limit and one above.
#include "router/routing/room.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "router/routing/policy.h"

namespace quire {
namespace {

const std::vector<std::string> kFeatures = {"resume"};
constexpr uint64_t kAhead = 1000;

// Two requests wait at it, so that every bound holds.
WorkerView Busy(uint32_t index = 0) {
  WorkerView worker;
  worker.worker = WorkerIndex(index);
  worker.features = kFeatures;
  worker.max_waiting_requests = 8;
  worker.max_num_seqs = 4;
  worker.block_size = 16;
  worker.capacity_blocks = 100;
  worker.load.waiting_requests = 2;
  worker.load.waiting_prefill_tokens = 32;
  worker.load.free_blocks = 6;
  worker.load.evictable_blocks = 4;
  return worker;
}

Room RoomOf(const FleetView& view, const RoomNeed& need, uint64_t max_prefill_ahead) {
  RoomSearch search(need, max_prefill_ahead);
  for (const WorkerView& worker : view.workers) {
    if (search.See(worker)) break;
  }
  return search.found();
}

TEST(HasRoom, OneSubmitMayWaitWhateverTheLoad) {
  WorkerView worker = Busy();
  worker.load.waiting_requests = 0;
  worker.load.running_prefill_tokens = 1'000'000;
  worker.load.free_blocks = worker.load.evictable_blocks = 0;
  EXPECT_TRUE(HasRoom(worker, {{}, 5000, 5000}, kAhead));
  worker.unseen_submits = 1;
  EXPECT_FALSE(HasRoom(worker, {{}, 5000, 5000}, kAhead));
}

TEST(HasRoom, CreditComesFirst) {
  WorkerView worker = Busy();
  worker.load.waiting_requests = 0;
  worker.routers_attached = 3;
  worker.unadmitted_submits = 1;
  EXPECT_TRUE(HasRoom(worker, {}, kAhead));
  worker.unadmitted_submits = 2;  // 8 divided by 3
  EXPECT_FALSE(HasRoom(worker, {}, kAhead));
  worker.routers_attached = 100;  // at least one
  worker.unadmitted_submits = 0;
  EXPECT_TRUE(HasRoom(worker, {}, kAhead));
}

TEST(HasRoom, LessThanABatchWaits) {
  WorkerView worker = Busy();
  worker.unseen_submits = 1;
  EXPECT_TRUE(HasRoom(worker, {}, kAhead));
  worker.unseen_submits = 2;
  EXPECT_FALSE(HasRoom(worker, {}, kAhead));
  worker.max_num_seqs = 0;  // it does not tell
  EXPECT_TRUE(HasRoom(worker, {}, kAhead));
}

TEST(HasRoom, PrefillAheadIsBounded) {
  WorkerView worker = Busy();
  worker.load.running_prefill_tokens = 868;
  worker.unseen_tokens = 0;
  worker.load.free_blocks = 1000;
  EXPECT_TRUE(HasRoom(worker, {{}, 100, 0}, kAhead));
  EXPECT_FALSE(HasRoom(worker, {{}, 101, 0}, kAhead));
  FleetView view;
  view.workers = {worker};
  EXPECT_EQ(RoomOf(view, {{}, 100, 0}, kAhead), Room::kSome);
  EXPECT_EQ(RoomOf(view, {{}, 101, 0}, kAhead), Room::kAhead);
  view.workers[0].load.free_blocks = 0;
  view.workers[0].load.evictable_blocks = 0;
  EXPECT_EQ(RoomOf(view, {{}, 101, 0}, kAhead), Room::kFull) << "blocks lack, too";
}

TEST(HasRoom, BlocksThatAreNotSpokenForSuffice) {
  WorkerView worker = Busy();  // 10 to be had, 2 of them spoken for
  EXPECT_TRUE(HasRoom(worker, {{}, 100, 28}, kAhead));
  EXPECT_FALSE(HasRoom(worker, {{}, 100, 29}, kAhead));
  worker.unseen_tokens = 1;
  EXPECT_FALSE(HasRoom(worker, {{}, 100, 28}, kAhead));
  worker.capacity_blocks = 0;  // it does not tell
  EXPECT_TRUE(HasRoom(worker, {{}, 100, 29}, kAhead));
}

TEST(RoomSearch, TellsWhyThereIsNone) {
  FleetView view;
  EXPECT_EQ(RoomOf(view, {}, kAhead), Room::kEmptyPool);
  view.workers = {Busy(0), Busy(1)};
  EXPECT_EQ(RoomOf(view, {{"grammar"}, 0, 0}, kAhead), Room::kUnfit);
  EXPECT_EQ(RoomOf(view, {{"resume"}, 0, 0}, kAhead), Room::kSome);
  EXPECT_EQ(RoomOf(view, {{}, 5000, 0}, kAhead), Room::kFull);
  view.workers[1].load.waiting_requests = 0;
  EXPECT_EQ(RoomOf(view, {{}, 5000, 0}, kAhead), Room::kSome);
}

TEST(RoomSearch, AnAdapterIsHeldOrTheWorkerIsUnfit) {
  const std::vector<ServedAdapter> held = {{"a", "one", "base", 8}, {"b", "two", "base", 8}};
  FleetView view;
  view.workers = {Busy(0), Busy(1)};
  view.workers[1].adapters = held;
  RoomNeed need;
  need.adapter = "two";
  EXPECT_EQ(RoomOf(view, need, kAhead), Room::kSome);
  RouteQuery query;
  query.adapter = need.adapter;
  const std::vector<WorkerView> candidates = Candidates(view, query);
  ASSERT_EQ(candidates.size(), 1u);
  EXPECT_EQ(candidates[0].worker, WorkerIndex(1));
  need.adapter = "b";
  EXPECT_EQ(RoomOf(view, need, kAhead), Room::kUnfit) << "a name is no digest";
}

TEST(Candidates, PreferRoomToMereCredit) {
  FleetView view;
  view.workers = {Busy(0), Busy(1), Busy(2)};
  view.workers[1].load.waiting_requests = 0;
  RouteQuery query;
  query.need = {{}, 5000, 0};
  query.max_prefill_ahead = kAhead;
  std::vector<WorkerView> candidates = Candidates(view, query);
  ASSERT_EQ(candidates.size(), 1u);
  EXPECT_EQ(candidates[0].worker, WorkerIndex(1));
  query.excluded = {WorkerIndex(1)};
  EXPECT_EQ(Candidates(view, query).size(), 2u) << "credit is enough when nobody has room";
}

}  // namespace
}  // namespace quire
