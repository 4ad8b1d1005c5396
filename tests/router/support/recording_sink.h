// A client that writes down what it is told and holds the pipeline to its order of calls.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "router/pipeline/pipeline.h"

namespace quire {

class RecordingSink final : public ResponseSink {
 public:
  void OnStarted(const Started& s) override {
    EXPECT_FALSE(started.has_value()) << "started twice";
    EXPECT_FALSE(Over());
    started = s;
    if (on_started) on_started();
  }
  void OnDelta(const Delta& delta) override {
    EXPECT_TRUE(started.has_value());
    EXPECT_FALSE(Over());
    if (delta.choice >= texts.size()) {
      texts.resize(delta.choice + 1);
      ids.resize(delta.choice + 1);
    }
    EXPECT_EQ(delta.first_index, base + ids[delta.choice].size()) << "each index once, in order";
    texts[delta.choice] += delta.text;
    ids[delta.choice].insert(ids[delta.choice].end(), delta.ids.begin(), delta.ids.end());
    logprobs.insert(logprobs.end(), delta.logprobs.begin(), delta.logprobs.end());
    ++deltas;
    if (on_delta) on_delta(delta);
  }
  void OnChoiceEnd(const ChoiceEnd& end) override {
    EXPECT_FALSE(Over());
    ends.push_back(end);
  }
  void OnFinished(const Usage& u) override {
    EXPECT_FALSE(Over()) << "two terminal events";
    usage = u;
  }
  void OnError(const ApiError& e) override {
    EXPECT_FALSE(Over()) << "two terminal events";
    error = e;
  }
  bool Over() const { return usage.has_value() || error.has_value(); }
  std::string text(size_t choice = 0) const { return choice < texts.size() ? texts[choice] : ""; }

  uint64_t base = 0;  // outputs that a resumed request brought along
  std::optional<Started> started;
  std::vector<std::string> texts;
  std::vector<std::vector<TokenId>> ids;
  std::vector<TokenLogprob> logprobs;
  std::vector<ChoiceEnd> ends;
  std::optional<Usage> usage;
  std::optional<ApiError> error;
  int deltas = 0;
  std::function<void()> on_started;
  std::function<void(const Delta&)> on_delta;
};

}  // namespace quire
