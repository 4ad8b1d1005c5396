// HTTP/1.1 calls on one thread: an answer in one piece, or a stream of events.
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "bench/client/loop_load_asio.h"
#include "common/json/json.h"

namespace quire::bench {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;

constexpr size_t kReadBytes = 16u << 10;

// Integers of the list that begins at `at`, which is behind its bracket.
std::vector<int32_t> IdsAt(std::string_view text, size_t at) {
  std::vector<int32_t> ids;
  while (at < text.size() && text[at] != ']') {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(text.data() + at, text.data() + text.size(), id);
    if (error != std::errc()) break;
    ids.push_back(id);
    at = static_cast<size_t>(end - text.data());
    if (at < text.size() && text[at] == ',') ++at;
  }
  return ids;
}

class HttpLoad;

// A connection and the call that is on it.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(HttpLoad& load, asio::io_context& context);
  void Begin(int64_t number);

 private:
  void Write();
  void Read();
  void OnBytes(size_t count);
  // True: the answer is whole.
  bool Parse();
  bool ParseHead();
  bool ParseChunks();
  void TakePiece(std::string_view piece);
  void End(const std::string& error);

  HttpLoad& load_;
  const LoadOptions& options_;
  tcp::socket socket_;
  asio::steady_timer deadline_;
  bool open_ = false;
  uint64_t seed_ = 0;
  int cancel_after_ = -1;
  int64_t begun_at_ = 0;
  std::string request_;
  std::string bytes_;    // read and not yet parsed
  std::string payload_;  // of a stream: the beginning of an event; else of the answer
  char buffer_[kReadBytes];
  bool has_head_ = false;
  bool chunked_ = false;
  bool done_ = false;  // [DONE] was read, or the one piece
  size_t length_ = 0;
  int status_ = 0;
  Outcome outcome_;
};

class HttpLoad final : public LoopLoad {
 public:
  HttpLoad(const LoadOptions& load_options, Tally& counts) : LoopLoad(load_options, counts) {
    StartThread();
  }
  ~HttpLoad() override { StopThread(); }

  void Ended(const Outcome& outcome, std::shared_ptr<Connection> reusable) {
    if (reusable != nullptr) idle_.push_back(std::move(reusable));
    if (options.rate == 0) Begin();
    tally.Count(outcome);
  }

 private:
  void BeginCall(int64_t number) override {
    std::shared_ptr<Connection> connection;
    if (idle_.empty()) {
      connection = std::make_shared<Connection>(*this, context_);
    } else {
      connection = std::move(idle_.back());
      idle_.pop_back();
    }
    connection->Begin(number);
  }

  std::vector<std::shared_ptr<Connection>> idle_;
};

Connection::Connection(HttpLoad& load, asio::io_context& context)
    : load_(load), options_(load.options), socket_(context), deadline_(context) {}

void Connection::Begin(int64_t number) {
  seed_ = static_cast<uint64_t>(options_.first_seed + number);
  cancel_after_ = CancelAfter(options_, number);
  json::Object body;
  body["model"] = options_.model;
  json::Array prompt;
  for (const int32_t id : PromptOf(options_, seed_)) prompt.push_back(id);
  body["prompt"] = std::move(prompt);
  body["max_tokens"] = options_.max_tokens;
  body["seed"] = static_cast<int64_t>(seed_);
  body["ignore_eos"] = true;
  body["stream"] = !options_.unary;
  body["return_token_ids"] = true;
  const std::string text = json::Serialize(body);
  request_ =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Content-Length: " +
      std::to_string(text.size()) + "\r\n\r\n" + text;
  bytes_.clear();
  payload_.clear();
  has_head_ = chunked_ = done_ = false;
  outcome_ = {};
  begun_at_ = SteadyMicros();
  deadline_.expires_after(std::chrono::seconds(options_.timeout_s));
  deadline_.async_wait([weak = weak_from_this()](const error_code& error) {
    const auto self = weak.lock();
    if (!error && self != nullptr) self->socket_.cancel();
  });
  if (open_) return Write();
  socket_.async_connect(load_.endpoint, [self = shared_from_this()](const error_code& error) {
    if (error) return self->End(error.message());
    self->open_ = true;
    error_code ignored;
    self->socket_.set_option(tcp::no_delay(true), ignored);
    self->Write();
  });
}

void Connection::Write() {
  asio::async_write(socket_, asio::buffer(request_),
                    [self = shared_from_this()](const error_code& error, size_t) {
                      if (error) return self->End(error.message());
                      if (self->cancel_after_ == 0) {
                        self->outcome_.cancelled = true;
                        return self->End("given up");
                      }
                      self->Read();
                    });
}

void Connection::Read() {
  socket_.async_read_some(asio::buffer(buffer_),
                          [self = shared_from_this()](const error_code& error, size_t count) {
                            if (error) return self->End(error.message());
                            self->OnBytes(count);
                          });
}

void Connection::OnBytes(size_t count) {
  bytes_.append(buffer_, count);
  if (Parse()) return End("");
  if (cancel_after_ > 0 && outcome_.tokens >= cancel_after_) {
    outcome_.cancelled = true;
    return End("given up");
  }
  Read();
}

bool Connection::Parse() {
  if (!has_head_ && !ParseHead()) return false;
  if (chunked_) return ParseChunks();
  if (bytes_.size() < length_) return false;
  TakePiece(bytes_);
  done_ = true;
  return true;
}

bool Connection::ParseHead() {
  const size_t end = bytes_.find("\r\n\r\n");
  if (end == std::string::npos) return false;
  std::string head = bytes_.substr(0, end + 2);
  bytes_.erase(0, end + 4);
  for (char& c : head) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  status_ = std::atoi(head.c_str() + head.find(' '));
  chunked_ = head.find("\r\ntransfer-encoding: chunked") != std::string::npos;
  outcome_.told_when = head.find("\r\nretry-after: ") != std::string::npos;
  const size_t length = head.find("\r\ncontent-length: ");
  length_ = length == std::string::npos ? 0 : std::stoul(head.substr(length + 18));
  has_head_ = true;
  return true;
}

bool Connection::ParseChunks() {
  size_t at = 0;
  bool last = false;
  while (!last) {
    const size_t line = bytes_.find("\r\n", at);
    if (line == std::string::npos) break;
    size_t size = 0;
    std::from_chars(bytes_.data() + at, bytes_.data() + line, size, 16);
    if (bytes_.size() < line + 2 + size + 2) break;
    payload_.append(bytes_, line + 2, size);
    at = line + 2 + size + 2;
    last = size == 0;
  }
  bytes_.erase(0, at);
  size_t begin = 0;
  for (size_t end = 0; (end = payload_.find("\n\n", begin)) != std::string::npos;) {
    TakePiece(std::string_view(payload_).substr(begin, end - begin));
    begin = end + 2;
  }
  payload_.erase(0, begin);
  return last;
}

void Connection::TakePiece(std::string_view piece) {
  if (piece == "data: [DONE]") done_ = true;
  static constexpr std::string_view kIds = "\"token_ids\":[";
  const size_t at = piece.find(kIds);
  if (at == std::string_view::npos) return;
  if (outcome_.Take(options_, seed_, IdsAt(piece, at + kIds.size()), begun_at_)) {
    load_.tally.Opened();
  }
}

void Connection::End(const std::string& error) {
  deadline_.cancel();
  outcome_.status = error.empty() ? std::to_string(status_) : "connection";
  outcome_.error = error.empty() ? bytes_.substr(0, 300) : error;
  outcome_.ended_at_us = SteadyMicros();
  outcome_.total_us = outcome_.ended_at_us - begun_at_;
  outcome_.complete = error.empty() && status_ == 200 && done_ && !outcome_.wrong &&
                      outcome_.tokens == options_.max_tokens;
  const bool reusable = error.empty();
  if (!reusable) {
    error_code ignored;
    socket_.close(ignored);
  }
  load_.Ended(std::exchange(outcome_, {}), reusable ? shared_from_this() : nullptr);
}

}  // namespace

std::unique_ptr<Load> MakeHttpLoad(const LoadOptions& options, Tally& tally) {
  return std::make_unique<HttpLoad>(options, tally);
}

}  // namespace quire::bench
