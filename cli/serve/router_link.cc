#include "cli/serve/router_link.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

namespace quire::cli {

int RouterLink::Open() {
  Close();
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return -1;
  own_ = pair[0];
  childs_ = pair[1];
  fcntl(own_, F_SETFL, O_NONBLOCK);
  fcntl(childs_, F_SETFD, 0);
  return childs_;
}

void RouterLink::CloseChildsEnd() {
  if (childs_ >= 0) close(std::exchange(childs_, -1));
}

void RouterLink::Close() {
  CloseChildsEnd();
  if (own_ >= 0) close(std::exchange(own_, -1));
  unsent_.clear();
  cutter_ = {};
}

void RouterLink::Send(const std::string& line) {
  if (own_ < 0) return;
  unsent_ += line;
  Flush();
}

void RouterLink::Flush() {
  while (own_ >= 0 && !unsent_.empty()) {
    const ssize_t sent = send(own_, unsent_.data(), unsent_.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN) return Close();  // the router is ending
    if (sent < 0) break;
    unsent_.erase(0, static_cast<size_t>(sent));
  }
  if (unsent_.size() <= kMaxUnsentNewsBytes) return;
  std::fputs("quire serve: the router does not read what it is told\n", stderr);
  Close();
}

std::vector<serve::Order> RouterLink::Read() {
  std::vector<serve::Order> orders;
  char bytes[4096];
  while (own_ >= 0) {
    const ssize_t count = recv(own_, bytes, sizeof(bytes), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count <= 0) {
      Close();
      break;
    }
    cutter_.Add({bytes, static_cast<size_t>(count)});
    while (const std::optional<std::string> line = cutter_.Next()) {
      absl::StatusOr<serve::Order> order = serve::ReadOrder(*line);
      if (order.ok()) {
        orders.push_back(*std::move(order));
      } else {
        std::fprintf(stderr, "quire serve: the router's order is wrong: %s\n",
                     StatusMessage(order.status()).c_str());
      }
    }
    if (cutter_.spoilt()) Close();
  }
  return orders;
}

}  // namespace quire::cli
