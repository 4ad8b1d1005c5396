// What is compiled once, kept, given up and refused; in virtual time.
#include "worker/constrain/constraint_compiler.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/runtime/virtual_background.h"
#include "common/runtime/virtual_runtime.h"
#include "tests/support/tag_grammar.h"

namespace quire {
namespace {

constexpr Micros kDelay = 1000;

// Counts what is handed to it, and is full when it is told to be.
class CountingBackground final : public Background {
 public:
  explicit CountingBackground(Executor& executor) : inner_(executor, kDelay) {}
  bool Run(std::function<void()> work, std::function<void()> done) override {
    ++runs;
    return !full && inner_.Run(std::move(work), std::move(done));
  }
  bool RunFor(const WorkShare& share, std::function<void()> work,
              std::function<void()> done) override {
    shares.push_back(share);
    return Run(std::move(work), std::move(done));
  }

  int runs = 0;
  bool full = false;
  std::vector<WorkShare> shares;

 private:
  VirtualBackground inner_;
};

class ConstraintCompilerTest : public testing::Test {
 protected:
  void Make(ConstraintOptions options) {
    compiler_.reset();
    metrics_ = std::make_unique<Metrics>();
    compiler_ = std::make_unique<ConstraintCompiler>(
        options, std::make_shared<SharedVocabulary>([]() -> SharedVocabulary::Made {
          return test::TagVocabulary();
        }),
        world_.executor(), background_, *metrics_);
  }
  // A result that is there at once is in it when Start returns.
  uint64_t Start(const std::string& expression, const std::string& tenant = "a") {
    const Constraint constraint = test::ConstraintOf(ConstraintKind::kRegex, expression);
    auto started = compiler_->Start(constraint, tenant, [this](ConstraintCompiler::Result result) {
      results_.push_back(std::move(result));
    });
    if (started.number == 0) results_.push_back(std::move(started.result));
    return started.number;
  }
  void Rest() {
    world_.RunUntil(world_.clock().Now() + 10 * kDelay, [] { return false; });
  }
  bool Shows(const std::string& line) {
    return metrics_->Render().find(line + "\n") != std::string::npos;
  }

  VirtualWorld world_{1};
  CountingBackground background_{world_.executor()};
  std::unique_ptr<Metrics> metrics_ = std::make_unique<Metrics>();
  std::unique_ptr<ConstraintCompiler> compiler_;
  std::vector<ConstraintCompiler::Result> results_;
};

TEST_F(ConstraintCompilerTest, EqualConstraintsCompileOnceAndAreKept) {
  Make({});
  EXPECT_NE(Start("[a-c]+"), 0u);
  EXPECT_NE(Start("[a-c]+", "b"), 0u);
  EXPECT_NE(Start("[a-d]+"), 0u);
  EXPECT_EQ(compiler_->waiting(), 3u);
  EXPECT_TRUE(results_.empty());
  Rest();
  ASSERT_EQ(results_.size(), 3u);
  EXPECT_EQ(compiler_->waiting(), 0u);
  EXPECT_NE(results_[0].grammar, nullptr);
  EXPECT_EQ(results_[0].grammar, results_[1].grammar);
  EXPECT_NE(results_[0].grammar, results_[2].grammar);
  EXPECT_EQ(Start("[a-c]+"), 0u);
  EXPECT_EQ(results_[3].grammar, results_[0].grammar);
  EXPECT_EQ(background_.runs, 2);
  EXPECT_EQ(background_.shares[0].owner, "a");
  EXPECT_TRUE(Shows("quire_worker_constraint_cache_hits_total 2"));
  EXPECT_TRUE(Shows("quire_worker_constraint_cache_misses_total 2"));
  EXPECT_TRUE(Shows("quire_worker_constraint_cache_entries 2"));
}

TEST_F(ConstraintCompilerTest, EveryPartOfAConstraintCounts) {
  Make({});
  Constraint constraint = test::ConstraintOf(ConstraintKind::kJsonSchema, R"({"type":"integer"})");
  std::vector<Constraint> all{constraint};
  constraint.compact = true;
  all.push_back(constraint);
  constraint.closed = true;
  all.push_back(constraint);
  constraint.whitespace_pattern = "[ ]?";
  all.push_back(constraint);
  for (const Constraint& each : all) {
    EXPECT_NE(compiler_->Start(each, "a", [](const auto&) {}).number, 0u);
  }
  EXPECT_EQ(background_.runs, 4);
  Rest();
}

TEST_F(ConstraintCompilerTest, TheCacheIsBoundedByEntriesAndTheOldestUseGoes) {
  Make({.limits = {}, .max_cached = 2});
  for (const char* expression : {"a", "b"}) {
    Start(expression);
    Rest();
  }
  EXPECT_EQ(compiler_->cached(), 2u);
  EXPECT_EQ(Start("a"), 0u);  // used: b is the oldest now
  EXPECT_NE(Start("c"), 0u);
  Rest();
  EXPECT_EQ(compiler_->cached(), 2u);
  EXPECT_EQ(Start("a"), 0u);
  EXPECT_EQ(Start("c"), 0u);
  EXPECT_NE(Start("b"), 0u);
}

TEST_F(ConstraintCompilerTest, TheCacheIsBoundedByBytes) {
  Make({});
  Start("abc");
  Rest();
  const size_t one = compiler_->cached_bytes();
  ASSERT_GT(one, 0u);
  Make({.limits = {}, .max_cached = 8, .max_cached_bytes = one});
  Start("abc");
  Rest();
  EXPECT_EQ(compiler_->cached(), 1u);
  Start("ab");
  Rest();
  EXPECT_EQ(compiler_->cached(), 1u);
  EXPECT_LE(compiler_->cached_bytes(), one);
  Make({.limits = {}, .max_cached = 8, .max_cached_bytes = one - 1});
  Start("abc");
  Rest();
  EXPECT_EQ(compiler_->cached(), 0u);
}

TEST_F(ConstraintCompilerTest, WhatNobodyWaitsForIsGivenUp) {
  Make({});
  const uint64_t first = Start("[a-c]{2}");
  const uint64_t second = Start("[a-c]{2}");
  compiler_->Leave(first);
  EXPECT_FALSE(background_.shares[0].cancelled->load());
  compiler_->Leave(second);
  EXPECT_TRUE(background_.shares[0].cancelled->load());
  compiler_->Leave(second);
  EXPECT_NE(Start("[a-c]{2}"), 0u);  // with a job of its own
  EXPECT_EQ(background_.runs, 2);
  Rest();
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_NE(results_[0].grammar, nullptr);
}

TEST_F(ConstraintCompilerTest, RefusalsNameTheFieldAndAreKept) {
  Make({});
  Start("[a-");
  Rest();
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_EQ(results_[0].refused.code, RefusalCode::kInvalid);
  EXPECT_EQ(results_[0].refused.field, "constraint");
  EXPECT_EQ(results_[0].refused.message.rfind("constraint: ", 0), 0u)
      << results_[0].refused.message;
  EXPECT_EQ(Start("[a-"), 0u);
  EXPECT_EQ(results_[1].refused.message, results_[0].refused.message);
  EXPECT_EQ(background_.runs, 1);
  EXPECT_TRUE(Shows("quire_worker_constraints_refused_total{cause=\"malformed\"} 2"));
}

TEST_F(ConstraintCompilerTest, AFullQueueIsAnHonestRefusal) {
  Make({});
  background_.full = true;
  EXPECT_EQ(Start("abc"), 0u);
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_EQ(results_[0].refused.code, RefusalCode::kQueueFull);
  EXPECT_GT(results_[0].refused.retry_after_ms, 0u);
  EXPECT_TRUE(Shows("quire_worker_constraints_refused_total{cause=\"queue_full\"} 1"));
  background_.full = false;
  EXPECT_NE(Start("abc"), 0u);
  Rest();
  EXPECT_NE(results_[1].grammar, nullptr);
}

TEST_F(ConstraintCompilerTest, AModelWhoseTokensCannotBeConstrainedRefuses) {
  compiler_ = std::make_unique<ConstraintCompiler>(
      ConstraintOptions{}, std::make_shared<SharedVocabulary>([]() -> SharedVocabulary::Made {
        return absl::NotFoundError("no tokenizer");
      }),
      world_.executor(), background_, *metrics_);
  Start("abc");
  Rest();
  ASSERT_EQ(results_.size(), 1u);
  EXPECT_EQ(results_[0].refused.code, RefusalCode::kUnsupported);
  EXPECT_EQ(results_[0].refused.message,
            "constraint: this model's tokens cannot be constrained: no tokenizer");
}

TEST_F(ConstraintCompilerTest, TheVocabularyIsMadeOnceAndBeforehand) {
  int made = 0;
  auto vocabulary = std::make_shared<SharedVocabulary>([&made]() -> SharedVocabulary::Made {
    ++made;
    return test::TagVocabulary();
  });
  compiler_ = std::make_unique<ConstraintCompiler>(ConstraintOptions{}, vocabulary,
                                                   world_.executor(), background_, *metrics_);
  compiler_->Prepare();
  Rest();
  EXPECT_EQ(made, 1);
  EXPECT_GT(vocabulary->bytes(), 0u);
  Start("abc");
  Rest();
  EXPECT_EQ(made, 1);
}

}  // namespace
}  // namespace quire
