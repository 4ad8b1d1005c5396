// The proof of a random suite: every bug that was planted in the sources that it drives is found by
// the unchanged simulation within kPlantedSeeds seeds.
//
// Included by one file of a test binary, which alone is compiled with the bugs in it
// (QUIRE_PLANTED_BUGS). Each bug runs in a child process, since most are found by an assertion that
// ends it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "common/planted_bug.h"

namespace quire {

inline std::string& BugThatIsOn() {
  static std::string name;
  return name;
}
// Not inline: the compiled sources look for it in this file's object.
bool PlantedBugIsOn(std::string_view name) { return name == BugThatIsOn(); }

namespace sim {

inline constexpr uint64_t kPlantedSeeds = 200;
inline constexpr rlim_t kPlantedCpuSeconds = 20;  // a bug may make a program run for ever
inline constexpr char kPlantedPrefix[] = "planted:";

struct PlantedSuite {
  std::string sources;  // a folder of the tree, "worker"
  std::string program;  // made from them, "quire-worker"
  size_t least = 0;     // so many bugs are planted there
  // Lives one seed; what it broke.
  std::function<std::vector<std::string>(uint64_t seed)> live;
};

struct PlantedFinding {
  uint64_t seed = 0;  // 0: not found
  std::string how;
};

// In the child: lives seeds 1, 2, … with the bug switched on, until one of them shows it.
[[noreturn]] inline void HuntHere(const PlantedSuite& suite, const std::string& bug,
                                  volatile uint64_t* seed, char* how) {
  const rlimit cpu{kPlantedCpuSeconds, kPlantedCpuSeconds};
  setrlimit(RLIMIT_CPU, &cpu);
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  dup2(open("/dev/null", O_WRONLY), 2);
  BugThatIsOn() = kPlantedPrefix + bug;
  for (uint64_t next = 1; next <= kPlantedSeeds; ++next) {
    *seed = next;  // for the parent, should this process die
    const std::vector<std::string> violations = suite.live(next);
    if (violations.empty()) continue;
    violations[0].copy(how, 200);
    _exit(1);
  }
  _exit(0);
}

inline PlantedFinding Hunt(const PlantedSuite& suite, const std::string& bug) {
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(memory, MAP_FAILED);
  auto* seed = static_cast<volatile uint64_t*>(memory);
  char* how = static_cast<char*>(memory) + 64;
  const pid_t child = fork();
  if (child == 0) HuntHere(suite, bug, seed, how);
  int status = 0;
  waitpid(child, &status, 0);
  PlantedFinding finding;
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
inline std::set<std::string> PlantedNames(const PlantedSuite& suite) {
  std::set<std::string> names;
  const std::regex use(R"(QUIRE_BUG\((\w+)\))");
  const std::string folder = QUIRE_SOURCE_DIR "/" + suite.sources;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".cc") continue;
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    for (std::sregex_iterator at(text.begin(), text.end(), use), end; at != end; ++at) {
      names.insert((*at)[1]);
    }
  }
  return names;
}

inline void ExpectAllFound(const PlantedSuite& suite) {
  const PlantedFinding none = Hunt(suite, "none");
  EXPECT_EQ(none.seed, 0u) << "the suite finds a bug that nobody planted: " << none.how;
  const std::set<std::string> names = PlantedNames(suite);
  EXPECT_GE(names.size(), suite.least);
  std::printf("| planted bug | seeds | found by |\n|---|---|---|\n");
  for (const std::string& name : names) {
    const PlantedFinding finding = Hunt(suite, name);
    EXPECT_NE(finding.seed, 0u) << name << " was not found within " << kPlantedSeeds << " seeds";
    std::printf("| %s | %llu | %s |\n", name.c_str(), static_cast<unsigned long long>(finding.seed),
                finding.how.c_str());
    std::fflush(stdout);
  }
}

inline bool FileContains(const std::string& path, const std::string& text) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  return bytes.find(text) != std::string::npos;
}

// In a binary with bugs each name stands behind the prefix.
inline void ExpectInNoProgram(const PlantedSuite& suite) {
  const std::string name = *PlantedNames(suite).begin();
  EXPECT_TRUE(FileContains("/proc/self/exe", kPlantedPrefix + name));
  EXPECT_FALSE(FileContains(QUIRE_BINARY_DIR "/bin/" + suite.program, kPlantedPrefix));
}

}  // namespace sim
}  // namespace quire
