// The tests, and with a rank's argument in front: a rank process of theirs.
#include <gtest/gtest.h>

#include "tests/worker/ranks/tag_rank.h"

int main(int argc, char** argv) {
  if (argc == 6) {
    if (const auto argument = quire::ParseRankProcess(argv[1])) {
      if (!quire::BecomeRankProcess(*argument)) return 1;
      const auto fault = quire::test::TagFault::FromArguments(argv + 2);
      return quire::ServeRankProcess(*argument, quire::test::TagBuilder(fault)).ok() ? 0 : 1;
    }
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
