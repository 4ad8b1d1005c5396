#include "common/client/http_client_asio.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <memory>

namespace quire::client {
namespace {

namespace http = boost::beast::http;

std::string NoAnswer(const Url& url) {
  const std::string where = url.host + ":" + url.port;
  const std::string hint = url.tls ? "" : "; if it speaks TLS, use https://" + where;
  return where + ": the server closed the connection without an answer" + hint;
}

std::string RequestText(const Url& url, const HttpRequest& request) {
  std::string text = request.method + " " + request.path + " HTTP/1.1\r\nHost: " + url.host + ":" +
                     url.port + "\r\nConnection: close\r\nUser-Agent: quire\r\n";
  if (!request.api_key.empty()) text += "Authorization: Bearer " + request.api_key + "\r\n";
  for (const auto& [name, value] : request.headers) {
    // A line end in a value would begin another header.
    if ((name + value).find_first_of("\r\n") != std::string::npos) continue;
    text += name + ": " + value + "\r\n";
  }
  if (!request.body.empty()) {
    text += "Content-Type: " + request.content_type +
            "\r\nContent-Length: " + std::to_string(request.body.size()) + "\r\n";
  }
  return text + "\r\n" + request.body;
}

// Cuts a byte stream into events; only their data lines matter here.
class EventReader {
 public:
  explicit EventReader(const std::function<bool(std::string_view)>& on_event)
      : on_event_(on_event) {}
  bool Add(std::string_view bytes) {
    pending_.append(bytes);
    size_t start = 0;
    bool more = true;
    for (size_t end; more && (end = pending_.find('\n', start)) != std::string::npos;
         start = end + 1) {
      std::string_view line = std::string_view(pending_).substr(start, end - start);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.starts_with("data:")) {
        line.remove_prefix(line.starts_with("data: ") ? 6 : 5);
        more = on_event_(line);
      }
    }
    pending_.erase(0, start);
    return more;
  }

 private:
  const std::function<bool(std::string_view)>& on_event_;
  std::string pending_;
};

}  // namespace

absl::StatusOr<HttpAnswer> Exchange(const Url& url, const HttpRequest& request,
                                    const std::atomic<bool>& cancelled,
                                    const std::function<bool(std::string_view)>& on_event) {
  QUIRE_ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection,
                         Connection::Open(url, cancelled));
  QUIRE_RETURN_IF_ERROR(connection->Send(RequestText(url, request)));
  http::response_parser<http::string_body> parser;
  parser.eager(true);
  parser.body_limit(kMaxAnswerBytes);
  EventReader events(on_event);
  bool wanted = true;
  bool any = false;  // byte of an answer
  HttpAnswer answer;
  auto on_chunk = [&](std::uint64_t, boost::beast::string_view body, boost::beast::error_code&) {
    const std::string_view bytes(body.data(), body.size());
    const auto type = parser.get()[http::field::content_type];
    if (type.starts_with("text/event-stream")) {
      wanted = wanted && events.Add(bytes);
    } else {
      answer.body.append(bytes);
    }
    return body.size();
  };
  parser.on_chunk_body(on_chunk);
  std::string pending;
  char buffer[16384];
  while (!parser.is_done() && wanted) {
    QUIRE_ASSIGN_OR_RETURN(const size_t count, connection->Receive(buffer, sizeof(buffer)));
    boost::beast::error_code error;
    if (count == 0) {
      if (!any) return absl::UnavailableError(AbslView(NoAnswer(url)));
      parser.put_eof(error);
      if (error || !parser.is_done()) {
        return absl::UnavailableError("the server closed the connection in mid-answer");
      }
      break;
    }
    any = true;
    pending.append(buffer, count);
    const size_t used = parser.put(boost::asio::buffer(pending), error);
    pending.erase(0, used);
    if (error && error != http::error::need_more) {
      return absl::UnavailableError(AbslView("the answer is no HTTP: " + error.message()));
    }
  }
  answer.status = static_cast<int>(parser.get().result_int());
  if (answer.body.empty()) answer.body = parser.get().body();
  return answer;
}

}  // namespace quire::client
