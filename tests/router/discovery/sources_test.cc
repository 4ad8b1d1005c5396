// Files and names that change, break and heal.
#include "discovery_fixture.h"
#include "router/discovery/dns_source.h"
#include "router/discovery/list_file.h"

namespace quire {
namespace {

TEST(WorkerList, TakesCommentsAndEmptyLines) {
  const auto list = ParseWorkerList("# workers\n\n a:1 # the first\r\n\tb:2\n[::1]:3");
  ASSERT_TRUE(list.ok());
  EXPECT_EQ(*list, (Targets{"a:1", "b:2", "[::1]:3"}));
  EXPECT_TRUE(ParseWorkerList("")->empty());
}

TEST(WorkerList, NamesTheLineThatMakesNoSense) {
  const auto list = ParseWorkerList("a:1\n\nb 2\n");
  ASSERT_FALSE(list.ok());
  EXPECT_EQ(StatusMessage(list.status()),
            "line 3: must be HOST:PORT, as in 127.0.0.1:9000, is 'b 2'");
}

class ListFile : public DiscoveryTest {
 protected:
  std::unique_ptr<ListFileSource> Open() {
    auto source = ListFileSource::Make("/w", runtime_, metrics_of_source_);
    EXPECT_TRUE(source.ok()) << source.status();
    (*source)->Start();
    return *std::move(source);
  }
  void Write(const std::string& text) {
    files_.files["/w"] = text;
    RunFor(2 * WatchedFilesOptions().interval);
  }
};

TEST_F(ListFile, FollowsItsFile) {
  files_.files["/w"] = "a:1\nb:1\n";
  const auto source = Open();
  RunFor(3 * kMicrosPerSecond);
  ASSERT_EQ(found_.size(), 1u) << "the same list is told once";
  EXPECT_EQ(found_.back(), (Targets{"a:1", "b:1"}));
  Write("b:1\nc:1\nb:1\n");
  ASSERT_EQ(found_.size(), 2u);
  EXPECT_EQ(found_.back(), (Targets{"b:1", "c:1"}));
  Write("");
  EXPECT_EQ(found_.back(), Targets{});
  EXPECT_EQ(metrics_of_source_.changes.value(), 3u);
  EXPECT_EQ(metrics_of_source_.workers.value(), 0);
}

TEST_F(ListFile, KeepsItsListWhileTheFileIsBrokenOrGone) {
  files_.files["/w"] = "a:1\n";
  const auto source = Open();
  Write("b:1\nrubbish\n");
  EXPECT_EQ(metrics_of_source_.failures.value(), 1u);
  files_.files.erase("/w");
  RunFor(10 * kMicrosPerSecond);
  EXPECT_EQ(metrics_of_source_.failures.value(), 2u) << "told once";
  Write("a:1\n");
  Write(std::string(kMaxWorkerFileBytes + 1, '\n'));
  EXPECT_EQ(metrics_of_source_.failures.value(), 3u);
  EXPECT_EQ(found_.size(), 1u);
  Write("b:1" + std::string(kMaxWorkerFileBytes - 3, '\n'));
  EXPECT_EQ(found_.back(), Targets{"b:1"});
}

TEST_F(ListFile, SaysThatAFileCanBeReadAgain) {
  files_.files["/w"] = "a:1\n";
  const auto source = Open();
  files_.files.erase("/w");
  RunFor(3 * kMicrosPerSecond);
  const size_t lines = log_.lines.size();
  Write("a:1\n");
  ASSERT_EQ(log_.lines.size(), lines + 1);
  EXPECT_EQ(log_.lines.back(), "--worker-file works again");
}

TEST_F(ListFile, IsRefusedAtTheStartWhenItIsWrong) {
  const auto error = [this] {
    return StatusMessage(ListFileSource::Make("/w", runtime_, metrics_of_source_).status());
  };
  EXPECT_EQ(error(), "/w: no such file");
  files_.files["/w"] = "rubbish";
  EXPECT_EQ(error(), "/w: line 1: must be HOST:PORT, as in 127.0.0.1:9000, is 'rubbish'");
}

TEST_F(ListFile, CanGoWhileItIsBeingRead) {
  files_.files["/w"] = "a:1\n";
  auto source = Open();
  files_.files["/w"] = "b:1\n";
  source.reset();
  RunFor(5 * kMicrosPerSecond);
  EXPECT_EQ(found_.size(), 1u);
}

class Dns : public DiscoveryTest {
 protected:
  Dns() : resolver_(world_.executor()) {}
  FakeResolver resolver_;
};

TEST_F(Dns, TakesEveryAddressAndAsksAgain) {
  resolver_.names["workers.svc"] = {"10.0.0.2", "10.0.0.1", "fd00::1"};
  DnsSource source("workers.svc:9000", resolver_, runtime_, metrics_of_source_);
  source.Start();
  RunFor(kMicrosPerSecond);
  ASSERT_EQ(found_.size(), 1u);
  EXPECT_EQ(found_.back(), (Targets{"10.0.0.1:9000", "10.0.0.2:9000", "[fd00::1]:9000"}));
  resolver_.names["workers.svc"] = {"10.0.0.3"};
  RunFor(DnsSource::kInterval);
  EXPECT_EQ(found_.back(), Targets{"10.0.0.3:9000"});
  EXPECT_EQ(resolver_.asked, 2);
}

TEST_F(Dns, AFailureKeepsTheLastAddresses) {
  resolver_.names["w"] = {"10.0.0.1"};
  DnsSource source("w:1", resolver_, runtime_, metrics_of_source_);
  source.Start();
  RunFor(kMicrosPerSecond);
  resolver_.names.clear();
  RunFor(10 * DnsSource::kInterval);
  EXPECT_EQ(found_.size(), 1u);
  EXPECT_EQ(metrics_of_source_.failures.value(), 10u);
  resolver_.names["w"] = {"10.0.0.2"};
  RunFor(DnsSource::kInterval);
  EXPECT_EQ(found_.back(), Targets{"10.0.0.2:1"});
}

TEST_F(Dns, ALookupThatHangsIsAskedAgain) {
  resolver_.hangs = true;
  DnsSource source("w:1", resolver_, runtime_, metrics_of_source_);
  source.Start();
  RunFor(DnsSource::kTimeout - 1);
  EXPECT_EQ(resolver_.asked, 1);
  resolver_.hangs = false;
  resolver_.names["w"] = {"10.0.0.1"};
  RunFor(2);
  EXPECT_EQ(found_.size(), 1u);
}

}  // namespace
}  // namespace quire
