#include "kernels/ops.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace quire::kernels {
namespace {

// Checks one op; keeps the first complaint.
class OpChecker {
 public:
  OpChecker(const StepProgram& program, std::string& error)
      : program_(program), vocabulary_(VocabularyOf(program)), error_(error) {}

  void operator()(const EmbedOp& op) {
    if (op.table == kNoId && op.positions == kNoId) Complain("neither table nor positions");
    if (op.table != kNoId) Matrix(op.table, vocabulary_.count, Width(op.out), "table");
    if (op.positions != kNoId) Matrix(op.positions, kAnyRows, Width(op.out), "positions");
    Rows(op.out, false);
  }
  void operator()(const NormOp& op) {
    Same(Width(op.in), Width(op.out), "width of in and out");
    if (op.pieces < 1 || Width(op.in) % op.pieces != 0) {
      return Complain(std::to_string(Width(op.in)) + " elements do not divide into " +
                      std::to_string(op.pieces) + " pieces");
    }
    Vector(op.weight, Width(op.in) / op.pieces, "weight");
    Vector(op.bias, Width(op.in) / op.pieces, "bias");
    SameRows(op.in, op.out);
  }
  void operator()(const SliceGateOp& op) {
    if (op.first < 0 || op.first + Width(op.gate) > Width(op.with)) {
      Complain("elements from " + std::to_string(op.first) + " on end after " +
               std::to_string(Width(op.with)));
    }
    Rows(op.gate, false);
    Rows(op.with, false);
  }
  void operator()(const LinearOp& op) {
    const bool gated = LinearOp::IsGated(op.activation);
    const int64_t rows = int64_t{Width(op.out)} * (gated ? 2 : 1);
    Matrix(op.weight, rows, Width(op.in), "weight", /*may_be_ordered=*/true);
    Vector(op.bias, rows, "bias");
    if (gated && op.scale != 1.0f) Complain("a gated product has a scale");
    SameRows(op.in, op.out);
  }
  void operator()(const RopeAppendOp& op) {
    Same(Width(op.qkv), (op.heads + 2 * op.kv_heads) * op.head_dim, "width of qkv");
    const bool one = op.norm == HeadNorm::kRms;
    Vector(op.q_norm, int64_t{one ? 1 : op.heads} * op.head_dim, "q_norm");
    Vector(op.k_norm, int64_t{one ? 1 : op.kv_heads} * op.head_dim, "k_norm");
    if (op.norm == HeadNorm::kWhole) {
      Same(Width(op.squares), 2, "width of squares");
      if (op.norm_heads < op.heads || op.norm_kv_heads < op.kv_heads) {
        Complain("heads of all ranks are fewer than this rank's");
      }
    }
    if (op.growth.interval < 1) Complain("an interval of growth is at least 1");
    if (op.kv_heads > 0) Heads(op.heads, op.kv_heads, op.head_dim, op.layer);
    if (op.rope != kNoId) RopeOf(op.rope, op.head_dim);
    Rows(op.qkv, false);
  }
  void operator()(const AttentionOp& op) {
    if (Width(op.qkv) != op.heads * op.head_dim) {
      Same(Width(op.qkv), (op.heads + 2 * op.kv_heads) * op.head_dim, "width of qkv");
    }
    Same(Width(op.out), op.heads * op.head_dim, "width of out");
    Heads(op.heads, op.kv_heads, op.head_dim, op.layer);
    Vector(op.sinks, op.heads, "sinks");
    Rows(op.out, false);
  }
  void operator()(const HeadSquaresOp& op) {
    Same(Width(op.qkv), (op.heads + 2 * op.kv_heads) * op.head_dim, "width of qkv");
    Same(Width(op.out), 2, "width of out");
    Rows(op.qkv, false);
    Rows(op.out, false);
  }
  void operator()(const GatherRowsOp& op) {
    Same(Width(op.in), Width(op.out), "width of in and out");
    Rows(op.in, false);
    Rows(op.out, true);
  }
  void operator()(const LogitsOp& op) {
    Same(Width(op.out), vocabulary_.width, "width of out");
    Matrix(op.head, vocabulary_.count, Width(op.in), "head");
    Vector(op.bias, vocabulary_.count, "bias");
    Rows(op.in, true);
    Rows(op.out, true);
  }
  void operator()(const SampleOp& op) {
    Same(Width(op.logits), vocabulary_.width, "width of logits");
    Rows(op.logits, true);
  }
  void operator()(const AllReduceOp& op) { Width(op.buffer); }
  void operator()(const LatentAppendOp& op) {
    Same(Width(op.queries), int64_t{op.heads} * op.query_dim, "width of queries");
    Same(Width(op.latents), op.rank + op.rope_dim, "width of latents");
    Vector(op.norm, op.rank, "norm");
    Latents(op.heads, op.rank, op.rope_dim, op.layer);
    if (op.rope_dim < 2 || op.rope_dim > op.query_dim) Complain("a query has no part that turns");
    RopeOf(op.rope, op.rope_dim);
    if (error_.empty()) Same(program_.ropes[op.rope].rotary_dim, op.rope_dim, "rotary_dim");
    Rows(op.queries, false);
    Rows(op.latents, false);
  }
  void operator()(const HeadLinearOp& op) {
    const auto heads = static_cast<int64_t>(op.weights.size());
    const Weight* first = heads == 0 ? nullptr : Find(op.weights.front(), "weight");
    if (first == nullptr) return Complain("no heads");
    const int64_t rest = Width(op.in) / heads - first->cols;
    if (rest < 0) Complain("heads of in are narrower than their weights");
    Same(Width(op.in), heads * (first->cols + rest), "width of in");
    Same(Width(op.out), heads * (first->rows + rest), "width of out");
    for (const WeightId id : op.weights) Matrix(id, first->rows, first->cols, "weight");
    SameRows(op.in, op.out);
  }
  void operator()(const LatentAttentionOp& op) {
    Same(Width(op.queries), int64_t{op.heads} * (op.rank + op.rope_dim), "width of queries");
    Same(Width(op.out), int64_t{op.heads} * op.rank, "width of out");
    Latents(op.heads, op.rank, op.rope_dim, op.layer);
    Rows(op.queries, false);
    Rows(op.out, false);
  }
  void operator()(const MoeOp& op) {
    const int width = Width(op.in);
    const auto count = int64_t{op.ExpertCount()};
    const auto own = static_cast<int64_t>(op.experts.size());
    if (own < 1 || op.first_expert < 0 || op.first_expert + own > count) {
      return Complain("experts that the router does not know");
    }
    Same(Width(op.out), width, "width of in and out");
    Rows(op.in, false);
    Rows(op.out, false);
    Vector(op.router, count * width, "router");
    Vector(op.router_bias, count, "router bias");
    Vector(op.selection_bias, count, "selection bias");
    Vector(op.expert_scales, count, "expert scales");
    if (op.router_in != kNoId) {
      Same(Width(op.router_in), width, "width of what the router reads");
      Rows(op.router_in, false);
    }
    Rule(op.rule, static_cast<int>(count));
    if (!error_.empty()) return;
    const Weight* first = Find(op.experts.front().down, "down");
    const int64_t inner = first == nullptr ? 0 : first->cols;
    const int halves = LinearOp::IsGated(op.activation) ? 2 : 1;
    for (const MoeOp::Expert& expert : op.experts) {
      Matrix(expert.gate_up, halves * inner, width, "gate and up");
      Matrix(expert.down, width, inner, "down");
      Vector(expert.gate_up_bias, halves * inner, "bias of gate and up");
      Vector(expert.down_bias, width, "bias of down");
    }
  }
  void operator()(const CausalConvOp& op) {
    const StateShape state = StateOf(op.layer);
    const int channels = Width(op.out);
    Same(Width(op.in), op.gated ? 3 * channels : channels, "width of in");
    Same(state.channels, channels, "channels of the state");
    Vector(op.weight, int64_t{state.taps} * channels, "weight");
    Vector(op.bias, channels, "bias");
    if (op.gated && op.silu) Complain("gated and with an activation");
    if (state.taps < 2 || state.taps > kMostTaps) {
      Complain(std::to_string(state.taps) + " taps, served are 2 to " + std::to_string(kMostTaps));
    }
    Rows(op.in, false);
    Rows(op.out, false);
  }
  void operator()(const RecurrenceOp& op) {
    const StateShape state = StateOf(op.layer);
    const bool delta = op.kind == RecurrenceOp::Kind::kGatedDelta;
    Same(Width(op.in), 2 * op.key_heads * op.key_dim + op.value_heads * op.value_dim,
         "width of in");
    Same(Width(op.gates), (delta ? 2 : 1) * op.value_heads, "width of gates");
    Same(Width(op.factors), 2 * op.value_heads, "width of factors");
    Same(Width(op.out), op.value_heads * op.value_dim, "width of out");
    Same(state.heads, op.value_heads, "heads of the state");
    Same(state.key_dim, op.key_dim, "key_dim of the state");
    Same(state.value_dim, op.value_dim, "value_dim of the state");
    if (op.key_heads <= 0 || op.value_heads % op.key_heads != 0) {
      Complain(std::to_string(op.value_heads) + " value heads do not divide into " +
               std::to_string(op.key_heads) + " groups");
    }
    if (op.decay == kNoId || op.bias == kNoId) Complain("neither decay nor bias may be absent");
    for (const WeightId id : {op.decay, op.bias, op.skip}) Vector(id, op.value_heads, "numbers");
    for (const BufferId id : {op.in, op.gates, op.factors, op.out}) Rows(id, false);
  }
  void operator()(const GatedNormOp& op) {
    const int width = Width(op.in);
    Same(Width(op.out), width, "width of in and out");
    Same(Width(op.gate), width, "width of the gate");
    if (op.group <= 0 || width % op.group != 0) {
      return Complain("groups of " + std::to_string(op.group) + " do not fill a width of " +
                      std::to_string(width));
    }
    const Weight* weight = Find(op.weight, "weight");
    if (weight != nullptr) {
      Vector(op.weight, weight->cols == op.group ? op.group : width, "weight");
    }
    SameRows(op.in, op.out);
    SameRows(op.in, op.gate);
  }
  void operator()(const LoraOp& op) {
    if (op.in == op.out) Complain("in and out are one buffer");
    if (op.slices.empty()) Complain("no slices");
    for (const LoraOp::Slice& slice : op.slices) {
      const auto count = static_cast<int>(program_.lora_targets.size());
      if (slice.target < 0 || slice.target >= count) {
        return Complain("target " + std::to_string(slice.target) + " does not exist");
      }
      const LoraTarget& target = program_.lora_targets[static_cast<size_t>(slice.target)];
      Same(target.col_count, Width(op.in), "columns of a target");
      if (target.first_col < 0 || target.first_col + target.col_count > target.cols) {
        Complain("columns of a target lie beyond its module's");
      }
      for (const LoraTarget::Run& run : target.row_runs) {
        if (run.begin < 0 || run.count < 1 || run.begin + run.count > target.rows) {
          Complain("rows of a target lie beyond its module's");
        }
      }
      if (slice.column < 0 || slice.column + target.Width() > Width(op.out)) {
        Complain("a slice ends after out");
      }
    }
    Rows(op.in, false);
    Rows(op.out, false);
  }
  void operator()(const ActivateOp& op) {
    if (op.activation == LinearOp::Activation::kNone) Complain("no activation");
    const int width = Width(op.out);
    Same(Width(op.in), LinearOp::IsGated(op.activation) ? 2 * width : width, "width of in");
    SameRows(op.in, op.out);
  }
  void operator()(const CopyOp& op) {
    if (op.column < 0 || op.column + Width(op.in) > Width(op.out)) Complain("it ends after out");
    SameRows(op.in, op.out);
  }
  void operator()(const InputOp& op) {
    if (op.column < 0 || op.column + Width(op.out) > program_.input_width) {
      Complain("it ends after the inputs, which are " + std::to_string(program_.input_width) +
               " wide");
    }
    Rows(op.out, false);
  }
  void operator()(const GateOp& op) {
    Same(Width(op.out), Width(op.in), "width of in and out");
    Same(Width(op.gate), Width(op.in), "width of the gate");
    SameRows(op.in, op.out);
    SameRows(op.in, op.gate);
  }

 private:
  static constexpr int64_t kAnyRows = -1;

  void Complain(const std::string& what) {
    if (error_.empty()) error_ = what;
  }
  void Same(int64_t got, int64_t wanted, const char* what) {
    if (got == wanted) return;
    Complain(std::string(what) + " is " + std::to_string(got) + ", not " + std::to_string(wanted));
  }
  bool Has(BufferId id) {
    if (id >= 0 && static_cast<size_t>(id) < program_.buffers.size()) return true;
    Complain("buffer " + std::to_string(id) + " does not exist");
    return false;
  }
  int Width(BufferId id) { return Has(id) ? program_.buffers[id].width : 0; }
  void Rows(BufferId id, bool sampled) {
    if (Has(id) && program_.buffers[id].sampled_rows_only != sampled) {
      Complain("buffer " + program_.buffers[id].name +
               (sampled ? " must hold sampled rows" : " must hold all tokens"));
    }
  }
  void SameRows(BufferId a, BufferId b) {
    if (Has(a)) Rows(b, program_.buffers[a].sampled_rows_only);
  }
  const Weight* Find(WeightId id, const char* what) {
    if (id >= 0 && static_cast<size_t>(id) < program_.weights.size()) return &program_.weights[id];
    Complain(std::string(what) + " " + std::to_string(id) + " does not exist");
    return nullptr;
  }
  void Matrix(WeightId id, int64_t rows, int64_t cols, const char* what,
              bool may_be_ordered = false) {
    const Weight* weight = Find(id, what);
    if (weight == nullptr) return;
    const std::string name = std::string(what) + " " + weight->name;
    int64_t part_rows = 0;
    for (const WeightSource& part : weight->parts) {
      part_rows += part.rows;
      Same(part.cols, weight->cols, (name + ": columns of a part").c_str());
      Same(part.cols % BlockElements(part.type), 0,
           (name + ": columns beyond whole blocks").c_str());
    }
    Same(part_rows, weight->rows, (name + ": rows of all parts").c_str());
    if (rows != kAnyRows) Same(weight->rows, rows, (name + ": rows").c_str());
    Same(weight->cols, cols, (name + ": columns").c_str());
    Orders(*weight, name, may_be_ordered);
  }
  // The product of a weight puts its inputs in one order, which permutes them.
  void Orders(const Weight& weight, const std::string& name, bool may_be_ordered) {
    const int32_t* const order = weight.parts.empty() ? nullptr : weight.parts.front().order;
    for (const WeightSource& part : weight.parts) {
      const bool same = (part.order == nullptr) == (order == nullptr) &&
                        (order == nullptr || part.cols != weight.cols ||
                         std::equal(order, order + weight.cols, part.order));
      if (!same) Complain(name + ": its parts have different orders of inputs");
    }
    if (order == nullptr) return;
    if (!may_be_ordered) Complain(name + ": only linear ops put their inputs in an order");
    std::vector<bool> seen(static_cast<size_t>(weight.cols));
    for (int64_t j = 0; j < weight.cols; ++j) {
      const int32_t input = order[j];
      if (input < 0 || input >= weight.cols || seen[static_cast<size_t>(input)]) {
        return Complain(name + ": its order holds an input twice, or one that does not exist");
      }
      seen[static_cast<size_t>(input)] = true;
    }
  }
  void Vector(WeightId id, int64_t size, const char* what) {
    if (id == kNoId) return;
    const Weight* weight = Find(id, what);
    if (weight == nullptr) return;
    int64_t elements = 0;
    for (const WeightSource& part : weight->parts) {
      elements += part.rows * part.cols;
      if (BlockElements(part.type) != 1) Complain(std::string(what) + " is a quantised vector");
    }
    Same(elements, size, (std::string(what) + " " + weight->name + ": elements").c_str());
  }
  void Rule(const RoutingRule& rule, int experts) {
    if (experts < 1 || experts > kMaxExperts || rule.chosen < 1 || rule.chosen > experts ||
        rule.chosen > kMaxChosenExperts) {
      Complain(std::to_string(rule.chosen) + " of " + std::to_string(experts) +
               " experts cannot be chosen");
    } else if (rule.groups < 1 || experts % rule.groups != 0 || rule.groups_used < 1 ||
               rule.groups_used > rule.groups || rule.best_of_group < 1 ||
               rule.best_of_group > experts / rule.groups ||
               experts / rule.groups * rule.groups_used < rule.chosen) {
      Complain(std::to_string(rule.groups_used) + " of " + std::to_string(rule.groups) +
               " groups do not hold " + std::to_string(rule.chosen) + " experts");
    }
  }
  void Heads(int heads, int kv_heads, int head_dim, int layer) {
    if (kv_heads <= 0 || heads <= 0 || heads % kv_heads != 0) {
      Complain(std::to_string(heads) + " heads do not divide into " + std::to_string(kv_heads) +
               " groups");
    }
    if (layer < 0 || static_cast<size_t>(layer) >= program_.layer_windows.size() ||
        program_.layer_windows[layer] == kNoKeys) {
      return Complain("attention layer " + std::to_string(layer) + " does not exist");
    }
    const bool full = program_.layer_windows[layer] == 0 && program_.full.kv_heads > 0;
    Same(kv_heads, full ? program_.full.kv_heads : program_.kv_heads, "kv_heads");
    Same(head_dim, full ? program_.full.head_dim : program_.head_dim, "head_dim");
  }
  void Latents(int heads, int rank, int rope_dim, int layer) {
    if (!program_.latents || rank < 1) Complain("pages hold no latents");
    Heads(heads, 1, rank + rope_dim, layer);
    if (error_.empty() && program_.layer_windows[layer] != 0) Complain("latents have no window");
  }
  StateShape StateOf(int layer) {
    if (layer >= 0 && static_cast<size_t>(layer) < program_.states.size()) {
      return program_.states[static_cast<size_t>(layer)];
    }
    Complain("recurrent layer " + std::to_string(layer) + " does not exist");
    return {};
  }
  void RopeOf(int id, int head_dim) {
    if (id < 0 || static_cast<size_t>(id) >= program_.ropes.size()) {
      return Complain("rope " + std::to_string(id) + " does not exist");
    }
    const Rope& rope = program_.ropes[id];
    if (rope.rotary_dim > head_dim || rope.rotary_dim % 2 != 0) {
      Complain("rotary_dim " + std::to_string(rope.rotary_dim) + " must be even and at most " +
               std::to_string(head_dim));
    }
    Same(static_cast<int64_t>(rope.inverse_frequency.size()), rope.rotary_dim / 2,
         "count of frequencies");
  }

  const StepProgram& program_;
  const VocabularySlice vocabulary_;
  std::string& error_;
};

}  // namespace

const char* OpName(const Op& op) {
  constexpr const char* kNames[] = {
      "embed",        "norm",       "linear",        "rope_append", "attention",
      "gather_rows",  "logits",     "sample",        "all_reduce",  "moe",
      "head_squares", "slice_gate", "latent_append", "head_linear", "latent_attention",
      "causal_conv",  "recurrence", "gated_norm",    "gate",        "lora",
      "activate",     "copy",       "input"};
  return kNames[op.index()];
}

std::string CheckProgram(const StepProgram& program) {
  if (program.ranks < 1 || program.rank < 0 || program.rank >= program.ranks) {
    return "rank " + std::to_string(program.rank) + " of " + std::to_string(program.ranks) +
           " does not exist";
  }
  if (program.features != kNoId) {
    const auto count = static_cast<BufferId>(program.buffers.size());
    if (program.features < 0 || program.features >= count) return "features do not exist";
    if (program.buffers[program.features].sampled_rows_only) return "features are of all tokens";
  }
  for (size_t i = 0; i < program.ops.size(); ++i) {
    std::string error;
    std::visit(OpChecker(program, error), program.ops[i]);
    if (!error.empty()) {
      return "op " + std::to_string(i) + " (" + OpName(program.ops[i]) + "): " + error;
    }
  }
  return "";
}

}  // namespace quire::kernels
