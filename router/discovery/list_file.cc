#include "router/discovery/list_file.h"

#include <algorithm>
#include <utility>

#include "router/core/target.h"

namespace quire {
namespace {

std::string_view Trim(std::string_view line) {
  const size_t first = line.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseWorkerList(std::string_view text) {
  std::vector<std::string> targets;
  size_t number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = Trim(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    QUIRE_RETURN_IF_ERROR(Annotate(CheckTarget(line), "line " + std::to_string(number)));
    targets.emplace_back(line);
  }
  return targets;
}

absl::StatusOr<std::vector<std::string>> ReadWorkerList(Files& files, const std::string& path) {
  QUIRE_ASSIGN_OR_RETURN(const std::string text, files.Read(path, kMaxWorkerFileBytes));
  absl::StatusOr<std::vector<std::string>> targets = ParseWorkerList(text);
  if (!targets.ok()) return Annotate(targets.status(), path);
  return targets;
}

ListFileSource::ListFileSource(std::string path, const DiscoveryRuntime& runtime,
                               SourceMetrics& metrics)
    : path_(std::move(path)), runtime_(runtime), report_("worker-file", path_, runtime, metrics) {}

ListFileSource::~ListFileSource() {
  if (timer_ != 0) runtime_.executor.Cancel(timer_);
}

void ListFileSource::Start() { Look(); }

void ListFileSource::Look() {
  using Read = absl::StatusOr<std::vector<std::string>>;
  auto read = std::make_shared<Read>(std::vector<std::string>());
  Files& files = runtime_.files;
  // A queue that is full lets the look fall out: the next one comes in a second.
  runtime_.background.Run([read, &files, path = path_] { *read = ReadWorkerList(files, path); },
                          [this, read, alive = std::weak_ptr(alive_)] {
                            if (alive.expired()) return;
                            if (read->ok()) {
                              report_.Found(std::move(read->value()));
                            } else {
                              report_.Failed(read->status());
                            }
                          });
  timer_ = runtime_.executor.PostAt(runtime_.executor.clock().Now() + kInterval, [this] {
    timer_ = 0;
    Look();
  });
}

}  // namespace quire
