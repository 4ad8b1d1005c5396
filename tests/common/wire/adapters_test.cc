// Adapters in a worker's Hello: every field survives, every limit holds at it and one above.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

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

}  // namespace
}  // namespace quire
