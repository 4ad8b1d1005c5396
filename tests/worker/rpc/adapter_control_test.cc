// Orders about adapters on the worker's side of the wire, and how routers hear of changes.
#include "common/wire/features.h"
#include "tests/worker/rpc/rpc_fixture.h"

namespace quire {
namespace {

const std::string kOne(64, '1');
const std::string kTwo(64, '2');

class PlayedControl final : public AdapterControl {
 public:
  void Order(const AdapterOrder& order, std::function<void(AdapterResult)> done) override {
    orders.push_back(order);
    dones.push_back(std::move(done));
  }
  std::vector<AdapterOrder> orders;
  std::vector<std::function<void(AdapterResult)>> dones;
};

WorkerHello HelloWithOrders() {
  WorkerHello hello = TestHello();
  hello.served_names = {"base"};
  hello.features.emplace_back(kFeatureAdapterOrders);
  return hello;
}

class AdapterControlTest : public RpcTest {
 protected:
  AdapterControlTest() : RpcTest(HelloWithOrders()) { hub.SetAdapterControl(&control_); }

  std::unique_ptr<BareRouter> AttachKnowing(uint64_t instance) {
    auto router = Dial();
    Run(kMicrosPerMilli);
    pb::RouterFrame hello = HelloFrame(instance, 1);
    hello.mutable_hello()->add_features(std::string(kFeatureAdapterChanges));
    router->Send(hello);
    Run(kMicrosPerMilli);
    return router;
  }
  static pb::RouterFrame OrderOf(const std::string& name) {
    pb::RouterFrame frame;
    frame.mutable_adapter_order()->set_number(5);
    frame.mutable_adapter_order()->set_name(name);
    frame.mutable_adapter_order()->set_path("/x");
    return frame;
  }
  // Its frames about adapters, in order.
  static std::vector<pb::WorkerFrame> About(const BareRouter& router) {
    std::vector<pb::WorkerFrame> found;
    for (const pb::WorkerFrame& frame : router.frames) {
      if (frame.has_adapters_changed() || frame.has_adapter_result()) found.push_back(frame);
    }
    return found;
  }

  PlayedControl control_;
};

TEST_F(AdapterControlTest, TheChangeComesBeforeTheResult) {
  auto asking = AttachKnowing(1);
  auto other = AttachKnowing(2);
  auto old = Attach(3, 1);
  asking->Send(OrderOf("sql"));
  Run(kMicrosPerMilli);
  ASSERT_EQ(control_.orders.size(), 1u);
  EXPECT_EQ(control_.orders[0].name, "sql");
  EXPECT_EQ(control_.orders[0].path, "/x");
  hub.ChangeAdapters({{{"sql", kOne, "base", 8}}, {kTwo}});
  control_.dones[0]({5, AdapterVerdict::kDone, "", kOne, 0});
  Run(kMicrosPerMilli);
  const std::vector<pb::WorkerFrame> frames = About(*asking);
  ASSERT_EQ(frames.size(), 2u);
  ASSERT_EQ(frames[0].adapters_changed().adapters_size(), 1);
  EXPECT_EQ(frames[0].adapters_changed().adapters(0).digest(), kOne);
  EXPECT_EQ(frames[0].adapters_changed().held(0), kTwo);
  EXPECT_EQ(frames[1].adapter_result().number(), 5u);
  EXPECT_EQ(frames[1].adapter_result().verdict(), pb::ADAPTER_DONE);
  EXPECT_EQ(About(*other).size(), 1u) << "every router hears of the change";
  EXPECT_TRUE(About(*old).empty()) << "unless it does not know what that is";
  EXPECT_FALSE(old->closed);
}

TEST_F(AdapterControlTest, WhoComesLaterHearsWhatThereIsNow) {
  hub.ChangeAdapters({{{"sql", kOne, "base", 8}}, {}});
  auto router = AttachKnowing(1);
  ASSERT_EQ(router->frames.front().hello().adapters_size(), 1);
  EXPECT_TRUE(About(*router).empty()) << "the hello has it all";
  hub.ChangeAdapters({{}, {kOne}});
  auto late = AttachKnowing(2);
  EXPECT_EQ(late->frames.front().hello().adapters_size(), 0);
  ASSERT_EQ(About(*late).size(), 1u);
  EXPECT_EQ(About(*late)[0].adapters_changed().held(0), kOne);
}

TEST_F(AdapterControlTest, ARouterThatHasLeftGetsNoResult) {
  auto router = AttachKnowing(1);
  router->Send(OrderOf("sql"));
  Run(kMicrosPerMilli);
  router->Drop();
  Run(kMicrosPerSecond);
  control_.dones.at(0)({5, AdapterVerdict::kDone, "", kOne, 0});
  Run(kMicrosPerMilli);
  EXPECT_EQ(hub.attached_count(), 0u);
}

class NoAdapterControlTest : public RpcTest {};

TEST_F(NoAdapterControlTest, AnOrderThatTheHelloDoesNotOfferEndsTheAttach) {
  auto router = Attach(1, 1);
  pb::RouterFrame frame;
  frame.mutable_adapter_order()->set_name("sql");
  router->Send(frame);
  Run(kMicrosPerMilli);
  EXPECT_NE(router->RefusedMessage().find("adapter_orders"), std::string::npos);
}

}  // namespace
}  // namespace quire
