// Tensors of the Open Inference Protocol as plain values: the content of a client's input and of an
// answer, in every encoding.
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

// An input as it came. Views are borrowed from its message.
struct InputTensor {
  using Strings = std::vector<std::string_view>;
  using Integers = std::vector<int64_t>;
  using Booleans = std::vector<uint8_t>;

  std::string_view name;
  std::string_view datatype;  // "BYTES", "BOOL", "INT32", …
  std::vector<int64_t> shape;
  // Little-endian values; each element of BYTES follows its length in 4 bytes. Without it, `values`
  // holds the data.
  std::optional<std::string_view> raw;
  std::variant<std::monostate, Strings, Integers, Booleans> values;
  // The list that held the values, where lists are named by type ("int64_contents").
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

  std::string_view name;  // from the table of outputs
  std::variant<Strings, Ids, Counts, Floats> values;

  std::string_view Datatype() const;  // BYTES, INT32, UINT32, FP32
  size_t Elements() const;            // its shape is [Elements()]
  // The value as raw contents hold it.
  std::string Raw() const;
};

// The tensors that every served model takes and returns.
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
