// The proof of the random suite: every bug that was planted in the router's sources is found by the
// unchanged simulation (tests/support/fleet_sim) within 200 seeds.
//
// This binary alone is compiled with the bugs in it. Each bug runs in a child process, since most
// are found by an assertion that ends it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "common/planted_bug.h"
#include "tests/support/fleet_sim/fleet_sim.h"

namespace quire {
namespace {

std::string& BugThatIsOn() {
  static std::string name;
  return name;
}

}  // namespace

bool PlantedBugIsOn(std::string_view name) { return name == BugThatIsOn(); }

namespace sim {
namespace {

constexpr uint64_t kSeeds = 200;
constexpr rlim_t kCpuSeconds = 20;  // a bug may make the router run for ever
constexpr char kPrefix[] = "planted:";

struct Finding {
  uint64_t seed = 0;  // 0: not found
  std::string how;
};

// Lives seeds 1, 2, … with the bug switched on, until one of them shows it.
Finding Hunt(const std::string& bug) {
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(memory, MAP_FAILED);
  auto* seed = static_cast<volatile uint64_t*>(memory);
  char* how = static_cast<char*>(memory) + 64;
  const pid_t child = fork();
  if (child == 0) {
    const rlimit cpu{kCpuSeconds, kCpuSeconds};
    setrlimit(RLIMIT_CPU, &cpu);
    const rlimit no_core{0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, 2);
    BugThatIsOn() = kPrefix + bug;
    for (uint64_t next = 1; next <= kSeeds; ++next) {
      *seed = next;  // for the parent, should this process die
      const FleetResult result = RunFleetSeed(next);
      if (result.violations.empty()) continue;
      result.violations[0].copy(how, 200);
      _exit(1);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  Finding finding;
  if (WIFSIGNALED(status)) {
    finding = {*seed, WTERMSIG(status) == SIGABRT ? "an assertion" : "it never ends"};
  } else if (WEXITSTATUS(status) != 0) {
    finding = {*seed, how};
    finding.how.erase(0, finding.how.find(": ") + 2);  // the time
  }
  munmap(memory, 4096);
  return finding;
}

// The names in the sources that this binary was compiled from.
std::set<std::string> PlantedNames() {
  std::set<std::string> names;
  const std::regex use(R"(QUIRE_BUG\((\w+)\))");
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(QUIRE_SOURCE_DIR "/router")) {
    if (entry.path().extension() != ".cc") continue;
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    for (std::sregex_iterator at(text.begin(), text.end(), use), end; at != end; ++at) {
      names.insert((*at)[1]);
    }
  }
  return names;
}

TEST(PlantedBugs, AreFoundByTheRandomSuite) {
  EXPECT_EQ(Hunt("none").seed, 0u)
      << "the suite finds a bug that nobody planted: " << Hunt("none").how;
  const std::set<std::string> names = PlantedNames();
  EXPECT_GE(names.size(), 15u);
  std::printf("| planted bug | seeds | found by |\n|---|---|---|\n");
  for (const std::string& name : names) {
    const Finding finding = Hunt(name);
    EXPECT_NE(finding.seed, 0u) << name << " was not found within " << kSeeds << " seeds";
    std::printf("| %s | %llu | %s |\n", name.c_str(), static_cast<unsigned long long>(finding.seed),
                finding.how.c_str());
    std::fflush(stdout);
  }
}

bool Contains(const std::string& path, const std::string& text) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  return bytes.find(text) != std::string::npos;
}

// In a binary with bugs each name stands behind the prefix.
TEST(PlantedBugs, AreInNoProgramThatPeopleRun) {
  const std::string name = *PlantedNames().begin();
  EXPECT_TRUE(Contains("/proc/self/exe", kPrefix + name));
  EXPECT_FALSE(Contains(QUIRE_BINARY_DIR "/bin/quire-router", kPrefix));
}

}  // namespace
}  // namespace sim
}  // namespace quire
