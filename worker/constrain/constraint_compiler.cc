#include "worker/constrain/constraint_compiler.h"

#include <iterator>
#include <mutex>
#include <optional>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "common/sync.h"

namespace quire {
namespace {

constexpr uint32_t kQueueFullRetryMs = 1000;
constexpr char kField[] = "constraint";

// In the order of grammar::Fault; the last is no fault of the constraint.
constexpr const char* kCauses[] = {
    "unavailable", "malformed",       "unsupported",   "too_large", "too_deep",
    "too_slow",    "matches_nothing", "missing_token", "cancelled", "queue_full",
};
constexpr size_t kQueueFullCause = std::size(kCauses) - 1;
static_assert(kQueueFullCause == static_cast<size_t>(grammar::Fault::kCancelled) + 1);

std::vector<double> CompileBuckets() {
  return {0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5};
}

}  // namespace

struct SharedVocabulary::State {
  std::function<Made()> make;
  Mutex mutex;
  std::optional<Made> made ABSL_GUARDED_BY(mutex);
};

SharedVocabulary::SharedVocabulary(std::function<Made()> make) : state_(std::make_unique<State>()) {
  state_->make = std::move(make);
}

SharedVocabulary::~SharedVocabulary() = default;

const SharedVocabulary::Made& SharedVocabulary::Get() {
  MutexLock lock(state_->mutex);
  if (!state_->made.has_value()) {
    state_->made = state_->make();
    state_->make = nullptr;
    if (state_->made->ok()) bytes_.store((**state_->made)->MemoryBytes());
  }
  return *state_->made;
}

// What a background thread reads and writes; nothing else does until it is done.
struct ConstraintCompiler::Work {
  Constraint constraint;
  grammar::Limits limits;
  std::shared_ptr<SharedVocabulary> vocabulary;
  std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);
  std::optional<absl::StatusOr<std::shared_ptr<const grammar::Grammar>>> made;
  bool no_vocabulary = false;
  Micros took = 0;

  void Run(const Clock& clock) {
    const SharedVocabulary::Made& shared = vocabulary->Get();
    no_vocabulary = !shared.ok();
    if (no_vocabulary) {
      made = shared.status();
      return;
    }
    const Micros begin = clock.Now();
    made = grammar::Grammar::Compile(*shared, constraint, limits, cancelled.get());
    took = clock.Now() - begin;
  }
};

struct ConstraintCompiler::Series {
  explicit Series(Metrics& metrics)
      : compile(metrics.AddHistogram({"quire_worker_constraint_compile_seconds",
                                      "Time to compile a constraint to a grammar."},
                                     CompileBuckets())),
        hits(metrics.AddCounter({"quire_worker_constraint_cache_hits_total",
                                 "Constraints whose grammar was kept, or is being compiled."})),
        misses(metrics.AddCounter(
            {"quire_worker_constraint_cache_misses_total", "Constraints that were compiled."})),
        entries(metrics.AddGauge({"quire_worker_constraint_cache_entries", "Grammars kept."})),
        bytes(metrics.AddGauge({"quire_worker_constraint_cache_bytes", "Memory of these."})),
        waiting(metrics.AddGauge(
            {"quire_worker_constraints_compiling", "Requests that wait for their grammar."})),
        vocabulary(metrics.AddGauge({"quire_worker_constraint_vocabulary_bytes",
                                     "Memory of the vocabulary that grammars share; 0: it is not "
                                     "made yet."})) {
    for (const char* cause : kCauses) {
      refused.push_back(&metrics.AddCounter({"quire_worker_constraints_refused_total",
                                             "Requests whose constraint was refused.",
                                             {{"cause", cause}}}));
    }
  }

  Histogram& compile;
  Counter& hits;
  Counter& misses;
  Gauge& entries;
  Gauge& bytes;
  Gauge& waiting;
  Gauge& vocabulary;
  std::vector<Counter*> refused;  // by cause
};

ConstraintCompiler::ConstraintCompiler(const ConstraintOptions& options,
                                       std::shared_ptr<SharedVocabulary> vocabulary,
                                       Executor& executor, Background& background, Metrics& metrics)
    : options_(options),
      vocabulary_(std::move(vocabulary)),
      executor_(executor),
      background_(background),
      series_(std::make_unique<Series>(metrics)) {
  metrics.BeforeRender([shared = vocabulary_, &gauge = series_->vocabulary] {
    gauge.Set(static_cast<double>(shared->bytes()));
  });
}

ConstraintCompiler::~ConstraintCompiler() {
  *alive_ = false;
  for (const auto& [key, job] : jobs_) job.work->cancelled->store(true);
}

void ConstraintCompiler::Prepare() {
  background_.Run([vocabulary = vocabulary_] { vocabulary->Get(); }, [] {});
}

// Every part that changes the grammar, the source last.
std::string ConstraintCompiler::KeyOf(const Constraint& constraint) {
  std::string key;
  key.reserve(constraint.source.size() + constraint.whitespace_pattern.size() + 16);
  key += static_cast<char>(constraint.kind);
  key += static_cast<char>((constraint.compact ? 1 : 0) + (constraint.closed ? 2 : 0));
  key += std::to_string(constraint.whitespace_pattern.size()) + ":";
  key += constraint.whitespace_pattern;
  key += constraint.source;
  return key;
}

ConstraintCompiler::Started ConstraintCompiler::Start(const Constraint& constraint,
                                                      const std::string& tenant,
                                                      std::function<void(Result)> done) {
  std::string key = KeyOf(constraint);
  if (const auto found = cache_.find(key); found != cache_.end()) {
    series_->hits.Add();
    recent_.splice(recent_.begin(), recent_, found->second);
    CountRefusal(found->second->result);
    return {0, found->second->result};
  }
  const uint64_t number = ++last_number_;
  const auto running = jobs_.find(key);
  if (running != jobs_.end()) {
    series_->hits.Add();
    running->second.waiting.emplace(number, std::move(done));
    key_of_.emplace(number, &running->first);
  } else {
    auto work = std::make_shared<Work>();
    work->constraint = constraint;
    work->limits = options_.limits;
    work->vocabulary = vocabulary_;
    const bool queued = background_.RunFor(
        {tenant, constraint.source.size(), work->cancelled},
        [work, &clock = executor_.clock()] { work->Run(clock); },
        [this, alive = alive_, key, work] {
          if (*alive) Finish(key, work);
        });
    if (!queued) {
      series_->refused[kQueueFullCause]->Add();
      Refused refused{{}, RefusalCode::kQueueFull, "", "", kQueueFullRetryMs};
      refused.message = "the queue of constraints that wait to be compiled is full";
      return {0, {nullptr, std::move(refused)}};
    }
    series_->misses.Add();
    const auto job = jobs_.try_emplace(std::move(key)).first;
    job->second.work = std::move(work);
    job->second.waiting.emplace(number, std::move(done));
    key_of_.emplace(number, &job->first);
  }
  series_->waiting.Set(static_cast<double>(waiting()));
  return {number, {}};
}

void ConstraintCompiler::Leave(uint64_t number) {
  const auto found = key_of_.find(number);
  if (found == key_of_.end()) return;
  const auto job = jobs_.find(*found->second);
  QUIRE_CHECK(job != jobs_.end() && job->second.waiting.erase(number) == 1);
  if (job->second.waiting.empty()) {
    job->second.work->cancelled->store(true);
    jobs_.erase(job);
  }
  key_of_.erase(found);
  series_->waiting.Set(static_cast<double>(waiting()));
}

void ConstraintCompiler::Finish(const std::string& key, const std::shared_ptr<Work>& work) {
  const auto found = jobs_.find(key);
  // All who waited have left; an equal constraint that came later has a job of its own.
  if (found == jobs_.end() || found->second.work != work) return;
  QUIRE_CHECK(work->made.has_value());
  const Result result = ResultOf(*work);
  const bool lasts = !work->no_vocabulary;
  Job job = std::move(found->second);
  jobs_.erase(found);
  if (lasts) Keep(key, result);
  if (lasts) series_->compile.Observe(static_cast<double>(work->took) / kMicrosPerSecond);
  for (const auto& [number, done] : job.waiting) key_of_.erase(number);
  series_->waiting.Set(static_cast<double>(waiting()));
  for (const auto& [number, done] : job.waiting) {
    CountRefusal(result);
    done(result);
  }
}

void ConstraintCompiler::CountRefusal(const Result& result) {
  if (result.grammar == nullptr) series_->refused[static_cast<size_t>(result.fault)]->Add();
}

ConstraintCompiler::Result ConstraintCompiler::ResultOf(const Work& work) const {
  Result result;
  result.took = work.took;
  if (work.made->ok()) {
    result.grammar = **work.made;
    return result;
  }
  result.fault = grammar::FaultOf(work.made->status());
  result.refused.code = work.no_vocabulary ? RefusalCode::kUnsupported : RefusalCode::kInvalid;
  result.refused.field = kField;
  std::string why = StatusMessage(work.made->status());
  const std::string prefix = std::string(kField) + ": ";
  if (work.no_vocabulary) why = prefix + "this model's tokens cannot be constrained: " + why;
  result.refused.message = why.starts_with(prefix) ? why : prefix + why;
  return result;
}

void ConstraintCompiler::Keep(const std::string& key, const Result& result) {
  size_t bytes = sizeof(Cached) + 2 * key.size() + result.refused.message.size();
  if (result.grammar != nullptr) bytes += result.grammar->MemoryBytes();
  if (bytes > options_.max_cached_bytes || options_.max_cached == 0) return;
  recent_.push_front({key, result, bytes});
  cache_.emplace(recent_.front().key, recent_.begin());
  cached_bytes_ += bytes;
  while (cache_.size() > options_.max_cached || cached_bytes_ > options_.max_cached_bytes) Drop();
  series_->entries.Set(static_cast<double>(cache_.size()));
  series_->bytes.Set(static_cast<double>(cached_bytes_));
}

void ConstraintCompiler::Drop() {
  Cached& oldest = recent_.back();
  cached_bytes_ -= oldest.bytes;
  cache_.erase(oldest.key);
  recent_.pop_back();
}

}  // namespace quire
