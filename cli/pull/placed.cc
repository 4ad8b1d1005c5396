#include "cli/pull/placed.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <set>

#include "cli/pull/hub.h"
#include "cli/pull/store_pull.h"

namespace quire::pull {
namespace {

namespace fs = std::filesystem;

std::string RecordOf(const std::string& folder) { return folder + "/.files"; }

}  // namespace

std::vector<PlacedFile> ReadPlaced(const std::string& folder) {
  std::ifstream file(RecordOf(folder), std::ios::binary);
  std::string text(kMaxRecordBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  std::vector<PlacedFile> placed;
  std::string_view rest = text;
  while (!rest.empty() && placed.size() < kMaxFiles) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const size_t first = line.find(' ');
    const size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
    if (second == std::string_view::npos) return {};
    PlacedFile one;
    one.made_of = line.substr(0, first);
    one.path = line.substr(second + 1);
    const char *begin = line.data() + first + 1, *end = line.data() + second;
    const auto [stop, error] = std::from_chars(begin, end, one.size);
    if (error != std::errc() || stop != end || !CheckFileName(one.path).ok()) return {};
    placed.push_back(std::move(one));
  }
  return placed;
}

std::vector<PlacedFile> StillThere(const std::string& folder, const std::vector<PlacedFile>& placed,
                                   std::string_view made_of) {
  std::vector<PlacedFile> found;
  for (const PlacedFile& one : placed) {
    if (one.made_of != made_of) continue;
    if (!IsWholeFile(folder + "/" + one.path, one.size)) return {};
    found.push_back(one);
  }
  return found;
}

absl::Status WritePlaced(const std::string& folder, const std::vector<PlacedFile>& before,
                         const std::vector<PlacedFile>& now) {
  std::set<std::string> kept;
  for (const PlacedFile& one : now) kept.insert(one.path);
  std::error_code error;
  for (const PlacedFile& one : before) {
    if (kept.count(one.path) == 0) fs::remove(folder + "/" + one.path, error);
  }
  const std::string beside = RecordOf(folder) + ".new";
  std::ofstream file(beside, std::ios::trunc);
  for (const PlacedFile& one : now) {
    file << one.made_of << ' ' << one.size << ' ' << one.path << '\n';
  }
  file.close();
  error.clear();
  if (file.good()) {
    fs::rename(beside, RecordOf(folder), error);
    if (!error) return absl::OkStatus();
  }
  return absl::UnavailableError(AbslView(RecordOf(folder) + ": cannot be written"));
}

bool HasContent(const std::string& path, int64_t size, std::string_view digest) {
  if (!IsWholeFile(path, size)) return false;
  std::ifstream file(path, std::ios::binary);
  Digest found(DigestKind::kSha256, size);
  std::string buffer(1u << 20, '\0');
  while (file.good()) {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    found.Add({buffer.data(), static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0))});
  }
  return found.Finish() == digest;
}

}  // namespace quire::pull
