// Tensors of the Open Inference Protocol as plain values: what a client's input holds, and what an
// answer is made of, whichever encoding they travel in.
//
// Pure values and functions; any thread. Inputs are hostile: types, shapes, lengths and ids are
// checked, and an error names the tensor.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "router/core/result.h"

namespace quire::oip {

// An input as it came. Views are borrowed from the message that it came in.
struct InputTensor {
  using Strings = std::vector<std::string_view>;
  using Integers = std::vector<int64_t>;
  using Booleans = std::vector<uint8_t>;

  std::string_view name;
  std::string_view datatype;  // "BYTES", "BOOL", "INT32", …
  std::vector<int64_t> shape;
  // Little-endian values; each element of BYTES behind its length in 4 bytes. Without it `values`.
  std::optional<std::string_view> raw;
  std::variant<std::monostate, Strings, Integers, Booleans> values;
  // The list that the values came in, where lists are named by type ("int64_contents").
  std::string_view contents;
};

// Of shape [1] or [1, 1].
Result<std::string_view> OneString(const InputTensor& tensor);
Result<bool> OneBool(const InputTensor& tensor);
// Of shape [n] or [1, n], n ≥ 1, of any integer type, each id in [0, 2^31).
Result<std::vector<TokenId>> TokenIds(const InputTensor& tensor);

struct OutputTensor {
  using Strings = std::vector<std::string>;
  using Ids = std::vector<TokenId>;
  using Counts = std::vector<uint32_t>;
  using Floats = std::vector<float>;

  std::string_view name;  // of the table of outputs
  std::variant<Strings, Ids, Counts, Floats> values;

  std::string_view Datatype() const;  // BYTES, INT32, UINT32, FP32
  size_t Elements() const;            // its shape is [Elements()]
  // As raw contents hold it.
  std::string Raw() const;
};

// What every served model takes and gives.
struct TensorFacts {
  std::string_view name;
  std::string_view datatype;
  int64_t elements;  // −1: any number
};
const std::vector<TensorFacts>& InputFacts();
const std::vector<TensorFacts>& OutputFacts();
// "text_input, input_ids, …"
std::string NamesOf(const std::vector<TensorFacts>& facts);

}  // namespace quire::oip
