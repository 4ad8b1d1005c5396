#include "cli/models/progress_bar.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "cli/format.h"

namespace quire::cli {
namespace {

constexpr int kMostCells = 30;
constexpr int kColumnsBeside = 50;  // of the text beside the bar and the name
constexpr std::chrono::seconds kWindow{8};

int Columns() {
  winsize size = {};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string TimeText(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  if (whole < 120) return std::to_string(whole) + " s";
  if (whole < 7200) return std::to_string(whole / 60) + " min";
  return std::to_string(whole / 3600) + " h";
}

}  // namespace

std::string SizeText(double bytes) {
  const char* const units[] = {" B", " kB", " MB", " GB", " TB"};
  size_t unit = 0;
  while (bytes >= 1000 && unit + 1 < std::size(units)) {
    bytes /= 1000;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof(text), bytes >= 100 || unit == 0 ? "%.0f" : "%.1f", bytes);
  return std::string(text) + units[unit];
}

std::string ProgressText(int64_t here, int64_t total, double bytes_per_second) {
  std::string text =
      SizeText(static_cast<double>(here)) + " of " + SizeText(static_cast<double>(total));
  if (bytes_per_second < 1 || here >= total) return text;
  return text + ", " + SizeText(bytes_per_second) + "/s, " +
         TimeText(static_cast<double>(total - here) / bytes_per_second) + " left";
}

ProgressBar::ProgressBar(std::string what)
    : what_(PlainText(what, 40)), is_terminal_(isatty(STDERR_FILENO) != 0) {}

double ProgressBar::Rate(int64_t here) {
  const Time now = std::chrono::steady_clock::now();
  samples_.emplace_back(now, here);
  while (samples_.size() > 2 && now - samples_.front().first > kWindow) samples_.pop_front();
  const std::chrono::duration<double> seconds = now - samples_.front().first;
  if (seconds.count() < 0.3) return 0;
  return static_cast<double>(here - samples_.front().second) / seconds.count();
}

void ProgressBar::Show(int64_t here, int64_t total) {
  const double rate = Rate(here);
  const double part = total > 0 ? static_cast<double>(here) / static_cast<double>(total) : 1;
  if (!is_terminal_) {
    const int tenths = static_cast<int>(part * 10);
    if (tenths == tenths_shown_) return;
    tenths_shown_ = tenths;
    std::fprintf(stderr, "%s: %s\n", what_.c_str(), ProgressText(here, total, rate).c_str());
    return;
  }
  const int room = Columns() - kColumnsBeside - static_cast<int>(what_.size());
  const int cells = std::clamp(room, 0, kMostCells);
  const int full = static_cast<int>(cells * part);
  std::string bar =
      cells < 5 ? "" : "[" + std::string(full, '#') + std::string(cells - full, '.') + "] ";
  std::fprintf(stderr, "\r%s %s%s\033[K", what_.c_str(), bar.c_str(),
               ProgressText(here, total, rate).c_str());
  std::fflush(stderr);
  line_is_open_ = true;
}

void ProgressBar::End() {
  if (line_is_open_) std::fputc('\n', stderr);
  line_is_open_ = false;
}

}  // namespace quire::cli
