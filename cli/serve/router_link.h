// The supervisor's end of the line to its router: news out, orders in (common/serve/lines.h).
//
// Owner: the supervisor, on its thread. Each router gets a line of its own: a new one, when it is
// started again. Nothing here blocks; a router that does not read loses the line.
#pragma once

#include <string>
#include <vector>

#include "common/serve/lines.h"

namespace quire::cli {

inline constexpr size_t kMaxUnsentNewsBytes = 4u << 20;

class RouterLink {
 public:
  RouterLink() = default;
  ~RouterLink() { Close(); }
  RouterLink(const RouterLink&) = delete;
  RouterLink& operator=(const RouterLink&) = delete;

  // The descriptor for the child, which inherits it; −1 when the system gives none.
  int Open();
  void CloseChildsEnd();  // once the child has been started
  void Close();

  void Send(const std::string& line);
  // What has come. Wrong lines are reported on standard error.
  std::vector<serve::Order> Read();

  int descriptor() const { return own_; }
  bool has_unsent() const { return !unsent_.empty(); }
  void Flush();

 private:
  int own_ = -1;
  int childs_ = -1;
  std::string unsent_;
  serve::LineCutter cutter_;
};

}  // namespace quire::cli
