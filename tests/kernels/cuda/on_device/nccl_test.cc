// NCCL itself, with the one rank that a machine of one GPU has: its library, its communicator, and
// a sum by our own kernel behind its all_gather.
#include "kernels/collectives/shared_group.h"
#include "kernels/cuda/nccl/nccl_communicator.h"
#include "tests/kernels/cuda/device_bed.h"
#include "tests/kernels/cuda/figures.h"

namespace quire::kernels::cuda::test {
namespace {

TEST(CudaNccl, OneRankGathersAndSums) {
  std::string error;
  const auto library = nccl::Library::Open(UsualPlaces("", SearchPath()), error);
  if (library == nullptr) {
    std::printf("not here: %s\n", error.c_str());
    GTEST_SKIP() << error;
  }
  DeviceBed bed;
  const auto group = SharedGroup::Create({1, 0}, error);
  ASSERT_NE(group, nullptr) << error;
  const auto host = group->Join(0);
  nccl::CommunicatorOptions options;
  options.library = library.get();
  options.host = host.get();
  options.runtime = &bed.runtime();
  options.stream = bed.stream();
  const auto ranks = nccl::NcclCommunicator::Create(options, error);
  ASSERT_NE(ranks, nullptr) << error;
  std::vector<float> values(1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) / 7.0f;
  auto* at = reinterpret_cast<float*>(ranks->Allocate(values.size() * sizeof(float)));
  bed.Check(bed.runtime().Copy(bed.stream(), at, values.data(), values.size() * sizeof(float)));
  EXPECT_EQ(ranks->AllReduceSum({at, values.size()}), CommFailure::kNone) << ranks->error();
  EXPECT_EQ(ranks->Barrier(), CommFailure::kNone) << ranks->error();
  runtime::EventId event{};
  bed.Check(bed.runtime().CreateEvent(&event));
  bed.Check(bed.runtime().Record(event, bed.stream()));
  EXPECT_EQ(ranks->Await(event), CommFailure::kNone) << ranks->error();
  EXPECT_EQ(bed.Get(at, values.size()), values);
  // The same in a graph, as steps have it.
  runtime::GraphId graph{};
  bed.Check(bed.runtime().BeginCapture(bed.stream()));
  EXPECT_EQ(ranks->AllReduceSum({at, values.size()}), CommFailure::kNone) << ranks->error();
  bed.Check(bed.runtime().EndCapture(bed.stream(), &graph));
  for (int replay = 0; replay < 3; ++replay) {
    bed.Check(bed.runtime().LaunchGraph(graph, bed.stream()));
    bed.Check(bed.runtime().Record(event, bed.stream()));
    EXPECT_EQ(ranks->Await(event), CommFailure::kNone) << ranks->error();
  }
  EXPECT_EQ(bed.Get(at, values.size()), values);
  bed.Check(bed.runtime().DestroyGraph(graph));
}

}  // namespace
}  // namespace quire::kernels::cuda::test
