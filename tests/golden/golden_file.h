// What tests/golden/models/make_model_goldens.py wrote about a model: tokens, and logits of some
// rows.
//
// Plain values; read from files of this repository, so anything malformed ends the test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quire::golden {

struct GoldenRow {
  int position = 0;
  double gap = 0.0;             // between the two best logits
  double bfloat16_error = 0.0;  // largest difference of the reference's own bfloat16 run
  std::vector<float> logits;
};

struct Golden {
  int prompt_length = 0;
  int64_t max_model_len = 0;    // that the model is loaded for; 0: its own
  std::vector<int32_t> tokens;  // the prompt and what the reference continued it with
  std::vector<GoldenRow> rows;
};

Golden ReadGolden(const std::string& path);

// Where this repository's files are: where it was built, or the environment's QUIRE_SOURCE_FOLDER
// for a test binary that was carried elsewhere.
std::string SourceFolder();

// The folders of tests/golden/models in order of name: every model with a golden.json.
std::vector<std::string> Fixtures();

// The whole of a file of this repository.
std::string ReadFile(const std::string& path);

}  // namespace quire::golden
