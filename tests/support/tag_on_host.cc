// The tag model of test binaries that link no other device.
#include "tests/support/tag_runner.h"

namespace quire::test {

std::unique_ptr<TagLoaded> MakeTagProgram(const TagRunnerOptions& options) {
  return std::make_unique<TagProgram>(options.cache, options.vocab_size);
}

}  // namespace quire::test
