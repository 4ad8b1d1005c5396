#include "worker/rpc/bundle_call.h"

#include <algorithm>
#include <utility>

#include "common/wire/values.h"
#include "quire/v1/worker.pb.h"
#include "worker/rpc/blocked_writes.h"

namespace quire {
namespace {

namespace pb = ::quire::worker::v1;

constexpr int64_t kTryAgainMs = 1000;

// The served bundle, and the number of running calls. Shared by the method and its calls.
struct Bundle {
  std::string model_id;
  std::string bytes;
  int open = 0;
};

class BundleCall final : public GrpcCallHandler {
 public:
  BundleCall(std::shared_ptr<Bundle> bundle, std::shared_ptr<GrpcCall> call)
      : bundle_(std::move(bundle)),
        call_(std::move(call)),
        blocked_(*call_, [this] { call_->Reset(); }) {}
  ~BundleCall() override {
    if (begun_) --bundle_->open;
  }

  Step Read(std::string_view message) override {
    pb::GetTextBundleRequest request;
    if (!request.ParseFromArray(message.data(), static_cast<int>(message.size()))) return {};
    return [this, model_id = request.model_id()] { Begin(model_id); };
  }
  void OnDrained() override { SendNext(); }

 private:
  void Begin(const std::string& model_id) {
    if (model_id != bundle_->model_id) {
      return call_->Finish(absl::FailedPreconditionError(
          AbslView("model_id: this worker serves " + bundle_->model_id)));
    }
    if (bundle_->open == kMaxBundleCalls) {
      return call_->Finish({absl::ResourceExhaustedError(
                                "64 routers fetch the text bundle now; try again in a second"),
                            kTryAgainMs});
    }
    ++bundle_->open;
    begun_ = true;
    SendNext();
  }
  void SendNext() {
    if (!begun_) return;
    const size_t total = bundle_->bytes.size();
    if (offset_ == total) return call_->Finish(absl::OkStatus());
    const size_t count = std::min(kTextBundleChunkBytes, total - offset_);
    pb::TextBundleChunk chunk;
    chunk.set_data(bundle_->bytes.data() + offset_, count);
    chunk.set_total_bytes(total);
    offset_ += count;
    call_->Send(chunk);
    blocked_.Sent(chunk.ByteSizeLong());
  }

  const std::shared_ptr<Bundle> bundle_;
  const std::shared_ptr<GrpcCall> call_;
  BlockedWrites blocked_;
  size_t offset_ = 0;
  bool begun_ = false;
};

}  // namespace

GrpcMethod BundleMethod(const std::string& model_id, std::string bundle) {
  auto shared = std::make_shared<Bundle>(Bundle{model_id, std::move(bundle)});
  const auto begin = [shared = std::move(shared)](std::shared_ptr<GrpcCall> call) {
    return std::make_shared<BundleCall>(shared, std::move(call));
  };
  return {.begin = begin, .keeps_metadata = false};
}

}  // namespace quire
