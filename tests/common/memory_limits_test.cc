// What may be used, by the text of the kernel's files.
#include "common/memory_limits.h"

#include <gtest/gtest.h>

#include "tests/worker/load/file_maker.h"

namespace quire {
namespace {

using load::TempFolder;

constexpr const char* kMeminfo =
    "MemTotal:       24000000 kB\nMemFree:          100000 kB\nMemAvailable:   20000000 kB\n";

TEST(ParseByteCount, TakesWholeNumbersOnly) {
  EXPECT_EQ(ParseByteCount("123\n"), 123);
  EXPECT_EQ(ParseByteCount("0"), 0);
  EXPECT_EQ(ParseByteCount("9223372036854775807"), INT64_MAX);
  EXPECT_FALSE(ParseByteCount("9223372036854775808").has_value());
  EXPECT_FALSE(ParseByteCount("max\n").has_value());
  EXPECT_FALSE(ParseByteCount("").has_value());
  EXPECT_FALSE(ParseByteCount("-5").has_value());
  EXPECT_FALSE(ParseByteCount("12x").has_value());
}

TEST(UsableMemory, IsWhatTheMachineHasAvailable) {
  const MemoryLimit limit = UsableMemory({kMeminfo, {}});
  EXPECT_EQ(limit.usable_bytes, 20'000'000ll * 1024);
  EXPECT_FALSE(limit.from_cgroup);
  EXPECT_EQ(UsableMemory({}).usable_bytes, 0);
}

TEST(UsableMemory, IsTheTightestCgroupsRest) {
  const MemoryLimit limit = UsableMemory(
      {kMeminfo, {{"max\n", "5\n", ""}, {"4000\n", "1000\n", ""}, {"9000\n", "100\n", ""}}});
  EXPECT_EQ(limit.usable_bytes, 3'000);
  EXPECT_TRUE(limit.from_cgroup);
}

TEST(UsableMemory, IgnoresUnlimitedCgroups) {
  const MemoryLimit limit = UsableMemory({kMeminfo, {{"9223372036854771712\n", "5\n", ""}}});
  EXPECT_FALSE(limit.from_cgroup);
  EXPECT_EQ(limit.usable_bytes, 20'000'000ll * 1024);
}

TEST(UsableMemory, DoesNotCountFilePagesAsUsed) {
  const char* const kStat = "anon 500\ninactive_file 2000\nactive_file 1000\n";
  EXPECT_EQ(UsableMemory({kMeminfo, {{"4000\n", "3900\n", kStat}}}).usable_bytes, 3'100);
  const char* const kStatV1 = "inactive_file 1\nactive_file 1\ntotal_inactive_file 900\n";
  EXPECT_EQ(UsableMemory({kMeminfo, {{"4000\n", "1000\n", kStatV1}}}).usable_bytes, 3'901);
  const char* const kLies = "inactive_file 9223372036854775807\nactive_file 9223372036854775807\n";
  EXPECT_EQ(UsableMemory({kMeminfo, {{"4000\n", "1000\n", kLies}}}).usable_bytes, 4'000);
}

TEST(UsableMemory, NeverFallsBelowNothing) {
  EXPECT_EQ(UsableMemory({kMeminfo, {{"1000\n", "5000\n", ""}}}).usable_bytes, 0);
}

TEST(ReadMemoryFiles, WalksVersionTwoUpToTheRoot) {
  const TempFolder root;
  root.Write("proc/meminfo", kMeminfo);
  root.Write("proc/self/cgroup", "0::/a/b\n");
  root.Write("sys/fs/cgroup/a/b/memory.max", "max\n");
  root.Write("sys/fs/cgroup/a/memory.max", "5000\n");
  root.Write("sys/fs/cgroup/a/memory.current", "2000\n");
  root.Write("sys/fs/cgroup/a/memory.stat", "anon 10\ninactive_file 500\n");
  const MemoryLimit limit = UsableMemory(ReadMemoryFiles(root.path()));
  EXPECT_EQ(limit.usable_bytes, 3'500);
  EXPECT_TRUE(limit.from_cgroup);
}

TEST(ReadMemoryFiles, ReadsVersionOneAlsoWhenThePathIsTheHosts) {
  const TempFolder root;
  root.Write("proc/self/cgroup", "7:cpu,cpuacct:/x\n4:memory:/docker/123\n");
  root.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", "7000\n");
  root.Write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n");
  EXPECT_EQ(UsableMemory(ReadMemoryFiles(root.path())).usable_bytes, 6'000);
}

TEST(ReadMemoryFiles, EmptyWithoutFiles) {
  const TempFolder root;
  EXPECT_EQ(UsableMemory(ReadMemoryFiles(root.path())).usable_bytes, 0);
}

}  // namespace
}  // namespace quire
