// One function's call in a dialect, as items of Lark: the shape of the description's example with
// the function's name and its arguments in it.
//
// One owner. The example has a call of f with a = 1.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/dialect/dialect.h"
#include "common/dialect/lark.h"
#include "common/dialect/tool_types.h"
#include "common/json/json.h"

namespace quire::dialect {

class CallWriter {
 public:
  // `marks`: at which calls may begin. All of it outlives the writer.
  CallWriter(const Dialect& dialect, std::span<const std::string_view> marks, Lark& lark);

  // What is around calls.
  const CallList& list() const { return list_; }
  // What every call begins with.
  std::string_view begin() const { return begin_; }

  // `function`: {name, parameters, strict}. `skip`: a beginning of the call that is written
  // already.
  absl::StatusOr<std::string> Write(const json::Object& function, const ToolTypes& types,
                                    std::string_view skip);

 private:
  struct Parameter {
    std::string name;
    json::Value schema;  // with the definitions that it refers to
    TypeSet types = 0;
    bool required = false;
  };

  absl::StatusOr<std::vector<Parameter>> ParametersOf(const json::Object& function,
                                                      const ToolTypes& types) const;
  // `key`: it names a parameter, otherwise a function.
  bool MayName(std::string_view name, bool key) const;
  std::string Tagged(const std::vector<Parameter>& parameters);
  std::string TaggedParameter(const Parameter& parameter);
  std::string TaggedText(const Parameter& parameter, std::string_view tail);
  std::string Literals(const std::vector<Parameter>& parameters);
  std::string Braced(const Parameter& parameter);
  void WriteBraced();
  std::string BracedText();

  const Dialect& dialect_;
  const std::span<const std::string_view> marks_;
  Lark& lark_;
  CallList list_;
  // The example in parts: name and arguments are between them. `swapped_`: the arguments come
  // first.
  std::string begin_, middle_, end_;
  bool swapped_ = false;
  std::string braced_list_, braced_object_;  // rules, once they are written
};

}  // namespace quire::dialect
