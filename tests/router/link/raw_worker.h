// A worker's end of one HTTP/2 connection, on the loop of the test, that does what it is told: the
// rules too, or not.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>

#include <array>
#include <functional>
#include <string>

#include "common/http2/session.h"
#include "common/runtime/asio_executor.h"

namespace quire {

class RawWorker final : private http2::Handler {
 public:
  using tcp = boost::asio::ip::tcp;

  explicit RawWorker(AsioExecutor& executor, const std::string& address = "127.0.0.1",
                     uint16_t port = 0)
      : acceptor_(executor.context(), tcp::endpoint(boost::asio::ip::make_address(address), port)),
        socket_(executor.context()),
        session_(http2::Session::Side::kServer, http2::Settings(), *this) {
    acceptor_.async_accept(socket_, [this](const boost::system::error_code& error) {
      if (error) return;
      ++accepted;
      if (!greeting.empty()) Write(greeting);
      if (reads) Read();
    });
  }

  uint16_t port() const { return acceptor_.local_endpoint().port(); }
  std::string target() const { return "127.0.0.1:" + std::to_string(port()); }
  http2::Session& session() { return session_; }
  // Past the session.
  void Write(const std::string& bytes) {
    boost::system::error_code ignored;
    boost::asio::write(socket_, boost::asio::buffer(bytes), ignored);
  }
  void Flush() {
    std::string out;
    session_.Send(out, 64u << 20);
    Write(out);
  }
  void Close() { socket_.close(); }

  std::string greeting;  // instead of HTTP/2
  bool reads = true;
  int accepted = 0;
  std::function<void(http2::StreamId)> on_headers;
  std::function<void(http2::StreamId, std::string_view)> on_data;
  std::function<void()> on_ping;  // one of the peer's, answered
  std::string path;
  std::string authority;

 private:
  void OnHeaders(http2::StreamId stream, const http2::HeaderBlock& block) override {
    path = http2::Find(block.fields, ":path").value_or("");
    authority = http2::Find(block.fields, ":authority").value_or("");
    if (on_headers) on_headers(stream);
  }
  void OnData(http2::StreamId stream, std::string_view bytes) override {
    session_.Consume(stream, bytes.size());
    if (on_data) on_data(stream, bytes);
  }
  void OnClosed(http2::StreamId, http2::ErrorCode) override {}
  void OnFrameSent(uint8_t type, uint8_t flags) override {
    constexpr uint8_t kPing = 6;
    if (type == kPing && flags == 1 && on_ping) on_ping();
  }

  void Read() {
    socket_.async_read_some(boost::asio::buffer(buffer_),
                            [this](const boost::system::error_code& error, size_t size) {
                              if (error) return;
                              (void)session_.Receive({buffer_.data(), size});
                              if (socket_.is_open() && greeting.empty()) Flush();
                              if (socket_.is_open()) Read();
                            });
  }

  tcp::acceptor acceptor_;
  tcp::socket socket_;
  http2::Session session_;
  std::array<char, 65536> buffer_;
};

}  // namespace quire
