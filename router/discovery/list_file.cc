#include "router/discovery/list_file.h"

#include <algorithm>
#include <utility>

#include "common/ascii.h"
#include "common/host_port.h"

namespace quire {

absl::StatusOr<std::vector<std::string>> ParseWorkerList(std::string_view text) {
  std::vector<std::string> targets;
  size_t number = 0;
  while (!text.empty()) {
    ++number;
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    line = Trim(line.substr(0, line.find('#')), " \t\r");
    if (line.empty()) continue;
    QUIRE_RETURN_IF_ERROR(Annotate(CheckTarget(line), "line " + std::to_string(number)));
    targets.emplace_back(line);
  }
  return targets;
}

ListFileSource::ListFileSource(const std::string& path, const DiscoveryRuntime& runtime,
                               SourceMetrics& metrics)
    : runtime_(runtime),
      options_{.paths = {path}, .max_bytes = kMaxWorkerFileBytes},
      report_("worker-file", path, runtime, metrics) {}

absl::StatusOr<std::unique_ptr<ListFileSource>> ListFileSource::Make(
    const std::string& path, const DiscoveryRuntime& runtime, SourceMetrics& metrics) {
  std::unique_ptr<ListFileSource> source(new ListFileSource(path, runtime, metrics));
  QUIRE_ASSIGN_OR_RETURN(source->known_, ReadAll(runtime.files, source->options_));
  QUIRE_RETURN_IF_ERROR(Annotate(ParseWorkerList(source->known_.front()).status(), path));
  return source;
}

void ListFileSource::Start() {
  OnRead(known_);
  watch_ = std::make_unique<WatchedFiles>(
      WatchedFiles::World{runtime_.executor, runtime_.background, runtime_.files}, options_,
      std::move(known_), [this](const absl::StatusOr<FileContents>& read) { OnRead(read); });
}

void ListFileSource::OnRead(const absl::StatusOr<FileContents>& contents) {
  if (!contents.ok()) return report_.Failed(contents.status());
  absl::StatusOr<std::vector<std::string>> targets = ParseWorkerList(contents->front());
  if (!targets.ok()) return report_.Failed(Annotate(targets.status(), options_.paths.front()));
  report_.Found(*std::move(targets));
}

}  // namespace quire
