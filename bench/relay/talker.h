// A worker that only sends tokens: in the process of its router, one token for every row in each
// step, as fast as the router takes them. It is the reference for the cost of relaying tokens.
//
// Owner: a bench program; everything happens on the router's event loop. The processor time that
// making its frames takes is counted, so that it can be taken off.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/runtime/runtime.h"
#include "quire/v1/worker.pb.h"

namespace quire::bench {

// Of the calling thread.
double ThreadSeconds();

struct TalkerOptions {
  std::string bundle = "no text";
  uint32_t vocab_size = 2048;
  uint32_t rows = 256;  // it begins once so many requests are there
};

class Talker final : public Dialer {
 public:
  Talker(Executor& executor, TalkerOptions options)
      : executor_(executor), options_(std::move(options)) {}

  std::unique_ptr<FrameStream> Dial(const std::string& target) override;
  void FetchTextBundle(const std::string& target, const std::string& model_id, size_t max_bytes,
                       std::function<void(absl::StatusOr<std::string>)> done) override;

  // Called once, when all rows are there, before the first token; and when all have ended.
  std::function<void()> on_begin;
  std::function<void()> on_end;
  double own_seconds() const { return own_seconds_; }  // making frames, reading the router's
  uint64_t tokens() const { return tokens_; }
  uint64_t frames() const { return frames_; }
  uint64_t frame_bytes() const { return frame_bytes_; }

 private:
  struct Row {
    uint32_t attempt = 0;
    uint64_t index = 0;
    uint64_t granted = 0;
    uint64_t limit = 0;
  };
  class Stream;

  void Hear(const std::string& bytes);
  void Take(const worker::v1::Submit& submit);
  void Greet();
  void Beat();
  void Wake();
  void Turn();
  void Fill(worker::v1::Step& step);
  void Send(worker::v1::Step step);
  std::string Encode(worker::v1::Step from);

  Executor& executor_;
  const TalkerOptions options_;
  FrameStream::Receiver* receiver_ = nullptr;
  Stream* stream_ = nullptr;
  std::map<uint64_t, Row> rows_;  // by request number
  worker::v1::Step next_;
  bool begun_ = false;
  bool awake_ = false;
  uint64_t last_submit_ = 0;
  uint64_t frames_ = 0;
  uint64_t frame_bytes_ = 0;
  uint64_t tokens_ = 0;
  double own_seconds_ = 0;
};

}  // namespace quire::bench
