// A program whose products may go to a library that stands in for cuBLASLt: it answers, in graphs
// and outside, and all that is asked, timed and taken was so before it was ready.
#include "kernels/cuda/cublaslt/fast_products.h"

#include <gtest/gtest.h>

#include "kernels/cuda/backend/workspace.h"
#include "tests/kernels/cuda/backend/step_bed.h"
#include "tests/kernels/cuda/cublaslt/fake_cublaslt.h"

namespace quire::kernels::cuda::test {
namespace {

class CudaFastProgram : public testing::Test {
 protected:
  CudaFastProgram() {
    LibraryPlaces places;
    places.named = QUIRE_FAKE_CUBLASLT_FOLDER "/good";
    std::string error;
    library_ = cublaslt::Library::Open(places, error);
    EXPECT_NE(library_, nullptr) << error;
    file_ = OpenLibraryFile(library_->path(), error);
    Order({});
  }
  void Order(const FakeCublasLtOrders& orders) const {
    reinterpret_cast<decltype(&fake_cublaslt_set)>(file_->Symbol("fake_cublaslt_set"))(&orders);
  }
  FakeCublasLtCounts Counts() const {
    FakeCublasLtCounts counts;
    reinterpret_cast<decltype(&fake_cublaslt_read)>(file_->Symbol("fake_cublaslt_read"))(&counts);
    return counts;
  }
  BedOptions Fast() const {
    BedOptions options;
    options.max_tokens = 32;
    options.cublaslt = library_;
    return options;
  }

  std::shared_ptr<const cublaslt::Library> library_;
  std::unique_ptr<SharedLibrary> file_;
};

TEST_F(CudaFastProgram, AnswersAndAsksNothingOnceItIsReady) {
  StepBed bed(Fast());
  ASSERT_EQ(bed.program().Failure(), "");
  const FakeCublasLtCounts ready = Counts();
  // Four shapes of product and the logits, of 1, 2, 4, 8, 16 and 32 rows; logits of at most 8.
  EXPECT_GT(ready.heuristics, 0);
  EXPECT_GT(ready.products, 0);
  const uint64_t memory_calls = bed.runtime().memory_calls();
  const auto answers = bed.Serve(RandomSequences(6, 20, 31), 8, {2, 6, 3});
  EXPECT_EQ(bed.program().Failure(), "");
  for (const Answer& answer : answers) EXPECT_EQ(answer.tokens.size(), 8u);
  EXPECT_EQ(bed.runtime().memory_calls(), memory_calls) << "memory is constant from ready on";
  const FakeCublasLtCounts served = Counts();
  EXPECT_EQ(served.heuristics, ready.heuristics);
  EXPECT_GT(served.products, ready.products) << "prefill goes to the library too";
}

// A start that is silent is taken for one that hangs.
TEST_F(CudaFastProgram, TellsWhileItTunes) {
  const auto told = [](BedOptions options) {
    int times = 0;
    options.start.graphs = false;
    options.progress = [&times](int64_t done, int64_t total) { times += done == total ? 1 : 0; };
    const StepBed bed(options);
    return times;
  };
  BedOptions own = Fast();
  own.cublaslt = nullptr;
  EXPECT_EQ(told(Fast()), told(own) + 6) << "1, 2, 4, 8, 16 and 32 rows";
}

// The first token of a prompt alone: sums in another order, the same meaning.
TEST_F(CudaFastProgram, GreedyTokensAreMostlyThoseOfOurOwnProducts) {
  std::vector<Sequence> sequences = RandomSequences(8, 20, 32);
  for (Sequence& sequence : sequences) sequence.temperature = 0.0f;
  BedOptions own = Fast();
  own.cublaslt = nullptr;
  StepBed slow(own);
  StepBed fast(Fast());
  const auto expected = slow.Serve(sequences, 1, {.alone = true});
  const auto got = fast.Serve(sequences, 1, {.alone = true});
  int same = 0;
  for (size_t i = 0; i < got.size(); ++i) same += got[i].tokens == expected[i].tokens ? 1 : 0;
  EXPECT_GE(same, 6);
  EXPECT_NE(got, expected) << "the library's sums are its own";
}

TEST_F(CudaFastProgram, WhereItIsSlowerBitsAreOurOwn) {
  Order({.algorithms = 0});
  BedOptions own = Fast();
  own.cublaslt = nullptr;
  const auto sequences = RandomSequences(4, 20, 33);
  StepBed slow(own);
  StepBed fast(Fast());
  EXPECT_EQ(fast.Serve(sequences, 6, {2, 10, 1}), slow.Serve(sequences, 6, {2, 10, 1}));
  EXPECT_EQ(Counts().products, 0);
}

TEST_F(CudaFastProgram, ItsWorkspaceIsPlanned) {
  BedOptions own = Fast();
  own.cublaslt = nullptr;
  StepBed slow(own);
  StepBed fast(Fast());
  EXPECT_EQ(fast.program().WorkspaceBytes() - slow.program().WorkspaceBytes(),
            static_cast<int64_t>(cublaslt::FastProducts::kWorkspaceBytes));
}

TEST_F(CudaFastProgram, ALibraryThatCannotBeginIsAFailureOfTheDevice) {
  Order({.create_code = 1});
  StepBed bed(Fast());
  EXPECT_NE(bed.program().Failure().find("cublasLtCreate says CUBLAS_STATUS_NOT_INITIALIZED"),
            std::string::npos);
}

}  // namespace
}  // namespace quire::kernels::cuda::test
