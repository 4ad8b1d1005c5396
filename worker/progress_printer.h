// Prints the progress of loading on standard error.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <optional>
#include <string>

#include "common/runtime/runtime.h"
#include "worker/load/progress.h"

namespace quire {

class ProgressPrinter {
 public:
  explicit ProgressPrinter(const Clock& clock)
      : clock_(clock),
        progress_(isatty(2) != 0 ? load::LoadProgress::Style::kBar
                                 : load::LoadProgress::Style::kJsonLines) {}
  void operator()(const load::ProgressUpdate& update) {
    const double now = static_cast<double>(clock_.Now()) / kMicrosPerSecond;
    const std::optional<std::string> text = progress_.Update(update, now);
    if (text) std::fputs(text->c_str(), stderr);
  }

 private:
  const Clock& clock_;
  load::LoadProgress progress_;
};

}  // namespace quire
