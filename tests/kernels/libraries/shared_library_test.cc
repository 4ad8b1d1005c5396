#include "kernels/libraries/shared_library.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

namespace quire::kernels {
namespace {

namespace fs = std::filesystem;

class Libraries : public testing::Test {
 protected:
  Libraries() {
    char path[] = "/tmp/quire_libraries_XXXXXX";
    root_ = mkdtemp(path);
  }
  ~Libraries() override { fs::remove_all(root_); }
  void Write(const std::string& name) {
    fs::create_directories(fs::path(root_ + "/" + name).parent_path());
    std::ofstream(root_ + "/" + name) << "no library";
  }
  std::string root_;
};

TEST_F(Libraries, AreLookedForInTheOrderOfTheTable) {
  Write("wheels/lib/python3.11/site-packages/nvidia/nccl/lib/x");
  Write("wheels/lib/python3.12/site-packages/nvidia/cu13/lib/x");
  LibraryPlaces places;
  places.program_folder = root_ + "/bin";
  places.wheel_prefixes = {root_ + "/wheels", root_ + "/none"};
  places.toolkit_folders = {root_ + "/cuda"};
  const std::string wheels = root_ + "/wheels/lib/";
  EXPECT_EQ(LibraryCandidates("x", places),
            (std::vector<std::string>{root_ + "/bin/x", root_ + "/bin/../lib/x",
                                      wheels + "python3.11/site-packages/nvidia/nccl/lib/x",
                                      wheels + "python3.12/site-packages/nvidia/cu13/lib/x",
                                      root_ + "/cuda/lib64/x", root_ + "/cuda/lib/x", "x"}));
  places.loader_cache = false;
  EXPECT_EQ(LibraryCandidates("x", places).back(), root_ + "/cuda/lib/x");
  std::string error;
  const auto any = [](const SharedLibrary&) { return std::string(); };
  EXPECT_EQ(FindLibrary("libm.so.6", places, any, error), nullptr);
  EXPECT_EQ(error, "libm.so.6 cannot be used (it is in none of the places that are looked at)");
  places.named = root_ + "/wheels";
  EXPECT_EQ(LibraryCandidates("x", places), std::vector<std::string>{root_ + "/wheels/x"});
  places.named = "/some/file.so";
  EXPECT_EQ(LibraryCandidates("x", places), std::vector<std::string>{"/some/file.so"});
}

TEST_F(Libraries, WheelsAreLookedForInThePythonEnvironmentsOfThePath) {
  Write("python/bin/python3");
  fs::create_directories(root_ + "/opt/torch/.venv/bin");
  fs::create_symlink(root_ + "/python/bin/python3", root_ + "/opt/torch/.venv/bin/python3");
  fs::create_directories(root_ + "/empty");
  const std::string venv = root_ + "/opt/torch/.venv", python = root_ + "/python";
  const std::string path = ":relative:" + root_ + "/empty:" + venv + "/bin:" + python + "/bin";
  EXPECT_EQ(PythonPrefixes(path), (std::vector<std::string>{venv, python}));
  EXPECT_EQ(UsualPlaces("", path).wheel_prefixes,
            (std::vector<std::string>{venv, python, "/usr/local", "/usr", "/opt/venv"}));
  EXPECT_TRUE(PythonPrefixes("").empty());
  std::string folders;
  for (size_t i = 1; i < kMostSearched; ++i) folders += root_ + "/empty:";
  EXPECT_EQ(PythonPrefixes(folders + python + "/bin"), std::vector<std::string>{python});
  EXPECT_TRUE(PythonPrefixes(folders + root_ + "/empty:" + python + "/bin").empty());
}

TEST_F(Libraries, TellEachPlaceThatWasTriedAndWhy) {
  Write("bin/libquire_none.so.9");
  LibraryPlaces places;
  places.program_folder = root_ + "/bin";
  std::string error;
  const auto any = [](const SharedLibrary&) { return std::string(); };
  EXPECT_EQ(FindLibrary("libquire_none.so.9", places, any, error), nullptr);
  EXPECT_NE(error.find(root_ + "/bin/libquire_none.so.9: "), std::string::npos) << error;
  EXPECT_NE(error.find("the loader's cache: "), std::string::npos) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos) << error;
}

TEST_F(Libraries, APlaceThatWasNamedIsTheOnlyOne) {
  LibraryPlaces places;
  places.named = root_ + "/missing";
  places.program_folder = "/lib/x86_64-linux-gnu";
  std::string error;
  const auto any = [](const SharedLibrary&) { return std::string(); };
  EXPECT_EQ(FindLibrary("libm.so.6", places, any, error), nullptr);
  EXPECT_NE(error.find(root_ + "/missing: "), std::string::npos) << error;
}

TEST_F(Libraries, ALibraryThatIsRefusedMakesWayForTheNext) {
  LibraryPlaces places;
  std::string error;
  int asked = 0;
  const auto none = [&asked](const SharedLibrary&) { return ++asked, std::string("too old"); };
  EXPECT_EQ(FindLibrary("libm.so.6", places, none, error), nullptr);
  EXPECT_EQ(asked, 1);
  EXPECT_NE(error.find("too old"), std::string::npos) << error;
  const auto any = [](const SharedLibrary&) { return std::string(); };
  const auto found = FindLibrary("libm.so.6", places, any, error);
  ASSERT_NE(found, nullptr) << error;
  EXPECT_NE(found->Symbol("cos"), nullptr);
  EXPECT_EQ(found->Symbol("no_such_function"), nullptr);
}

}  // namespace
}  // namespace quire::kernels
