#include "worker/plan_report.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <thread>
#include <variant>
#include <vector>

#include "common/json/json.h"

namespace quire {
namespace {

constexpr int64_t kLeastContextShown = 512;
constexpr int64_t kBandwidthBufferBytes = int64_t{512} << 20;
constexpr int kBandwidthPasses = 4;

int64_t SourceBytes(const kernels::Weight& weight) {
  int64_t bytes = 0;
  for (const kernels::WeightSource& part : weight.parts) bytes += part.Bytes();
  return bytes;
}

// Whether any op but an embedding reads all of the weight.
bool ReadWhole(const kernels::StepProgram& program, kernels::WeightId id) {
  for (const kernels::Op& op : program.ops) {
    const auto* linear = std::get_if<kernels::LinearOp>(&op);
    const auto* logits = std::get_if<kernels::LogitsOp>(&op);
    if (linear != nullptr && linear->weight == id) return true;
    if (logits != nullptr && logits->head == id) return true;
  }
  return false;
}

json::Array Fits(const PlanReport& report) {
  json::Array fits;
  const load::MemoryRequest& request = report.request;
  const auto add = [&](int64_t tokens) {
    const int64_t pages =
        load::PagesPerSequence(request.kv, tokens, request.max_num_batched_tokens);
    const int64_t rows = std::min(report.plan.page_count / pages, request.max_num_seqs);
    json::Object line;
    line["context"] = tokens;
    line["sequences"] = rows;
    if (report.read_bytes_per_second > 0 && rows > 0) {
      line["tokens_per_second"] = DecodeTokensPerSecond(report, rows, tokens);
      line["tokens_per_second_alone"] = DecodeTokensPerSecond(report, 1, tokens);
    }
    fits.emplace_back(std::move(line));
  };
  for (int64_t tokens = kLeastContextShown; tokens < request.max_model_len; tokens *= 2) {
    add(tokens);
  }
  add(request.max_model_len);
  return fits;
}

}  // namespace

int64_t StepWeights::Of(int64_t rows) const {
  const double read = 1.0 - std::pow(1.0 - chosen_share, static_cast<double>(rows));
  return always + static_cast<int64_t>(static_cast<double>(experts) * read);
}

StepWeights WeightsOfStep(const kernels::StepProgram& program, int64_t weight_bytes) {
  double all = 0, rows_only = 0, experts = 0, chosen = 0;
  const auto bytes_of = [&program](kernels::WeightId id) {
    return static_cast<double>(SourceBytes(program.weights[static_cast<size_t>(id)]));
  };
  for (const kernels::Weight& weight : program.weights) {
    all += static_cast<double>(SourceBytes(weight));
  }
  for (const kernels::Op& op : program.ops) {
    if (const auto* moe = std::get_if<kernels::MoeOp>(&op)) {
      double own = 0;
      for (const auto& expert : moe->experts)
        own += bytes_of(expert.gate_up) + bytes_of(expert.down);
      experts += own;
      chosen += own * moe->rule.chosen / static_cast<double>(moe->ExpertCount());
    }
    const auto* embed = std::get_if<kernels::EmbedOp>(&op);
    if (embed == nullptr) continue;
    for (const kernels::WeightId id : {embed->table, embed->positions}) {
      if (id != kernels::kNoId && !ReadWhole(program, id)) rows_only += bytes_of(id);
    }
  }
  if (all <= 0) return {weight_bytes, 0, 0.0};
  const double packed = static_cast<double>(weight_bytes) / all;
  return {static_cast<int64_t>((all - rows_only - experts) * packed),
          static_cast<int64_t>(experts * packed), experts > 0 ? chosen / experts : 0.0};
}

int64_t CacheBytesOfToken(const kernels::KvLayout& kv) {
  kernels::KvShape shape{.block_size = kv.block_size,
                         .kv_heads = kv.kv_heads,
                         .head_dim = kv.head_dim,
                         .type = kv.type,
                         .latents = kv.latents};
  if (kv.full.kv_heads > 0) {
    shape.kv_heads = kv.full.kv_heads;
    shape.head_dim = kv.full.head_dim;
  }
  int64_t layers = 0;
  for (const kernels::KvGroup& group : kv.groups) {
    if (kv.kinds[static_cast<size_t>(group.kind)].window == 0) layers += group.layers;
  }
  return layers * kernels::SlotOf(shape).bytes / kv.block_size;
}

int64_t HeadBytesOfToken(const kernels::StepProgram& program, kernels::KvType type) {
  int64_t elements = 0;
  kernels::BufferId summed = kernels::kNoId;
  for (const kernels::Op& op : program.ops) {
    if (const auto* append = std::get_if<kernels::LatentAppendOp>(&op)) {
      elements += int64_t{append->heads} * append->query_dim;
    } else if (const auto* attention = std::get_if<kernels::LatentAttentionOp>(&op)) {
      summed = attention->out;
    } else if (const auto* heads = std::get_if<kernels::HeadLinearOp>(&op);
               heads != nullptr && heads->in == summed) {
      elements += program.buffers[static_cast<size_t>(heads->out)].width;
    }
  }
  return elements * program.ranks * kernels::KvElementBytes(type);
}

void DescribeProgram(const kernels::StepProgram& program, PlanReport& report) {
  report.head_bytes_per_token = HeadBytesOfToken(program, report.request.kv.type);
  report.step_weights = WeightsOfStep(program, report.plan.weight_bytes);
}

int64_t LongestContext(const load::MemoryRequest& request, int64_t pages, int64_t longest) {
  int64_t low = 0, high = longest;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    const bool fits =
        load::PagesPerSequence(request.kv, middle, request.max_num_batched_tokens) <= pages;
    if (fits) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

double DecodeTokensPerSecond(const PlanReport& report, int64_t rows, int64_t tokens) {
  // In decode a window's row reads the window, not the window and a chunk of prefill.
  const kernels::KvLayout& kv = report.request.kv;
  int64_t pages = load::PagesPerSequence(kv, tokens, /*chunk_tokens=*/1);
  if (kv.states.kind >= 0) {  // a state is read and written
    kernels::KvLayout without = kv;
    without.kinds.pop_back();
    pages = load::PagesPerSequence(without, tokens, /*chunk_tokens=*/1) + 2 * kv.states.groups;
  }
  const double kv_bytes = static_cast<double>(pages * report.request.kv.page_bytes);
  const double bytes =
      static_cast<double>(report.step_weights.Of(rows)) + static_cast<double>(rows) * kv_bytes;
  if (bytes <= 0) return 0;
  return static_cast<double>(rows) * report.read_bytes_per_second / bytes;
}

std::string PlanJson(const PlanReport& report) {
  const load::MemoryPlan& plan = report.plan;
  const load::MemoryRequest& request = report.request;
  const int64_t each_page = request.kv.page_bytes + request.draft_bytes_per_page;
  const int64_t left_pages = plan.page_count + plan.free_bytes / each_page;
  json::Object line;
  line["model"] = report.path;
  line["model_id"] = report.model_id;
  line["family"] = report.family;
  line["device"] = report.device;
  line["numerics"] = report.numerics;
  line["context"] = report.context;
  line["max_model_len"] = request.max_model_len;
  line["max_num_seqs"] = request.max_num_seqs;
  line["block_size"] = request.kv.block_size;
  line["workers"] = request.workers;
  line["usable_bytes"] = plan.usable_bytes;
  line["limited_by_cgroup"] = plan.limited_by_cgroup;
  line["weight_bytes"] = plan.weight_bytes;
  if (!report.quantisation.empty()) line["quantisation"] = report.quantisation;
  if (report.weights.quantised + report.weights.expanded > 0) {
    line["quantised_matrices"] = report.weights.quantised;
    line["expanded_matrices"] = report.weights.expanded;
  }
  line["workspace_bytes"] = plan.workspace_bytes;
  line["adapter_bytes"] = plan.adapter_bytes;
  line["draft_bytes"] = plan.draft_bytes;
  line["kv_bytes"] = plan.kv_bytes;
  line["constraint_bytes"] = plan.constraint_bytes;
  line["free_bytes"] = plan.free_bytes;
  line["page_bytes"] = request.kv.page_bytes;
  line["cache_bytes_per_token"] = CacheBytesOfToken(request.kv);
  if (request.kv.latents) line["head_bytes_per_token"] = report.head_bytes_per_token;
  line["kv_cache_dtype"] = kernels::KvTypeName(request.kv.type);
  if (request.kv.states.kind >= 0) {
    line["state_bytes"] = request.kv.states.bytes;
    line["state_pages"] = request.kv.states.groups;
    line["state_interval"] = request.kv.kinds.back().state_interval * request.kv.block_size;
  }
  line["page_count"] = plan.page_count;
  line["pages_per_sequence"] = plan.pages_per_sequence;
  line["largest_context"] = LongestContext(request, plan.page_count, report.context);
  line["largest_context_with_all_memory"] = LongestContext(request, left_pages, report.context);
  line["largest_batch"] = std::min(plan.page_count / plan.pages_per_sequence, request.max_num_seqs);
  line["largest_batch_with_all_memory"] = left_pages / plan.pages_per_sequence;
  line["step_weight_bytes"] = report.step_weights.Of(1);
  if (report.step_weights.experts > 0) line["expert_bytes"] = report.step_weights.experts;
  line["read_bytes_per_second"] = report.read_bytes_per_second;
  line["bandwidth_is_measured"] = report.bandwidth_is_measured;
  line["fits"] = Fits(report);
  return json::Serialize(line);
}

double MeasureReadBandwidth(const Clock& clock, int threads, int64_t most_bytes) {
  const int64_t bytes = std::min(kBandwidthBufferBytes, most_bytes);
  const auto words = static_cast<size_t>(bytes) / sizeof(uint64_t);
  const size_t each = words / static_cast<size_t>(std::max(threads, 1));
  if (each == 0) return 0;
  std::vector<uint64_t> buffer(words, 1);
  std::vector<uint64_t> sums(static_cast<size_t>(threads));
  double best = 0;
  for (int pass = 0; pass < kBandwidthPasses; ++pass) {
    const Micros begin = clock.Now();
    std::vector<std::thread> readers;
    for (size_t t = 0; t < sums.size(); ++t) {
      readers.emplace_back([&, t] {
        const auto first = buffer.begin() + static_cast<ptrdiff_t>(t * each);
        sums[t] += std::accumulate(first, first + static_cast<ptrdiff_t>(each), uint64_t{0});
      });
    }
    for (std::thread& reader : readers) reader.join();
    const Micros took = clock.Now() - begin;
    const double read = static_cast<double>(each * sums.size() * sizeof(uint64_t));
    // The sums are used, so that they are computed.
    const bool all = std::all_of(sums.begin(), sums.end(), [](uint64_t sum) { return sum > 0; });
    if (all && took > 0) best = std::max(best, read * kMicrosPerSecond / static_cast<double>(took));
  }
  return best;
}

}  // namespace quire
