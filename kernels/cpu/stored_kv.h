// Keys and values as pages hold them, read as floats.
#pragma once

#include <cstddef>
#include <type_traits>

#include "kernels/kv_layout.h"

namespace quire::kernels::cpu {

// Sixteen codes of e4m3: exponent and mantissa where float32 has them, too small by 2^120.
template <class V>
typename V::F LoadFp8(const std::byte* p) {
  const auto code = V::template ShiftLeft<20>(V::LoadSignedBytes(p));
  return V::Mul(V::AsFloat(V::And(code, V::SetInt(0x87f00000u))), V::Set(0x1p120f));
}

// Sixteen elements of keys or values at `from`, without their scale.
template <class V, KvType kType>
typename V::F LoadStored(const std::byte* from) {
  if constexpr (kType == KvType::kF32) return V::Load(reinterpret_cast<const float*>(from));
  if constexpr (kType == KvType::kBF16) return V::LoadBFloat(from);
  if constexpr (kType == KvType::kF16) return V::LoadHalf(from);
  if constexpr (kType == KvType::kFp8) return LoadFp8<V>(from);
}

// Calls function(integral_constant type).
template <class Function>
void WithKvType(KvType type, Function&& function) {
  switch (type) {
    case KvType::kF32:
      return function(std::integral_constant<KvType, KvType::kF32>{});
    case KvType::kBF16:
      return function(std::integral_constant<KvType, KvType::kBF16>{});
    case KvType::kF16:
      return function(std::integral_constant<KvType, KvType::kF16>{});
    case KvType::kFp8:
      return function(std::integral_constant<KvType, KvType::kFp8>{});
  }
}

}  // namespace quire::kernels::cpu
