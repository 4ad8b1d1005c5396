// How the sum of a block of the int8 class becomes part of an output (int8_form.h has the rule).
#pragma once

#include "kernels/cpu/int8_scales.h"

namespace quire::kernels::cpu {

// acc after a block without halves whose sum is S.
template <class V, Int8Form kForm>
[[gnu::always_inline]] inline typename V::F Int8Fold(typename V::F acc, typename V::I sum,
                                                     const Int8Scales<V>& s, Int8Row x) {
  auto value = V::ToFloat(sum);
  if constexpr (kForm.zero) {
    value = V::Fma(s.minimum, V::Set(static_cast<float>(x.Int(kInt8Sum))), value);  // exact
  }
  acc = V::Fma(value, V::Mul(s.scale, V::Set(x.Float(kInt8Dx))), acc);
  if constexpr (kForm.minimum) acc = V::Fma(s.minimum, V::Set(x.Float(kInt8DxSum)), acc);
  return acc;
}

// acc after a half with a scale of its own whose sum is S.
template <class V>
[[gnu::always_inline]] inline typename V::F Int8FoldOwn(typename V::F acc, typename V::I sum,
                                                        typename V::F scale, Int8Row x) {
  return V::Fma(V::ToFloat(sum), V::Mul(scale, V::Set(x.Float(kInt8Dx))), acc);
}

// kDotsInWords: −Σq of a half, in words of the k that one word of a product adds up.
template <class V>
[[gnu::always_inline]] inline typename V::I WordSums(Int8Row x, int half) {
  return V::SetInt(static_cast<uint32_t>(x.Int(kInt8HalfSums + half)));
}

// acc after a block with halves; `value` is their scaled sum.
template <class V, Int8Form kForm>
[[gnu::always_inline]] inline typename V::F Int8FoldHalves(typename V::F acc, typename V::F value,
                                                           const Int8Scales<V>& s, Int8Row x) {
  const auto dx = V::Set(x.Float(kInt8Dx));
  acc = V::Fma(value, V::Mul(s.scale, dx), acc);
  if constexpr (kForm.minimum) {
    typename V::F minima;  // −u: exact
    if constexpr (V::kDotsInWords) {
      auto sum = V::DotOfWords(WordSums<V>(x, 0), V::AsInt(s.half_minimum[0]));
      V::DotWords(sum, WordSums<V>(x, 1), V::AsInt(s.half_minimum[1]));
      minima = V::ToFloat(sum);
    } else {
      const auto first = V::Set(static_cast<float>(x.Int(kInt8HalfSums)));
      const auto second = V::Set(static_cast<float>(x.Int(kInt8HalfSums + 1)));
      minima = V::Fma(second, s.half_minimum[1], V::Fma(first, s.half_minimum[0], V::Zero()));
    }
    acc = V::Fma(minima, V::Mul(s.minimum, dx), acc);
  }
  return acc;
}

}  // namespace quire::kernels::cpu
