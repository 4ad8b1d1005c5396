// The field that a setting is written to. Its type decides how the setting's text is read; the
// value that it holds when the setting is added is the default.
//
// Plain values; a target never outlives its field.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/config/values.h"

namespace quire::config {

// A whole number, in a field of any width: a count, a size in bytes, or a time.
struct Whole {
  enum class Unit { kCount, kBytes, kTime };
  using Field = std::variant<int32_t*, uint32_t*, int64_t*, uint64_t*, double*>;

  template <class T>
  Whole(T* count) : field(count) {}
  Whole(Bytes* bytes) : field(&bytes->value), unit(Unit::kBytes) {}
  Whole(Duration* time) : field(&time->milliseconds), unit(Unit::kTime) {}
  Whole(Field number, Unit its_unit, int64_t each) : field(number), unit(its_unit), scale(each) {}

  Field field;
  Unit unit = Unit::kCount;
  int64_t scale = 1;  // what the field holds for each one, byte or millisecond
};
inline Whole InBytes(Whole::Field bytes) { return {bytes, Whole::Unit::kBytes, 1}; }
inline Whole InMillis(Whole::Field millis) { return {millis, Whole::Unit::kTime, 1}; }
inline Whole InMicros(Whole::Field micros) { return {micros, Whole::Unit::kTime, 1000}; }

// A value of any type for each word that the setting accepts.
struct Choice {
  std::vector<std::string> words;
  std::function<size_t()> get;  // the index of the word
  std::function<void(size_t index)> set;
};
template <class T>
Choice OneOf(T* field, std::vector<std::pair<std::string, T>> values) {
  Choice choice;
  for (const auto& [word, value] : values) choice.words.push_back(word);
  choice.get = [field, values] {
    size_t index = 0;
    while (index + 1 < values.size() && values[index].second != *field) ++index;
    return index;
  };
  choice.set = [field, values](size_t index) { *field = values[index].second; };
  return choice;
}

using Target = std::variant<std::string*, std::vector<std::string>*, bool*, double*, Whole, Choice>;

}  // namespace quire::config
