// The part of the vocabulary that a tensor-parallel rank holds.
#pragma once

namespace quire::kernels {

// The ids of a rank: begin … begin + count − 1. Its logits have `width` columns, equally many on
// every rank; those from `count` on are padding.
struct VocabularySlice {
  int begin = 0;
  int count = 0;
  int width = 0;
};

constexpr VocabularySlice VocabularyOf(int vocab_size, int rank, int ranks) {
  const int width = (vocab_size + ranks - 1) / ranks;
  const int begin = width * rank < vocab_size ? width * rank : vocab_size;
  return {begin, vocab_size - begin < width ? vocab_size - begin : width, width};
}

}  // namespace quire::kernels
