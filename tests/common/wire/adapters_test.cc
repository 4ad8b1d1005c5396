// Adapters in a worker's Hello: every field survives, every limit holds at it and one above.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "common/wire/router_frames.h"
#include "common/wire/worker_frames.h"
#include "quire/v1/worker.pb.h"

namespace quire {
namespace {

namespace pb = ::quire::worker::v1;

const std::string kDigest = std::string(60, 'a') + "0f9e";

WorkerHello HelloWith(const std::vector<ServedAdapter>& adapters) {
  WorkerHello hello;
  hello.worker_id = "w";
  hello.model_id = "m";
  hello.served_names = {"base", "alias"};
  hello.text_bundle_sha256 = std::string(32, 's');
  hello.vocab_size = 10;
  hello.limits.max_model_len = 100;
  hello.adapters = adapters;
  return hello;
}

absl::Status Read(const WorkerHello& hello,
                  const std::function<void(pb::WorkerHello&)>& change = {}) {
  pb::WorkerFrame frame;
  EXPECT_TRUE(frame.ParseFromString(EncodeWorkerHello(hello)));
  if (change) change(*frame.mutable_hello());
  return DecodeWorkerFrame(frame.SerializeAsString()).status();
}

TEST(HelloAdapters, ComeThroughWhole) {
  const std::vector<ServedAdapter> adapters = {{"sql", kDigest, "base", 16},
                                               {"legal", std::string(64, '1'), "alias", 64}};
  const auto message = DecodeWorkerFrame(EncodeWorkerHello(HelloWith(adapters)));
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(std::get<WorkerHello>(*message).adapters, adapters);
}

TEST(HelloAdapters, TwoNamesMayShareADigest) {
  EXPECT_TRUE(Read(HelloWith({{"a", kDigest, "base", 1}, {"b", kDigest, "base", 1}})).ok());
}

TEST(HelloAdapters, AreLimited) {
  std::vector<ServedAdapter> most;
  for (int i = 0; i < kMaxServedAdapters; ++i) {
    std::string name = std::to_string(i);
    name.resize(kMaxHelloStringBytes, 'n');
    most.push_back({name, kDigest, "base", 256});
  }
  EXPECT_TRUE(Read(HelloWith(most)).ok()) << "and it fits a frame";
  const absl::Status over = Read(HelloWith(most), [](pb::WorkerHello& hello) {
    *hello.add_adapters() = hello.adapters(0);
    hello.mutable_adapters(0)->set_name("another");
  });
  EXPECT_NE(StatusMessage(over).find("adapters has 513 entries"), std::string::npos) << over;
}

TEST(HelloAdapters, ThatCannotBeUsedAreBrokenByName) {
  using Change = std::function<void(pb::ServedAdapter&)>;
  const std::vector<std::pair<std::string, Change>> changes = {
      {"is empty", [](auto& a) { a.clear_name(); }},
      {"at most 256", [](auto& a) { a.set_name(std::string(257, 'x')); }},
      {"has a ':'", [](auto& a) { a.set_name("base:sql"); }},
      {"given twice", [](auto& a) { a.set_name("base"); }},
      {"no SHA-256", [](auto& a) { a.set_digest(kDigest.substr(1)); }},
      {"no SHA-256", [](auto& a) { a.set_digest(std::string(64, 'A')); }},
      {"no served name", [](auto& a) { a.set_parent("other"); }},
  };
  for (const auto& one : changes) {
    const absl::Status status =
        Read(HelloWith({{"sql", kDigest, "base", 16}}),
             [&one](pb::WorkerHello& hello) { one.second(*hello.mutable_adapters(0)); });
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << one.first;
    EXPECT_NE(StatusMessage(status).find(one.first), std::string::npos) << status;
  }
  const absl::Status twice =
      Read(HelloWith({{"a", kDigest, "base", 1}, {"b", kDigest, "base", 1}}),
           [](pb::WorkerHello& hello) { hello.mutable_adapters(1)->set_name("a"); });
  EXPECT_NE(StatusMessage(twice).find("given twice"), std::string::npos);
}

TEST(HelloAdapters, NamesAreWhatClientsCanSay) {
  EXPECT_TRUE(CheckAdapterName("org/sql-v2").ok());
  EXPECT_TRUE(CheckAdapterName(std::string(kMaxHelloStringBytes, 'x')).ok());
  EXPECT_FALSE(CheckAdapterName(std::string(kMaxHelloStringBytes + 1, 'x')).ok());
}

TEST(AdapterFrames, AnOrderComesThroughWhole) {
  AdapterOrder order{7, AdapterOrder::Kind::kUnload, "sql", "", false, false};
  for (int i = 0; i < 2; ++i) {
    const auto message = DecodeRouterFrame(EncodeAdapterOrder(order), {10, 1});
    ASSERT_TRUE(message.ok()) << message.status();
    const AdapterOrder& read = std::get<AdapterOrder>(*message);
    EXPECT_EQ(read.number, order.number);
    EXPECT_EQ(read.kind, order.kind);
    EXPECT_EQ(read.name, order.name);
    EXPECT_EQ(read.path, order.path);
    EXPECT_EQ(read.replace, order.replace);
    EXPECT_EQ(read.any_path, order.any_path);
    order = {uint64_t{1} << 60,
             AdapterOrder::Kind::kLoad,
             std::string(kMaxAdapterBytes, 'n'),
             std::string(kMaxAdapterPathBytes, 'p'),
             true,
             true};
  }
}

TEST(AdapterFrames, AnOrderPastItsLimitsOrUnknownIsBrokenByName) {
  const auto read = [](const std::function<void(pb::AdapterOrder&)>& change) {
    pb::RouterFrame frame;
    frame.mutable_adapter_order()->set_name("sql");
    change(*frame.mutable_adapter_order());
    return StatusMessage(DecodeRouterFrame(frame.SerializeAsString(), {10, 1}).status());
  };
  EXPECT_NE(read([](auto& o) { o.set_name(std::string(257, 'x')); }).find("adapter_order.name"),
            std::string::npos);
  EXPECT_NE(read([](auto& o) { o.set_path(std::string(4097, 'x')); }).find("adapter_order.path"),
            std::string::npos);
  EXPECT_NE(read([](auto& o) {
              o.set_kind(static_cast<pb::AdapterOrder::Kind>(9));
            }).find("adapter_order.kind"),
            std::string::npos);
  EXPECT_NE(read([](auto& o) {
              o.GetReflection()->MutableUnknownFields(&o)->AddVarint(99, 1);
            }).find("field number 99"),
            std::string::npos);
}

TEST(AdapterFrames, AResultComesThroughAndAnUnknownVerdictIsAFailure) {
  const AdapterResult result{9, AdapterVerdict::kNoSlot, "all are in use", kDigest, 1000};
  const auto message = DecodeWorkerFrame(EncodeAdapterResult(result));
  ASSERT_TRUE(message.ok()) << message.status();
  const AdapterResult& read = std::get<AdapterResult>(*message);
  EXPECT_EQ(read.number, 9u);
  EXPECT_EQ(read.verdict, AdapterVerdict::kNoSlot);
  EXPECT_EQ(read.message, "all are in use");
  EXPECT_EQ(read.digest, kDigest);
  EXPECT_EQ(read.retry_after_ms, 1000u);
  pb::WorkerFrame frame;
  frame.mutable_adapter_result()->set_verdict(static_cast<pb::AdapterVerdict>(77));
  frame.mutable_adapter_result()->set_message(std::string(9000, 'x'));
  const auto unknown = DecodeWorkerFrame(frame.SerializeAsString());
  EXPECT_EQ(std::get<AdapterResult>(*unknown).verdict, AdapterVerdict::kFailed);
  EXPECT_EQ(std::get<AdapterResult>(*unknown).message.size(), kMaxWireMessageBytes);
  frame.mutable_adapter_result()->set_digest("short");
  EXPECT_FALSE(DecodeWorkerFrame(frame.SerializeAsString()).ok());
}

TEST(AdapterFrames, AMessageThatIsNotUtf8CostsNoFrame) {
  AdapterResult result{9, AdapterVerdict::kInvalid, "tensor \xff\xc3", kDigest, 0};
  const auto message = DecodeWorkerFrame(EncodeAdapterResult(result));
  ASSERT_TRUE(message.ok()) << message.status();
  EXPECT_EQ(std::get<AdapterResult>(*message).message, "tensor \xef\xbf\xbd\xef\xbf\xbd");
}

TEST(AdapterFrames, AChangeComesThroughWholeAndIsLimited) {
  AdaptersChanged most;
  for (int i = 0; i < kMaxServedAdapters; ++i) {
    std::string name = std::to_string(i);
    name.resize(kMaxHelloStringBytes, 'n');
    most.adapters.push_back({name, kDigest, std::string(kMaxHelloStringBytes, 'p'), 256});
  }
  most.held.assign(kMaxHeldAdapters, kDigest);
  const auto message = DecodeWorkerFrame(EncodeAdaptersChanged(most));
  ASSERT_TRUE(message.ok()) << message.status() << ": and it fits a frame";
  EXPECT_EQ(std::get<AdaptersChanged>(*message).adapters, most.adapters);
  EXPECT_EQ(std::get<AdaptersChanged>(*message).held, most.held);
  pb::WorkerFrame frame;
  for (int i = 0; i <= kMaxHeldAdapters; ++i) frame.mutable_adapters_changed()->add_held(kDigest);
  EXPECT_FALSE(DecodeWorkerFrame(frame.SerializeAsString()).ok());
  frame.mutable_adapters_changed()->clear_held();
  frame.mutable_adapters_changed()->add_held("x");
  EXPECT_FALSE(DecodeWorkerFrame(frame.SerializeAsString()).ok());
  frame.mutable_adapters_changed()->clear_held();
  frame.mutable_adapters_changed()->add_adapters()->set_name("a:b");
  EXPECT_FALSE(DecodeWorkerFrame(frame.SerializeAsString()).ok());
  EXPECT_TRUE(CheckServedAdapters({{"a", kDigest, "base", 1}}, {"base"}).ok());
  EXPECT_FALSE(CheckServedAdapters({{"base", kDigest, "base", 1}}, {"base"}).ok());
  EXPECT_FALSE(CheckServedAdapters({{"a", kDigest, "other", 1}}, {"base"}).ok());
}

}  // namespace
}  // namespace quire
