// The arithmetic of sampling, the same on host and device: exp and log by fma polynomials, Philox
// noise, ordered keys, fixed-point masses.
//
// Pure functions. Every device must return the same bits, so fma is the only library function that
// is called here.
#pragma once

#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define QUIRE_SAMPLING_FUNCTION __host__ __device__ __forceinline__
#else
#define QUIRE_SAMPLING_FUNCTION [[gnu::always_inline]] inline
#endif

namespace quire::kernels::sampling {

QUIRE_SAMPLING_FUNCTION float FusedMultiplyAdd(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
QUIRE_SAMPLING_FUNCTION double FusedMultiplyAdd(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}
QUIRE_SAMPLING_FUNCTION uint32_t BitsOf(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return bits;
}
QUIRE_SAMPLING_FUNCTION float FloatOf(uint32_t bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}

// e^x for x ≤ 0, within 2 units in the last place; 0 below −87.336. Cephes' expf.
QUIRE_SAMPLING_FUNCTION float ExpOfNegative(float x) {
  const float low = -87.3365478515625f;
  const float clamped = x < low ? low : x;
  const float shifted = FusedMultiplyAdd(clamped, 1.44269504088896341f, 12582912.0f);
  const float n = shifted - 12582912.0f;
  float r = FusedMultiplyAdd(n, -0.693359375f, clamped);
  r = FusedMultiplyAdd(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = FusedMultiplyAdd(p, r, 1.3981999507e-3f);
  p = FusedMultiplyAdd(p, r, 8.3334519073e-3f);
  p = FusedMultiplyAdd(p, r, 4.1665795894e-2f);
  p = FusedMultiplyAdd(p, r, 1.6666665459e-1f);
  p = FusedMultiplyAdd(p, r, 5.0000001201e-1f);
  p = FusedMultiplyAdd(p, r * r, r + 1.0f);
  const float power = FloatOf((BitsOf(shifted) << 23) + 0x3f800000u);
  const float y = p * power;
  return x < low ? 0.0f : y;
}

// ln x for normal x > 0, within 1e-15 relative to max(1, |ln x|). The mantissa is brought to
// [√½, √2); ln m = 2 artanh((m − 1) / (m + 1)) by its series.
QUIRE_SAMPLING_FUNCTION double Log(double x) {
  uint64_t bits;
  memcpy(&bits, &x, 8);
  int64_t exponent = static_cast<int64_t>(bits >> 52) - 1023;
  bits = (bits & 0x000fffffffffffffull) | 0x3ff0000000000000ull;
  double m;
  memcpy(&m, &bits, 8);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    exponent += 1;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double p = 1.0 / 21.0;
  p = FusedMultiplyAdd(p, z, 1.0 / 19.0);
  p = FusedMultiplyAdd(p, z, 1.0 / 17.0);
  p = FusedMultiplyAdd(p, z, 1.0 / 15.0);
  p = FusedMultiplyAdd(p, z, 1.0 / 13.0);
  p = FusedMultiplyAdd(p, z, 1.0 / 11.0);
  p = FusedMultiplyAdd(p, z, 1.0 / 9.0);
  p = FusedMultiplyAdd(p, z, 1.0 / 7.0);
  p = FusedMultiplyAdd(p, z, 1.0 / 5.0);
  p = FusedMultiplyAdd(p, z, 1.0 / 3.0);
  p = FusedMultiplyAdd(p, z, 1.0);
  return FusedMultiplyAdd(static_cast<double>(exponent), 0.6931471805599453, 2.0 * s * p);
}

struct PhiloxBlock {
  uint32_t word[4];
};

// Philox4x32-10 (Salmon et al., 2011).
QUIRE_SAMPLING_FUNCTION PhiloxBlock Philox(PhiloxBlock counter, uint32_t key0, uint32_t key1) {
  PhiloxBlock c = counter;
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c.word[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * c.word[2];
    c = PhiloxBlock{{static_cast<uint32_t>(b >> 32) ^ c.word[1] ^ key0, static_cast<uint32_t>(b),
                     static_cast<uint32_t>(a >> 32) ^ c.word[3] ^ key1, static_cast<uint32_t>(a)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

// The purpose of a random number, so that no two uses share one.
enum class Purpose : uint32_t { kSample = 0 };

// The position of a token's noise in a request's stream of random numbers.
struct NoisePosition {
  uint64_t seed = 0;
  uint64_t output_index = 0;
  uint32_t choice = 0;
  Purpose purpose = Purpose::kSample;
};

// Standard Gumbel noise of one token: −ln(−ln u), u = (n + ½) / 2^52 from 52 bits of
// Philox(key = seed; counter = token, output index, choice, purpose with the index's high bits).
QUIRE_SAMPLING_FUNCTION double Gumbel(const NoisePosition& at, uint32_t token) {
  const uint32_t high = static_cast<uint32_t>(at.output_index >> 32);
  const PhiloxBlock counter{{token, static_cast<uint32_t>(at.output_index), at.choice,
                             static_cast<uint32_t>(at.purpose) ^ (high << 8)}};
  const PhiloxBlock random =
      Philox(counter, static_cast<uint32_t>(at.seed), static_cast<uint32_t>(at.seed >> 32));
  const uint64_t bits = (static_cast<uint64_t>(random.word[0]) << 20) | (random.word[1] >> 12);
  const double u = (static_cast<double>(bits) + 0.5) * 2.220446049250313e-16;
  return -Log(-Log(u));
}

// No noise is larger: −ln(−ln(1 − 2^−53)) = 36.74.
inline constexpr double kLargestGumbel = 36.75;

// Keys that order floats (no NaN) as integers, ascending; −0 and +0 share one.
QUIRE_SAMPLING_FUNCTION uint32_t OrderedKey(float x) {
  const uint32_t bits = BitsOf(x + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// A weight of at most 2^11 in units of 2^−40, to the nearest: sums of up to 2^23 weights e^(z −
// max) are exact in any order. Adding 2^52 leaves the integer in the low bits of the sum.
inline constexpr double kMassUnit = 1099511627776.0;
QUIRE_SAMPLING_FUNCTION uint64_t Mass(float weight) {
  const double shifted =
      FusedMultiplyAdd(static_cast<double>(weight), kMassUnit, 4503599627370496.0);
  uint64_t bits;
  memcpy(&bits, &shifted, 8);
  return bits & 0x000fffffffffffffull;
}

// The share `fraction` of a mass, rounded up to a unit.
QUIRE_SAMPLING_FUNCTION uint64_t ShareOf(float fraction, uint64_t mass) {
  const double share = static_cast<double>(fraction) * static_cast<double>(mass);
  const uint64_t floor = static_cast<uint64_t>(share);
  return static_cast<double>(floor) < share ? floor + 1 : floor;
}

// Penalties of one token. Repetition counts prompt and outputs, the others outputs only.
QUIRE_SAMPLING_FUNCTION float Penalise(float logit, int32_t output_count, float repetition,
                                       float frequency, float presence) {
  float z = logit > 0.0f ? logit / repetition : logit * repetition;
  if (output_count > 0) {
    z = FusedMultiplyAdd(-frequency, static_cast<float>(output_count), z);
    z = z - presence;
  }
  return z;
}

}  // namespace quire::kernels::sampling
