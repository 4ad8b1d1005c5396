// A blocking client over one socket, for tests that care about every byte.
#pragma once

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace quire {

struct RawResponse {
  int status = 0;  // 0: the connection ended before a whole response
  std::string head;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // chunks joined
  bool whole = false;                          // the body's end was seen
};

class RawClient {
 public:
  explicit RawClient(int fd) : fd_(fd) {
    ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) & ~O_NONBLOCK);
    // A test that waits in vain ends by this, far beyond what any answer needs.
    timeval limit{60, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  }
  RawClient(RawClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), in_(std::move(other.in_)) {}
  ~RawClient() { Close(); }

  static RawClient Connect(uint16_t port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      ::close(fd);
      return RawClient(-1);
    }
    return RawClient(fd);
  }

  void Close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void HalfClose() { ::shutdown(fd_, SHUT_WR); }
  int fd() const { return fd_; }

  // False when the peer closed or took nothing.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  // One more piece of input; false at the end.
  bool Fill() {
    char buffer[65536];
    const ssize_t n = ::recv(fd_, buffer, sizeof(buffer), 0);
    if (n <= 0) return false;
    in_.append(buffer, static_cast<size_t>(n));
    return true;
  }

  // Everything up to and including `mark`, or all there was.
  std::string ReadUntil(std::string_view mark) {
    size_t at = 0;
    while ((at = in_.find(mark)) == std::string::npos) {
      if (!Fill()) return std::exchange(in_, {});
    }
    std::string out = in_.substr(0, at + mark.size());
    in_.erase(0, at + mark.size());
    return out;
  }

  std::string ReadToEnd() {
    while (Fill()) {
    }
    return std::exchange(in_, {});
  }

  RawResponse ReadResponse(bool head_only = false) {
    RawResponse response;
    do {
      response = {};
      response.head = ReadUntil("\r\n\r\n");
      if (response.head.size() < 12 || !response.head.ends_with("\r\n\r\n")) return response;
      response.status = std::atoi(response.head.c_str() + 9);
    } while (response.status == 100);
    ReadHeaders(response);
    if (head_only || response.status == 204) {
      response.whole = true;
    } else if (response.headers.count("transfer-encoding") > 0) {
      ReadChunks(response);
    } else if (response.headers.count("content-length") > 0) {
      const size_t length = std::strtoul(response.headers["content-length"].c_str(), nullptr, 10);
      while (in_.size() < length && Fill()) {
      }
      response.whole = in_.size() >= length;
      response.body = in_.substr(0, length);
      in_.erase(0, length);
    } else {
      response.body = ReadToEnd();
      response.whole = true;
    }
    return response;
  }

 private:
  static void ReadHeaders(RawResponse& response) {
    size_t at = response.head.find("\r\n") + 2;
    while (at < response.head.size()) {
      const size_t end = response.head.find("\r\n", at);
      const std::string line = response.head.substr(at, end - at);
      at = end + 2;
      const size_t colon = line.find(':');
      if (colon == std::string::npos) continue;
      std::string name = line.substr(0, colon);
      for (char& c : name) c = static_cast<char>(std::tolower(c));
      response.headers[name] = line.substr(line.find_first_not_of(' ', colon + 1));
    }
  }

  void ReadChunks(RawResponse& response) {
    while (true) {
      const std::string line = ReadUntil("\r\n");
      if (!line.ends_with("\r\n")) return;
      const size_t size = std::strtoul(line.c_str(), nullptr, 16);
      while (in_.size() < size + 2) {
        if (!Fill()) return;
      }
      response.body += in_.substr(0, size);
      in_.erase(0, size + 2);
      if (size == 0) {
        response.whole = true;
        return;
      }
    }
  }

  int fd_;
  std::string in_;
};

}  // namespace quire
