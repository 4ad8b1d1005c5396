#include "common/runtime/watched_files.h"

namespace quire {

absl::StatusOr<FileContents> ReadAll(Files& files, const WatchedFilesOptions& options) {
  FileContents contents;
  for (const std::string& path : options.paths) {
    QUIRE_ASSIGN_OR_RETURN(std::string content, files.Read(path, options.max_bytes));
    contents.push_back(std::move(content));
  }
  return contents;
}

std::string OneLine(std::string text) {
  text.erase(text.find_last_not_of(" \t\r\n") + 1);
  return text;
}

absl::StatusOr<std::string> ReadOneLine(Files& files, const std::string& path, size_t max_bytes) {
  QUIRE_ASSIGN_OR_RETURN(std::string text, files.Read(path, max_bytes));
  return OneLine(std::move(text));
}

struct WatchedFiles::Job {
  absl::StatusOr<FileContents> contents = absl::UnknownError("not read");
};

WatchedFiles::WatchedFiles(const World& world, WatchedFilesOptions options, FileContents known,
                           OnRead on_read)
    : world_(world),
      options_(std::make_shared<const WatchedFilesOptions>(std::move(options))),
      known_(std::move(known)),
      on_read_(std::move(on_read)) {
  Schedule();
}

void WatchedFiles::Schedule() {
  timer_.SetIn(options_->interval, [this] { Read(); });
}

void WatchedFiles::Read() {
  auto job = std::make_shared<Job>();
  const bool queued =
      world_.background.Run([job, options = options_,
                             &files = world_.files] { job->contents = ReadAll(files, *options); },
                            [this, job, alive = std::weak_ptr(alive_)] {
                              if (!alive.expired()) Done(std::move(job->contents));
                            });
  if (!queued) Schedule();  // the next turn may find a place
}

void WatchedFiles::Done(absl::StatusOr<FileContents> contents) {
  Schedule();
  if (!contents.ok()) {
    if (!failing_) on_read_(std::move(contents));
    failing_ = true;
    return;
  }
  if (*contents == known_ && !failing_) return;
  failing_ = false;
  known_ = *contents;
  on_read_(std::move(contents));
}

}  // namespace quire
