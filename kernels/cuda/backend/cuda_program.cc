#include "kernels/cuda/backend/cuda_program.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace quire::kernels::cuda {

CudaProgram::CudaProgram(const StepProgram& program, DeviceProgram lowered,
                         const ProgramOptions& options, runtime::Runtime& runtime,
                         const CudaOptions& device)
    : runtime_(runtime),
      heap_(runtime),
      lowered_(std::move(lowered)),
      rules_(RulesOf(program, options)),
      kv_(options.kv),
      vocab_size_(program.vocab_size),
      vocabulary_(VocabularyOf(program)),
      ranks_(program.ranks),
      max_samples_(options.max_samples),
      communicator_(program.ranks > 1 ? options.communicator : nullptr),
      pool_(runtime) {
  Check(runtime_.CreateStream(&stream_));
  if (options.max_loras > 0) adapters_.plan = PlanAdapters(lowered_, options.max_lora_rank);
  const Workspace workspace = PlanWorkspace(program, lowered_, options);
  Check(weights_.Load(program, lowered_, options, runtime_, heap_));
  weight_bytes_ = heap_.bytes();
  Reserve(workspace, options);
  ReserveFlights(workspace, options);
  if (ranks_ > 1) ReserveExchange(workspace, device.nccl.get());
  if (device.cublaslt != nullptr) ReserveFastProducts(*device.cublaslt);
  Check(heap_.error());
  if (!error_.empty()) return;
  LoadAngles(program.ropes, workspace);
  TuneProducts(options);
  PrepareSteps(options, device.start);
  if (error_.empty()) Check(pool_.MapPages(device.start.margin_bytes));
  if (error_.empty() && pool_.page_count() == 0) {
    Check("no memory is left on the device for a page of keys and values");
  }
}

CudaProgram::~CudaProgram() {
  // Steps in flight use the memory. A collective whose peers are gone ends by an abort alone.
  if (exchange_ != nullptr) {
    Finish();
    if (!error_.empty()) exchange_->Abort();
  }
  runtime_.Synchronize(stream_);
  DropGraphs();
}

void CudaProgram::DropGraphs() {
  runtime::GraphId unfinished{};
  if (capturing_ && runtime_.EndCapture(stream_, &unfinished).empty()) {
    runtime_.DestroyGraph(unfinished);
  }
  capturing_ = false;
  for (const DecodeGraph& graph : graphs_.all()) runtime_.DestroyGraph(graph.graph);
  graphs_.Clear();
}

void CudaProgram::PrepareSteps(const ProgramOptions& options, const StartOptions& start) {
  const int most = std::min({options.max_rows, options.max_tokens, options.max_samples});
  const int spans = LargestShape(rules_, {1, 1, rules_.blocks * rules_.block_size}).max_spans;
  const std::vector<StepShape> shapes = DecodeGraphs::Shapes(most, spans, rules_);
  if (start.warm_up) {
    for (const StepShape& shape : shapes) {
      WarmUp(shape);
      TellAlive(options);
    }
    // Each width of a product's tiles is a kernel, which a device loads when it first runs.
    for (const int tokens : {16, 32, 64, kWarmUpTokens}) {
      if (tokens <= most && tokens < kWarmUpTokens) continue;  // a bucket has that width
      StepShape prefill = ShapeOfBucket(std::min(tokens, options.max_tokens), 1, rules_);
      prefill.samples = std::min(prefill.samples, options.max_samples);
      prefill.decode_tiles = 0;
      prefill.prefill_tiles = 1;
      prefill.full_prefill_tiles = rules_.full_heads_per_kv_head > 0 ? 1 : 0;
      prefill.changes = 1;  // padding changes no table, and a short context has room for few
      WarmUp(prefill);
      TellAlive(options);
      if (tokens >= options.max_tokens) break;
    }
    WarmUpExperts();
    WarmUpAdapters();
    if (exchange_ != nullptr) WarmUpLargestSum(options.max_tokens);
    WarmUpSamples();
  }
  if (!start.graphs || !Queues()) return;
  const int64_t wait_micros = exchange_ != nullptr ? communicator_->wait_micros() : 0;
  const bool shorter = exchange_ != nullptr && options.capture_wait_micros > 0;
  if (shorter) communicator_->SetDeadline(options.capture_wait_micros);
  for (const StepShape& shape : shapes) {
    Capture(shape);
    TellAlive(options);
  }
  if (shorter) communicator_->SetDeadline(wait_micros);
}

void CudaProgram::TellAlive(const ProgramOptions& options) const {
  if (options.progress) options.progress(weight_bytes_, weight_bytes_);
}

// One run of a step of padding alone, its collectives among it.
void CudaProgram::WarmUp(const StepShape& shape) {
  if (!error_.empty()) return;
  step_ = RunningStep{};
  step_.flight = &flights_[0];
  LayOut(StepBatch{}, shape);
  step_.samples = shape.samples;
  BeginTokens();
  RunSteps(0, lowered_.steps.size());
  Finish();
  step_ = RunningStep{};
}

// NCCL connects its ranks again, and allocates memory for it, with the first message that is large
// enough for another of its algorithms.
void CudaProgram::WarmUpLargestSum(int tokens) {
  step_ = RunningStep{};
  step_.shape.tokens = tokens;
  for (const DeviceStep& step : lowered_.steps) {
    const auto* sum = std::get_if<SumStep>(&step);
    if (sum == nullptr || !error_.empty()) continue;
    Do(*sum);
    break;
  }
  Finish();
  step_ = RunningStep{};
}

// Of a greedy row and of one that is drawn, over the logits of the runs before: its two ways
// through memory. And a copy of a page.
void CudaProgram::WarmUpSamples() {
  const int32_t token = 0;
  const PageCopy copy{rules_.spare_page, rules_.spare_page + 1};
  for (const float temperature : {0.0f, 1.0f}) {
    SampleRow row;
    row.temperature = temperature;
    StepBatch batch;
    batch.copies = std::span(&copy, 1);
    batch.sampled_tokens = std::span(&token, 1);
    batch.sample_rows = std::span(&row, 1);
    step_ = RunningStep{};
    step_.batch = &batch;
    step_.flight = &flights_[0];
    step_.flight->packed_used = step_.flight->copies_used = false;
    CopyPages(batch.copies);
    LayOut(StepBatch{}, ShapeOfBucket(1, 1, rules_));
    step_.samples = 1;
    for (const DeviceStep& step : lowered_.steps) {
      if (const auto* sample = std::get_if<SampleOp>(&step); sample != nullptr) Do(*sample);
    }
    Finish();
    step_ = RunningStep{};
  }
}

void CudaProgram::Capture(const StepShape& shape) {
  if (!error_.empty()) return;
  step_ = RunningStep{};
  step_.shape = shape;
  step_.places = InputPlaces(shape);
  step_.samples = shape.samples;
  Check(runtime_.BeginCapture(stream_));
  capturing_ = error_.empty();
  if (capturing_) BeginTokens();
  RunSteps(0, lowered_.steps.size());
  step_ = RunningStep{};
  if (!error_.empty()) return DropGraphs();
  capturing_ = false;
  DecodeGraph graph{shape, {}};
  Check(runtime_.EndCapture(stream_, &graph.graph));
  if (error_.empty()) graphs_.Add(graph);
}

void CudaProgram::Reserve(const Workspace& workspace, const ProgramOptions& options) {
  for (const int64_t bytes : workspace.buffer_bytes) {
    buffers_.push_back(heap_.New<std::byte>(static_cast<size_t>(bytes)));
  }
  for (const int64_t floats : workspace.angle_floats) {
    angles_.push_back({heap_.New<float>(static_cast<size_t>(floats)), 0});
  }
  input_words_ = workspace.input_words;
  inputs_ = heap_.New<int32_t>(static_cast<size_t>(input_words_));
  tables_ = heap_.New<int32_t>(static_cast<size_t>(workspace.state_words));
  if (tables_ != nullptr) last_samples_ = tables_ + workspace.state_words - rules_.slots;
  samples_.capacity = static_cast<size_t>(workspace.sample_bytes);
  samples_.device = heap_.New<std::byte>(samples_.capacity);
  samples_.outputs = heap_.New<SampleOutput>(static_cast<size_t>(options.max_samples));
  samples_.slices = heap_.New<std::byte>(static_cast<size_t>(workspace.slice_bytes));
  samples_.said = heap_.New<std::byte>(static_cast<size_t>(workspace.message_bytes));
  samples_.heard = heap_.New<std::byte>(static_cast<size_t>(workspace.heard_bytes));
  product_workspace_ = heap_.New<float>(workspace.product_bytes / sizeof(float));
  attention_workspace_ = heap_.New<float>(workspace.attention_bytes / sizeof(float));
  product_counters_ = heap_.New<uint32_t>(workspace.product_counters);
  attention_counters_ = heap_.New<uint32_t>(workspace.attention_counters);
  moe_.bytes = heap_.New<std::byte>(workspace.moe_bytes);
  moe_.counters = heap_.New<uint32_t>(workspace.moe_counters);
  ReserveHeadTables();
  adapters_.inner = heap_.New<uint16_t>(static_cast<size_t>(workspace.adapter_bytes) / 2);
  // The spare pages are workspace: no sequence ever has them.
  workspace_bytes_ = heap_.bytes() - weight_bytes_ + workspace.spare_bytes;
  adapters_.held.resize(static_cast<size_t>(options.max_loras));
  adapters_.memory = heap_.New<std::byte>(adapters_.held.size() * adapters_.plan.slot_bytes);
  Check(pool_.Reserve(kv_.page_bytes, options.page_count, workspace.spare_bytes / kv_.page_bytes));
  if (!heap_.error().empty() || !error_.empty()) return;
  Check(runtime_.Fill(stream_, product_counters_, 0, 4 * workspace.product_counters));
  if (attention_counters_ != nullptr) {
    Check(runtime_.Fill(stream_, attention_counters_, 0, 4 * workspace.attention_counters));
  }
  if (moe_.counters != nullptr) {
    Check(runtime_.Fill(stream_, moe_.counters, 0, 4 * workspace.moe_counters));
  }
}

void CudaProgram::ReserveFlights(const Workspace& workspace, const ProgramOptions& options) {
  for (StepFlight& flight : flights_) {
    flight.inputs = heap_.NewMapped<int32_t>(static_cast<size_t>(workspace.input_words));
    flight.packed = heap_.NewMapped<std::byte>(samples_.capacity);
    flight.page_copies = heap_.NewMapped<int32_t>(2 * kMaxPageCopies);
    // Prompt logprobs may ask for one of every token.
    const int most = std::max(options.max_tokens, options.max_samples);
    flight.outputs = heap_.NewMapped<SampleOutput>(static_cast<size_t>(most));
    Check(runtime_.CreateEvent(&flight.done));
  }
}

// The angle is the float32 product of position and frequency, as models are trained with; its
// cosine and sine are taken in double.
void CudaProgram::LoadAngles(const std::vector<Rope>& ropes, const Workspace& workspace) {
  for (size_t i = 0; i < ropes.size(); ++i) {
    const Rope& rope = ropes[i];
    angles_[i].rotary_dim = rope.rotary_dim;
    if (rope.rotary_dim == 0) continue;
    const int half = rope.rotary_dim / 2;
    const int64_t positions = workspace.angle_floats[i] / rope.rotary_dim;
    std::vector<float> table(static_cast<size_t>(workspace.angle_floats[i]));
    for (int64_t p = 0; p < positions; ++p) {
      float* row = table.data() + p * rope.rotary_dim;
      for (int j = 0; j < half; ++j) {
        const double angle = static_cast<float>(p) * static_cast<float>(rope.inverse_frequency[j]);
        row[j] = static_cast<float>(std::cos(angle) * rope.attention_factor);
        row[half + j] = static_cast<float>(std::sin(angle) * rope.attention_factor);
      }
    }
    Check(runtime_.Copy(stream_, angles_[i].table, table.data(), 4 * table.size()));
    Finish();
  }
}

void CudaProgram::Finish() {
  if (!error_.empty()) return;
  Check(exchange_ != nullptr ? exchange_->Finish() : runtime_.Synchronize(stream_));
}

DeviceMemoryUse CudaProgram::DeviceMemory() {
  size_t free = 0;
  size_t total = 0;
  if (error_.empty()) Check(runtime_.MemoryInfo(&free, &total));
  return {static_cast<int64_t>(total), static_cast<int64_t>(free)};
}

void CudaProgram::PoisonPage(int32_t page) {
  Check(runtime_.Fill(stream_, pool_.begin() + page * kv_.page_bytes, 0xff,
                      static_cast<size_t>(kv_.page_bytes)));
  Finish();
}

void CudaProgram::ReserveFastProducts(const cublaslt::Library& library) {
  constexpr size_t kBytes = cublaslt::FastProducts::kWorkspaceBytes;
  auto* workspace = heap_.New<std::byte>(kBytes);
  workspace_bytes_ += static_cast<int64_t>(kBytes);
  fast_products_ = std::make_unique<cublaslt::FastProducts>(library, runtime_, stream_, workspace);
  Check(fast_products_->error());
}

void CudaProgram::TuneProducts(const ProgramOptions& options) {
  if (fast_products_ == nullptr || !error_.empty()) return;
  fast_products_->SetTuning(true);
  for (int rows = 1, last = 0; last < options.max_tokens; rows *= 2) {
    last = std::min(rows, options.max_tokens);
    step_ = RunningStep{};
    step_.shape.tokens = last;
    step_.samples = std::min(last, options.max_samples);
    for (const DeviceStep& step : lowered_.steps) {
      if (const auto* product = std::get_if<ProductStep>(&step)) Do(*product);
      if (const auto* logits = std::get_if<LogitsOp>(&step)) MultiplyHead(*logits);
    }
    Finish();
    TellAlive(options);
  }
  step_ = RunningStep{};
  fast_products_->SetTuning(false);
}

void CudaProgram::ReserveExchange(const Workspace& workspace, const nccl::Library* library) {
  RankExchangeOptions options;
  options.host = communicator_;
  options.library = library;
  options.stream = stream_;
  options.most_elements = workspace.shared_bytes / static_cast<int64_t>(sizeof(float));
  options.gathered = samples_.heard;
  options.before_abort = [this] { DropGraphs(); };
  exchange_ = std::make_unique<RankExchange>(options, runtime_, heap_);
  Check(exchange_->error());
}

}  // namespace quire::kernels::cuda
