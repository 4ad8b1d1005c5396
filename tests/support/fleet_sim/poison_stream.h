// A worker's end of a link that watches for the fifth token of a poisonous request, and tells when
// it is about to leave: it does not.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "common/runtime/runtime.h"
#include "quire/v1/worker.pb.h"

namespace quire::sim {

inline constexpr char kPoisonId[] = "poison";  // the request id of such requests

class PoisonStream final : public FrameStream, private FrameStream::Receiver {
 public:
  PoisonStream(std::unique_ptr<FrameStream> inner, std::function<void()> kill)
      : inner_(std::move(inner)), kill_(std::move(kill)) {}

  void Start(FrameStream::Receiver* receiver) override {
    receiver_ = receiver;
    inner_->Start(this);
  }
  bool Write(std::string frame) override {
    if (!poison_.empty() && Kills(frame)) {
      kill_();
      return true;
    }
    return inner_->Write(std::move(frame));
  }
  size_t PendingBytes() const override { return inner_->PendingBytes(); }
  void Close() override { inner_->Close(); }

 private:
  bool Kills(const std::string& bytes) const {
    worker::v1::WorkerFrame frame;
    if (!frame.ParseFromString(bytes) || !frame.has_step()) return false;
    for (const worker::v1::Output& output : frame.step().outputs()) {
      const uint64_t end = output.first_index() + static_cast<uint64_t>(output.ids_size());
      if (poison_.contains(output.request_number()) && end >= 5) return true;
    }
    return false;
  }
  void OnFrame(std::string_view bytes) override {
    worker::v1::RouterFrame frame;
    if (frame.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) && frame.has_submit() &&
        frame.submit().request_id() == kPoisonId) {
      poison_.insert(frame.submit().request_number());
    }
    receiver_->OnFrame(bytes);
  }
  void OnClosed(const absl::Status& status) override { receiver_->OnClosed(status); }
  void OnWritable() override { receiver_->OnWritable(); }

  std::unique_ptr<FrameStream> inner_;
  std::function<void()> kill_;
  FrameStream::Receiver* receiver_ = nullptr;
  std::set<uint64_t> poison_;
};

}  // namespace quire::sim
