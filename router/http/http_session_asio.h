// One HTTP/1.1 connection: parses requests, answers them one at a time, keeps its deadlines.
//
// Owner: HttpServer's table, and its own pending socket operations (a shared_ptr in each); event
// loop only.
//
// Invariants:
// 1. `call_` lives only in state kAnswering and is never destroyed from inside one of its own
//    functions.
// 2. Bytes wait in `out_` (bounded by max_write_buffer_bytes) while `writing_` is under way; they
//    are charged before they are added, and an answer that finds no memory becomes a 503, or is cut
//    short.
#pragma once

#include <boost/beast/core/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/client_seat.h"
#include "common/tls/edge_stream_asio.h"
#include "router/http/exchange.h"
#include "router/http/routes.h"
#include "router/http/services.h"

namespace quire {

// What is read after a connection's last answer, so that the answer arrives; beyond it the
// connection is closed at once.
inline constexpr size_t kMaxLingerBytes = 4u << 20;

// What the sessions of one server share.
struct HttpShared {
  HttpServices& services;
  bool draining = false;
  // Sessions whose bytes the system took at once: one turn of the loop notifies all of them. Owned
  // by the server and by that turn.
  std::shared_ptr<std::vector<std::shared_ptr<class HttpSession>>> written =
      std::make_shared<std::vector<std::shared_ptr<class HttpSession>>>();
};

class HttpSession final : public Exchange, public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(EdgeStream stream, HttpShared& shared, std::shared_ptr<ClientSeat> seat,
              std::function<void()> on_closed);
  ~HttpSession() override;

  void Start(std::string first_bytes);
  void StartDraining();
  void Close();

  // Exchange:
  void Reply(HttpResponse response) override;
  void SetTraceResponse(std::string value) override { trace_response_ = std::move(value); }
  void StartStream(int status, std::string_view content_type, const HeaderList& headers) override;
  uint64_t Write(std::string_view bytes) override;
  void EndStream() override;
  void Abort() override;

 private:
  static constexpr size_t kWaitingStep = 16u << 10;  // by which what waits is charged
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  enum class State { kIdle, kHead, kBody, kAnswering, kLinger, kClosed };

  void Read();
  void OnReadable(boost::beast::error_code error);
  void OnInputEnd(bool in_order);
  size_t ReadLimit() const;
  void Parse();
  void BeginHead();
  bool FeedParser();  // false: refused
  bool HeadTooLong();
  void RefuseHead();
  bool CheckHead();     // false: refused
  bool CheckFraming();  // false: refused
  bool Authorize();     // false: refused
  void RefuseForOperators();
  bool CheckSeat();      // false: refused
  bool CheckPage();      // false: refused
  bool CheckBodyType();  // false: refused
  void ReadOrigin();
  void AppendCors();
  void ShapeError(HttpResponse& response) const;
  void OnParseError(const boost::beast::error_code& error);
  void Refuse(int status, std::string_view message, std::string_view code);
  void Refuse(HttpResponse response);
  void ReadTarget();
  void ReadHead();
  HttpRequest TakeRequest();
  void BeginAnswer();
  bool CountBody(size_t bytes);  // false: refused
  bool ChargeInput();            // false: refused
  bool ChargeWaiting(size_t more);
  size_t InputBytes() const;

  void AppendHead(int status, std::string_view content_type, const HeaderList& headers,
                  std::optional<size_t> length);
  void StartWrite();
  void WriteOn();
  void WrittenAtOnce();
  void OnWritten();
  void OnWriteError();
  void AnswerWritten();
  void ReleaseBuffers();  // both are written
  bool TakesEnough();     // and the next look is set
  void Linger();

  void SetDeadline(Micros delay);  // 0: none
  void OnTimer();
  void OnDeadline();
  void PostClose();

  EdgeStream stream_;
  HttpShared& shared_;
  HttpServices& services_;
  const std::shared_ptr<ClientSeat> seat_;
  std::function<void()> on_closed_;
  State state_ = State::kIdle;

  std::string in_;  // bytes that the parser has not taken yet
  bool reading_ = false;
  bool input_ended_ = false;
  size_t lingered_bytes_ = 0;
  std::optional<Parser> parser_;
  std::shared_ptr<MemoryHold> hold_;  // of the body that is being read
  // What the router holds for this client beside that: the connection itself with what was read,
  // and what waits to be written.
  const std::shared_ptr<MemoryAccount> memory_;
  MemoryHold own_;
  MemoryHold waiting_;
  uint64_t request_wire_bytes_ = 0;
  size_t head_bytes_ = 0;     // once it is parsed
  size_t head_searched_ = 0;  // of in_, for the end of the head
  bool continue_sent_ = false;
  HttpRequest request_;  // what the head says of the one that is being read
  bool target_usable_ = true;
  // Its path is of Anthropic's or of Ollama's API, whose errors have their own shapes.
  bool of_messages_ = false;
  bool says_error_alone_ = false;  // {"error": "…"}: Ollama's API and the Open Inference Protocol
  Access access_ = Access::kKey;   // of its path
  std::string cors_origin_;  // origin that may read the answer; empty: none was sent, or it may not

  std::unique_ptr<Call> call_;
  bool dispatching_ = false;
  std::string request_id_;
  std::string trace_response_;
  bool head_only_ = false;  // HEAD
  bool preflight_ = false;  // OPTIONS
  bool http10_ = false;
  bool keep_alive_ = true;
  bool chunked_ = false;
  bool answer_begun_ = false;
  bool answer_done_ = false;

  std::string out_;
  std::shared_ptr<const std::string> body_;  // follows out_: a large answer, which is not copied
  std::string writing_;                      // or
  std::shared_ptr<const std::string> writing_body_;
  std::string_view left_;  // of it
  bool write_active_ = false;
  uint64_t body_queued_ = 0;     // body bytes of this answer
  uint64_t body_in_flight_ = 0;  // body_queued_ when writing_ was taken
  // For bytes that wait to be taken: since when, or since the last check, and how many were taken
  // since then.
  Micros taken_since_ = 0;
  uint64_t taken_bytes_ = 0;

  Micros deadline_ = 0;
  TimerId timer_ = 0;
  Micros timer_due_ = 0;
};

}  // namespace quire
