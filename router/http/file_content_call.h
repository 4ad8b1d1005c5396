// Sends a kept file to its client, piece by piece: the next one is read when the network has taken
// the one before. An answer whose file is deleted meanwhile is cut off.
//
// Owner: the HTTP session; event loop only. Pieces are read on the disk's threads.
#pragma once

#include <memory>
#include <string>

#include "common/runtime/timer.h"
#include "router/batches/disk.h"
#include "router/http/exchange.h"
#include "router/http/services.h"

namespace quire {

class FileContentCall final : public Call {
 public:
  static constexpr size_t kPieceBytes = 256u << 10;

  static std::unique_ptr<Call> Begin(HttpServices& services, HttpRequest request, std::string id,
                                     Exchange& exchange);
  ~FileContentCall() override { *alive_ = false; }
  void OnWritten(uint64_t total) override;

 private:
  FileContentCall(HttpServices& services, HttpRequest request, Exchange& exchange)
      : services_(services), exchange_(exchange), request_(std::move(request)) {}
  void Open(const std::string& id);
  void ReadOn();
  void Sent(const std::string& piece, bool ok);

  HttpServices& services_;
  Exchange& exchange_;
  const HttpRequest request_;
  std::shared_ptr<batches::Descriptor> file_;
  int64_t bytes_ = 0;
  int64_t at_ = 0;
  uint64_t queued_ = 0;
  bool reading_ = false;
  bool ended_ = false;
  std::shared_ptr<std::atomic<bool>> cancelled_ = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  Timer retry_timer_{services_.executor};
};

}  // namespace quire
