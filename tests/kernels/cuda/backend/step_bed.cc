#include "tests/kernels/cuda/backend/step_bed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <thread>
#include <utility>

#include "common/check.h"

namespace quire::kernels::cuda::test {
namespace {

constexpr int kBlock = 16;

}  // namespace

std::vector<Sequence> RandomSequences(size_t count, size_t longest, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Sequence> sequences(count);
  for (Sequence& sequence : sequences) {
    sequence.prompt.resize(1 + random() % longest);
    for (int32_t& token : sequence.prompt) token = static_cast<int32_t>(random() % 97);
    sequence.temperature = random() % 3 == 0 ? 0.0f : 0.9f;
    sequence.seed = random();
  }
  return sequences;
}

// A sequence on its slot.
struct StepBed::Row {
  const Sequence* sequence = nullptr;
  Answer answer;
  int slot = 0;
  std::vector<std::vector<int32_t>> pages;  // by group
  std::vector<std::span<const int32_t>> tables;
  std::vector<TableChange> untold;
  size_t launched = 0;  // tokens that have been asked for
};

// A step in flight: which rows it samples.
struct StepBed::Step {
  std::vector<size_t> members;
};

StepBed::StepBed(const BedOptions& options, std::unique_ptr<emulate::EmulatedRuntime> runtime) {
  for (int rank = 0; rank < options.ranks; ++rank) {
    Rank& one = ranks_.emplace_back();
    one.model = std::make_unique<quire::test::TinyProgram>(
        5, rank, options.ranks,
        quire::test::TinyShape{
            .experts = options.experts, .hybrid = options.hybrid, .latents = options.latents});
    auto device = rank == 0 ? std::move(runtime) : nullptr;
    if (device == nullptr) {
      device = std::make_unique<emulate::EmulatedRuntime>(static_cast<uint64_t>(3 + rank),
                                                          emulate::Checks::kNone);
    }
    one.runtime = device.get();
    one.backend = MakeCudaBackend(std::move(device), {"emulated", "emulated grid", options.start,
                                                      options.nccl, options.cublaslt});
  }
  const Backend& backend = *ranks_.front().backend;
  load_.kv = DealLayers(model().layer_windows, backend.PageShape(model(), kBlock), model().states);
  load_.page_count = options.pages;
  load_.max_tokens = options.max_tokens;
  load_.max_rows = options.max_rows;
  load_.max_samples = options.max_rows;
  load_.max_positions = options.max_positions;
  load_.capture_wait_micros = options.capture_wait_micros;
  load_.progress = options.progress;
  if (options.ranks > 1) {
    std::string error;
    group_ = SharedGroup::Create(
        {options.ranks, static_cast<size_t>(backend.EstimateSharedBytes(model(), load_))}, error);
    QUIRE_CHECK_MSG(group_ != nullptr, error.c_str());
    for (int rank = 0; rank < options.ranks; ++rank) {
      ranks_[static_cast<size_t>(rank)].communicator = group_->Join(rank);
      ranks_[static_cast<size_t>(rank)].communicator->SetDeadline(options.wait_micros);
    }
  }
  OnEach([this](Rank& rank) {
    ProgramOptions load = load_;
    load.communicator = rank.communicator.get();
    rank.program = rank.backend->Load(rank.model->program, load);
  });
}

bool StepBed::Works() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& rank) { return rank.program->Failure().empty(); });
}

void StepBed::SetDeadline(int64_t wait_micros) {
  for (Rank& rank : ranks_) rank.communicator->SetDeadline(wait_micros);
}

// They leave together, as they came.
StepBed::~StepBed() {
  OnEach([](Rank& rank) { rank.program.reset(); });
}

void StepBed::OnEach(const std::function<void(Rank& rank)>& body) {
  std::vector<std::thread> threads;
  for (size_t rank = 1; rank < ranks_.size(); ++rank) {
    threads.emplace_back([&, rank] { body(ranks_[rank]); });
  }
  body(ranks_.front());
  for (std::thread& thread : threads) thread.join();
}

void StepBed::GivePages(Row& row, size_t index, std::mt19937_64& random,
                        std::vector<int32_t>& free_pages) {
  std::shuffle(free_pages.begin(), free_pages.end(), random);
  row.pages.assign(load_.kv.groups.size(), {});
  const int blocks = (load_.max_positions + kBlock - 1) / kBlock;
  row.slot = static_cast<int>(index);
  for (int group = 0; group < static_cast<int>(row.pages.size()); ++group) {
    for (int block = 0; block < blocks; ++block) {
      const int32_t page = free_pages.back();
      free_pages.pop_back();
      row.pages[static_cast<size_t>(group)].push_back(page);
      row.untold.push_back({row.slot, group, block, page});
    }
  }
  for (const std::vector<int32_t>& table : row.pages) row.tables.emplace_back(table);
}

// Rows that have been asked for nothing yet are prefilled. `ahead`: tokens are those that the
// device keeps, else those that have been collected.
void StepBed::Launch(std::vector<Row>& rows, const std::vector<size_t>& members, Step& step,
                     bool ahead) {
  std::vector<int32_t> tokens, positions, sampled, slots;
  std::vector<BatchRow> batch_rows;
  std::vector<TableChange> changes;
  std::vector<SampleRow> samples;
  for (const size_t member : members) {
    Row& row = rows[member];
    const std::vector<int32_t>& prompt = row.sequence->prompt;
    const bool prefill = row.launched == 0;
    const int first = prefill ? 0 : static_cast<int>(prompt.size() + row.launched) - 1;
    const int count = prefill ? static_cast<int>(prompt.size()) : 1;
    batch_rows.push_back({static_cast<int>(tokens.size()), count, first, row.tables, row.slot});
    if (prefill) {
      tokens.insert(tokens.end(), prompt.begin(), prompt.end());
    } else {
      tokens.push_back(ahead ? LastSampleOf(row.slot) : row.answer.tokens.back());
    }
    for (int i = 0; i < count; ++i) positions.push_back(first + i);
    changes.insert(changes.end(), row.untold.begin(), row.untold.end());
    row.untold.clear();
    sampled.push_back(static_cast<int32_t>(tokens.size()) - 1);
    slots.push_back(row.slot);
    SampleRow& how = samples.emplace_back();
    how.temperature = row.sequence->temperature;
    how.seed = row.sequence->seed;
    how.logprobs = 3;
    how.output_index = row.launched++;
  }
  StepBatch batch;
  batch.tokens = tokens;
  batch.positions = positions;
  batch.rows = batch_rows;
  batch.table_changes = changes;
  batch.sampled_tokens = sampled;
  batch.sample_rows = samples;
  batch.sample_slots = slots;
  step.members = members;
  if (before_launch_) before_launch_(launches_);
  ++launches_;
  // Over host memory ranks wait for each other within a launch.
  OnEach([&batch](Rank& rank) { rank.program->Launch(batch); });
}

void StepBed::Collect(std::vector<Row>& rows, const Step& step) {
  std::vector<std::vector<SampleOutput>> of_ranks(ranks_.size());
  OnEach([&](Rank& rank) {
    auto& outputs = of_ranks[static_cast<size_t>(&rank - ranks_.data())];
    outputs.resize(step.members.size());
    rank.program->Collect(outputs);
  });
  const std::vector<SampleOutput>& outputs = of_ranks.front();
  for (size_t rank = 1; rank < ranks_.size() && Works(); ++rank) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      EXPECT_EQ(of_ranks[rank][i].token, outputs[i].token) << "of rank " << rank;
      EXPECT_EQ(std::bit_cast<uint32_t>(of_ranks[rank][i].logprob),
                std::bit_cast<uint32_t>(outputs[i].logprob))
          << "of rank " << rank;
    }
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    Answer& answer = rows[step.members[i]].answer;
    answer.tokens.push_back(outputs[i].token);
    answer.logprob_bits.push_back(std::bit_cast<uint32_t>(outputs[i].logprob));
    for (int best = 0; best < outputs[i].top_count; ++best) {
      answer.logprob_bits.push_back(std::bit_cast<uint32_t>(outputs[i].top_logprobs[best]));
    }
  }
}

std::vector<Answer> StepBed::Serve(const std::vector<Sequence>& sequences, size_t tokens,
                                   const Way& way) {
  std::mt19937_64 random(way.seed);
  const int64_t pages = way.pages > 0 ? way.pages : load_.page_count;
  std::vector<int32_t> free_pages(static_cast<size_t>(pages));
  std::iota(free_pages.begin(), free_pages.end(), 0);
  std::vector<size_t> slots(static_cast<size_t>(load_.max_rows));
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), random);
  std::vector<Row> rows(sequences.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].sequence = &sequences[i];
    GivePages(rows[i], slots[i], random, free_pages);
  }
  std::vector<Step> in_flight;
  for (bool more = true; more;) {
    std::vector<size_t> members;
    std::vector<size_t> open;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i].launched == tokens) continue;
      open.push_back(i);
      if (static_cast<int>(random() % 10) < way.of_ten) members.push_back(i);
    }
    more = !open.empty();
    if (members.empty() && more) members = {open[random() % open.size()]};
    if (way.alone && more) members = {open.front()};
    std::shuffle(members.begin(), members.end(), random);
    if (more) Launch(rows, members, in_flight.emplace_back(), way.in_flight > 1);
    while (static_cast<int>(in_flight.size()) >= way.in_flight || (!more && !in_flight.empty())) {
      Collect(rows, in_flight.front());
      in_flight.erase(in_flight.begin());
    }
  }
  std::vector<Answer> answers;
  for (Row& row : rows) answers.push_back(std::move(row.answer));
  return answers;
}

}  // namespace quire::kernels::cuda::test
