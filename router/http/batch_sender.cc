#include "router/http/batch_sender.h"

#include <charconv>
#include <utility>

#include "router/http/routes.h"

namespace quire {
namespace {

Micros RetryAfterOf(const HttpResponse& response) {
  for (const auto& [name, value] : response.headers) {
    if (name != "Retry-After") continue;
    int64_t seconds = 0;
    std::from_chars(value.data(), value.data() + value.size(), seconds);
    return seconds * kMicrosPerSecond;
  }
  return 0;
}

// Collects the answer of one line. What it holds is charged to the tenant until it is handed on.
class SentRequest final : public batches::SentLine, public Exchange {
 public:
  SentRequest(HttpServices& services, const TenantProfile* tenant,
              std::function<void(batches::LineAnswer)> done)
      : services_(services), done_(std::move(done)), hold_(services.pipeline.MemoryOf(tenant)) {}
  ~SentRequest() override {
    *alive_ = false;
    call_.reset();
  }

  void Begin(HttpRequest request) {
    std::unique_ptr<Call> call = Dispatch(services_, std::move(request), *this);
    if (!answered_) call_ = std::move(call);
  }

  void Reply(HttpResponse response) override {
    batches::LineAnswer answer;
    answer.status = response.status;
    answer.retry_after = RetryAfterOf(response);
    if (response.shared_body == nullptr) {
      answer.body = std::move(response.body);
    } else {
      answer.body = *response.shared_body;
    }
    Answer(std::move(answer));
  }
  // No line asks for a stream: such lines are refused before they are sent.
  void StartStream(int status, std::string_view, const HeaderList&) override {
    streamed_.status = status;
  }
  uint64_t Write(std::string_view bytes) override {
    streamed_.body += bytes;
    return streamed_.body.size();
  }
  void EndStream() override { Answer(std::move(streamed_)); }
  void Abort() override {
    streamed_.status = 503;
    Answer(std::move(streamed_));
  }

 private:
  // The call that answers runs still, and ends once it has returned.
  void Answer(batches::LineAnswer answer) {
    answered_ = true;
    hold_.Resize(answer.body.size());
    const auto shared = std::make_shared<batches::LineAnswer>(std::move(answer));
    services_.executor.Post([this, alive = alive_, shared] {
      if (!*alive) return;
      call_.reset();
      const auto done = std::move(done_);
      done(std::move(*shared));  // may destroy this
    });
  }

  HttpServices& services_;
  std::function<void(batches::LineAnswer)> done_;
  MemoryHold hold_;
  std::unique_ptr<Call> call_;
  batches::LineAnswer streamed_;
  bool answered_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace

bool BatchSender::Ready() const { return !services_.leaving && services_.pipeline.Ready(); }

std::optional<std::shared_ptr<const TenantProfile>> BatchSender::TenantNow(
    const batches::Creator& creator) {
  TenantProfile then;
  then.name = creator.tenant;
  then.models = creator.models;
  then.highest_priority = creator.highest_priority;
  return keys_.TenantNow(then);
}

std::shared_ptr<MemoryAccount> BatchSender::MemoryOf(const TenantProfile* tenant) {
  return services_.pipeline.MemoryOf(tenant);
}

std::unique_ptr<batches::SentLine> BatchSender::Send(
    batches::LineRequest line, std::function<void(batches::LineAnswer)> done) {
  HttpRequest request;
  request.method = "POST";
  request.path = std::move(line.path);
  request.body = std::move(line.body);
  request.request_id = std::move(line.request_id);
  request.tenant = std::move(line.tenant);
  request.hold = std::move(line.hold);
  keys_.CountRequest(request.tenant);
  auto sent = std::make_unique<SentRequest>(services_, request.tenant.get(), std::move(done));
  sent->Begin(std::move(request));
  return sent;
}

}  // namespace quire
