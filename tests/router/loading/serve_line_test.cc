// The router's end of the line to `quire serve`.
#include "router/loading/serve_line_asio.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>

#include <string>

namespace quire {
namespace {

class ServeLineTest : public testing::Test {
 protected:
  ServeLineTest() {
    int pair[2] = {-1, -1};
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    serve_ = pair[1];
    line_ = std::make_unique<ServeLine>(loop_, pair[0], log_, metrics_,
                                        [this](const serve::News&) { ++heard_; });
  }
  ~ServeLineTest() override {
    line_.reset();
    loop_.restart();
    loop_.poll();
    close(serve_);
  }
  static serve::Order OrderOf(size_t bytes) {
    serve::Order order;
    const size_t least = serve::LineOf(order).size();
    order.model = std::string(bytes - least, 'm');
    return order;
  }
  // What the loop writes while quire serve reads.
  std::string ReadAll() {
    std::string all;
    char bytes[64u << 10];
    for (ssize_t count = 1; count > 0;) {
      loop_.restart();
      loop_.poll();
      count = recv(serve_, bytes, sizeof(bytes), MSG_DONTWAIT);
      if (count > 0) all.append(bytes, static_cast<size_t>(count));
    }
    return all;
  }
  bool Says(const std::string& line) const {
    return metrics_.Render().find(line + "\n") != std::string::npos;
  }

  boost::asio::io_context loop_;
  NullLogger log_;
  Metrics metrics_;
  int heard_ = 0;
  int serve_ = -1;
  std::unique_ptr<ServeLine> line_;
};

// The one that the system has been given counts until it has said that it took it.
TEST_F(ServeLineTest, OrdersAtTheLimitWaitAndAByteMoreIsDroppedAndCounted) {
  constexpr size_t kOrder = 1024;
  for (size_t sent = 0; sent + kOrder < kMaxUnsentOrderBytes; sent += kOrder) {
    line_->Send(OrderOf(kOrder));
  }
  line_->Send(OrderOf(kOrder + 1));
  EXPECT_TRUE(Says("quire_router_serve_orders_dropped_total 1"));
  line_->Send(OrderOf(kOrder));
  EXPECT_TRUE(Says("quire_router_serve_orders_dropped_total 1")) << "there is room for this one";
  line_->Send(OrderOf(kOrder));
  EXPECT_TRUE(Says("quire_router_serve_orders_dropped_total 2"));
  EXPECT_EQ(ReadAll().size(), kMaxUnsentOrderBytes);
  line_->Send(OrderOf(kOrder));
  EXPECT_EQ(ReadAll().size(), kOrder) << "nothing waits any more";
  EXPECT_TRUE(Says("quire_router_serve_orders_dropped_total 2"));
}

TEST_F(ServeLineTest, ALineThatBreaksIsCounted) {
  ReadAll();
  EXPECT_TRUE(Says("quire_router_serve_lines_lost_total 0"));
  EXPECT_EQ(shutdown(serve_, SHUT_RDWR), 0);
  ReadAll();
  EXPECT_TRUE(Says("quire_router_serve_lines_lost_total 1"));
  line_->Send(OrderOf(1024));  // goes nowhere, and breaks nothing
  ReadAll();
}

}  // namespace
}  // namespace quire
