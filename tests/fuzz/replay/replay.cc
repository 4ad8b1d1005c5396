// Runs every file of a fuzz corpus through its target once: the corpus as an ordinary test. The
// program's name, fuzz_X, says which.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int, char** argv) {
  const std::string name = std::filesystem::path(argv[0]).filename().string();
  const size_t prefix = std::string("fuzz_").size();
  const std::filesystem::path corpus =
      std::filesystem::path(QUIRE_CORPORA_DIR) / name.substr(std::min(prefix, name.size()));
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(corpus, error)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const std::filesystem::path& file : files) {
    std::fprintf(stderr, "%s\n", file.filename().c_str());  // names the culprit of a crash
    std::ifstream in(file, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  }
  std::printf("%zu passed, %d failed\n", files.size(), files.empty() ? 1 : 0);
  return files.empty() ? 1 : 0;
}
