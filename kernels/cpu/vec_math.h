// exp, tanh, sigmoid on sixteen lanes by our own polynomials: the same bits on every instruction
// set.
#pragma once

namespace quire::kernels::cpu {

// e^x, within 2 units in the last place; 0 below −87.336, held at e^88.02 above. NaN stays NaN.
// Cody–Waite reduction and the polynomial of Cephes' expf.
template <class V>
[[gnu::always_inline]] inline typename V::F Exp(typename V::F x) {
  using F = typename V::F;
  constexpr float kLow = -87.3365478515625f;
  const F low = V::Set(kLow);
  const F input = x;
  x = V::Max(low, V::Min(V::Set(88.02f), x));
  // Adding 1.5 · 2^23 rounds to an integer and leaves it in the low bits of the sum.
  const F magic = V::Set(12582912.0f);
  const F shifted = V::Fma(x, V::Set(1.44269504088896341f), magic);
  const F n = V::Sub(shifted, magic);
  F r = V::Fma(n, V::Set(-0.693359375f), x);
  r = V::Fma(n, V::Set(2.12194440e-4f), r);
  F p = V::Set(1.9875691500e-4f);
  p = V::Fma(p, r, V::Set(1.3981999507e-3f));
  p = V::Fma(p, r, V::Set(8.3334519073e-3f));
  p = V::Fma(p, r, V::Set(4.1665795894e-2f));
  p = V::Fma(p, r, V::Set(1.6666665459e-1f));
  p = V::Fma(p, r, V::Set(5.0000001201e-1f));
  p = V::Fma(p, V::Mul(r, r), V::Add(r, V::Set(1.0f)));
  const auto exponent =
      V::AddInt(V::template ShiftLeft<23>(V::AsInt(shifted)), V::SetInt(0x3f800000u));
  return V::SelectLess(input, low, V::Zero(), V::Mul(p, V::AsFloat(exponent)));
}

// x / (1 + e^−z). SiLU is z = x; GELU's tanh form is z = 2 √(2/π) (x + 0.044715 x³), since
// (1 + tanh u) / 2 = 1 / (1 + e^−2u).
template <class V>
[[gnu::always_inline]] inline typename V::F GatedBySigmoid(typename V::F x, typename V::F z) {
  return V::Div(x, V::Add(V::Set(1.0f), Exp<V>(V::Neg(z))));
}

template <class V>
[[gnu::always_inline]] inline typename V::F Silu(typename V::F x) {
  return GatedBySigmoid<V>(x, x);
}

// gpt-oss' gate: g · σ(1.702 g) · (u + 1), g at most 7 and u within ±7. In this order a NaN passes.
template <class V>
[[gnu::always_inline]] inline typename V::F ClampedGate(typename V::F gate, typename V::F up) {
  const auto limit = V::Set(7.0f);
  const auto g = V::Min(limit, gate);
  const auto u = V::Max(V::Neg(limit), V::Min(limit, up));
  const auto gated = GatedBySigmoid<V>(g, V::Mul(V::Set(1.702f), g));
  return V::Mul(V::Add(u, V::Set(1.0f)), gated);
}

template <class V>
[[gnu::always_inline]] inline typename V::F GeluTanh(typename V::F x) {
  const auto cubed = V::Mul(V::Mul(x, x), x);
  const auto inner = V::Fma(V::Set(0.044715f), cubed, x);
  return GatedBySigmoid<V>(x, V::Mul(V::Set(1.5957691216057308f), inner));
}

// Cephes' tanhf: an odd polynomial below 0.625, 1 − 2 / (e^2x + 1) above.
template <class V>
[[gnu::always_inline]] inline typename V::F Tanh(typename V::F x) {
  using F = typename V::F;
  const F a = V::Abs(x);
  const F s = V::Mul(x, x);
  F p = V::Set(-5.70498872745e-3f);
  p = V::Fma(p, s, V::Set(2.06390887954e-2f));
  p = V::Fma(p, s, V::Set(-5.37397155531e-2f));
  p = V::Fma(p, s, V::Set(1.33314422036e-1f));
  p = V::Fma(p, s, V::Set(-3.33332819422e-1f));
  const F small = V::Fma(V::Mul(p, s), x, x);
  const F one = V::Set(1.0f);
  const F e = Exp<V>(V::Add(a, a));
  const F positive = V::Sub(one, V::Div(V::Set(2.0f), V::Add(e, one)));
  const F large = V::SelectLess(x, V::Zero(), V::Neg(positive), positive);
  return V::SelectLess(a, V::Set(0.625f), small, large);
}

// cap · tanh(x / cap).
template <class V>
[[gnu::always_inline]] inline typename V::F SoftCap(typename V::F x, float cap) {
  return V::Mul(V::Set(cap), Tanh<V>(V::Div(x, V::Set(cap))));
}

}  // namespace quire::kernels::cpu
