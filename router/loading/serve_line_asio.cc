#include "router/loading/serve_line_asio.h"

#include <array>
#include <string>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/write.hpp>

namespace quire {
namespace asio = boost::asio;

struct ServeLine::State : std::enable_shared_from_this<State> {
  State(asio::io_context& loop, int descriptor, Logger& log, Metrics& metrics,
        std::function<void(const serve::News&)> on_news)
      : socket(loop, asio::local::stream_protocol(), descriptor),
        logger(log),
        dropped(metrics.AddCounter({"quire_router_serve_orders_dropped_total",
                                    "Orders to quire serve dropped since it does not read."})),
        lost(metrics.AddCounter({"quire_router_serve_lines_lost_total",
                                 "Lines to quire serve that broke: it reads no more orders."})),
        heard(std::move(on_news)) {}

  void Read() {
    socket.async_read_some(asio::buffer(bytes), [self = shared_from_this()](auto error, size_t n) {
      if (self->closed) return;
      if (error) return self->Broken(error.message());
      self->cutter.Add({self->bytes.data(), n});
      self->Deliver();
      if (!self->closed) self->Read();
    });
  }

  void Deliver() {
    while (const std::optional<std::string> line = cutter.Next()) {
      const absl::StatusOr<serve::News> news = serve::ReadNews(*line);
      if (!news.ok()) {
        logger.Error("a line from quire serve is wrong",
                     {{"reason", std::string(news.status().message())}});
        continue;
      }
      heard(*news);
      if (closed) return;
    }
    if (cutter.spoilt()) Broken("a line is too long");
  }

  void Write() {
    if (writing || unsent.empty()) return;
    writing = true;
    sending = std::exchange(unsent, {});
    asio::async_write(socket, asio::buffer(sending),
                      [self = shared_from_this()](auto error, size_t) {
                        self->writing = false;
                        self->sending.clear();
                        if (self->closed) return;
                        if (error) return self->Broken(error.message());
                        self->Write();
                      });
  }

  void Broken(const std::string& why) {
    closed = true;
    lost.Add();
    logger.Error("the line to quire serve is lost", {{"reason", why}});
  }

  asio::local::stream_protocol::socket socket;
  Logger& logger;
  Counter& dropped;
  Counter& lost;
  const std::function<void(const serve::News&)> heard;
  std::array<char, 4096> bytes;
  serve::LineCutter cutter;
  std::string unsent, sending;
  bool writing = false;
  bool closed = false;
};

ServeLine::ServeLine(asio::io_context& loop, int descriptor, Logger& logger, Metrics& metrics,
                     std::function<void(const serve::News&)> heard)
    : state_(std::make_shared<State>(loop, descriptor, logger, metrics, std::move(heard))) {
  state_->Read();
}

ServeLine::~ServeLine() {
  state_->closed = true;
  boost::system::error_code ignored;
  state_->socket.close(ignored);
}

void ServeLine::Send(const serve::Order& order) {
  if (state_->closed) return;
  const std::string line = serve::LineOf(order);
  if (state_->sending.size() + state_->unsent.size() + line.size() > kMaxUnsentOrderBytes) {
    state_->dropped.Add();
    state_->logger.Error("an order to quire serve is dropped: it does not read");
    return;
  }
  state_->unsent += line;
  state_->Write();
}

}  // namespace quire
