// Compiles the constraints of requests to grammars on background threads, and keeps grammars for
// requests to come.
//
// Owner: main (or the simulation); everything on the rpc executor but the work itself. Invariants:
// 1. Equal constraints that wait together compile once; what no request waits for any more is given
//    up.
// 2. What waits is bounded by the background's queue, in which tenants take turns, and what is kept
//    by entries and bytes: the grammar that was used least recently goes first.
// 3. A result depends on the constraint alone. Refusals are kept as grammars are, except for those
//    that time may change.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/grammar/grammar.h"
#include "common/metrics/metrics.h"
#include "common/runtime/runtime.h"
#include "common/wire/values.h"

namespace quire {

struct ConstraintOptions {
  grammar::Limits limits;
  size_t max_cached = 256;  // grammars
  size_t max_cached_bytes = size_t{128} << 20;
};

// The one vocabulary of a worker, made when it is first needed. Any thread.
class SharedVocabulary {
 public:
  using Made = absl::StatusOr<std::shared_ptr<const grammar::Vocabulary>>;
  explicit SharedVocabulary(std::function<Made()> make);
  ~SharedVocabulary();
  // Waits while another thread makes it.
  const Made& Get();
  // 0 until it is made.
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::atomic<size_t> bytes_{0};
};

class ConstraintCompiler {
 public:
  // `refused` without a code: there is a grammar.
  struct Result {
    std::shared_ptr<const grammar::Grammar> grammar;
    Refused refused;
    grammar::Fault fault = grammar::Fault::kNone;
    Micros took = 0;  // to compile
  };
  // All of them outlive the compiler, and the background's threads end before it does.
  ConstraintCompiler(const ConstraintOptions& options, std::shared_ptr<SharedVocabulary> vocabulary,
                     Executor& executor, Background& background, Metrics& metrics);
  ~ConstraintCompiler();

  // Makes the vocabulary before the first constraint comes.
  void Prepare();

  // Number 0: the result is there. Otherwise `done` gets it later, unless the number leaves before.
  struct Started {
    uint64_t number = 0;
    Result result;
  };
  Started Start(const Constraint& constraint, const std::string& tenant,
                std::function<void(Result)> done);
  // Unknown numbers are ignored.
  void Leave(uint64_t number);

  size_t waiting() const { return key_of_.size(); }
  size_t cached() const { return cache_.size(); }
  size_t cached_bytes() const { return cached_bytes_; }

 private:
  struct Work;
  struct Series;
  struct Job {
    std::shared_ptr<Work> work;
    std::map<uint64_t, std::function<void(Result)>> waiting;  // in the order of their numbers
  };
  struct Cached {
    std::string key;
    Result result;
    size_t bytes = 0;
  };

  static std::string KeyOf(const Constraint& constraint);
  void Finish(const std::string& key, const std::shared_ptr<Work>& work);
  Result ResultOf(const Work& work) const;
  void CountRefusal(const Result& result);
  void Keep(const std::string& key, const Result& result);
  void Drop();

  const ConstraintOptions options_;
  const std::shared_ptr<SharedVocabulary> vocabulary_;
  Executor& executor_;
  Background& background_;
  std::unique_ptr<Series> series_;
  uint64_t last_number_ = 0;
  std::unordered_map<std::string, Job> jobs_;
  std::unordered_map<uint64_t, const std::string*> key_of_;                  // of jobs_, by number
  std::list<Cached> recent_;                                                 // the latest use first
  std::unordered_map<std::string_view, std::list<Cached>::iterator> cache_;  // keys are the list's
  size_t cached_bytes_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace quire
