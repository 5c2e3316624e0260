// One vector type per scalar type, as wide as the machine the library is built on.
//
// AVX-512: 64 bytes and 32 registers; AVX2: 32 bytes and 16 registers; elsewhere: 16 bytes, which compilers turn into
// SSE, NEON or plain instructions. GCC's and Clang's vector extensions keep the code the same for all of them; only
// sums across a vector's lanes are written by hand.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#if defined(__SSE__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
constexpr int tile_rows = 14;  // 28 of 32 registers hold sums
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
constexpr int tile_rows = 6;  // 12 of 16 registers hold sums
#else
#define VECTOR_BYTES 16
constexpr int tile_rows = 6;
#endif

template <class F> struct VectorOf;
template <> struct VectorOf<float> {
  typedef float type __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
  typedef int32_t integers __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
};
template <> struct VectorOf<double> {
  typedef double type __attribute__((vector_size(VECTOR_BYTES), aligned(8), may_alias));
  typedef int64_t integers __attribute__((vector_size(VECTOR_BYTES), aligned(8), may_alias));
};
template <class F> using Vector = typename VectorOf<F>::type;
template <class F> constexpr int64_t lanes = VECTOR_BYTES / sizeof(F);

template <class F> inline Vector<F> load(const F* p) { return *reinterpret_cast<const Vector<F>*>(p); }
template <class F> inline void store(F* p, Vector<F> v) { *reinterpret_cast<Vector<F>*>(p) = v; }

template <class F> inline F sum_of_lanes(Vector<F> v) {
  F sum = 0;
  for (int i = 0; i < lanes<F>; i++) sum += v[i];
  return sum;
}

// out[i] += the sum of the lanes of vector i, for eight vectors.
#if defined(__AVX2__)
inline __m256 halved(Vector<float> v) {
#if defined(__AVX512F__)
  __m512 whole = (__m512)v;
  const __m256 upper = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(whole), 1));
  return _mm256_add_ps(_mm512_castps512_ps256(whole), upper);
#else
  return (__m256)v;
#endif
}
inline __m256d halved(Vector<double> v) {
#if defined(__AVX512F__)
  __m512d whole = (__m512d)v;
  return _mm256_add_pd(_mm512_castpd512_pd256(whole), _mm512_extractf64x4_pd(whole, 1));
#else
  return (__m256d)v;
#endif
}
inline void add_sums(const Vector<float>* v, float* out) {
  __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(halved(v[0]), halved(v[1])), _mm256_hadd_ps(halved(v[2]), halved(v[3])));
  __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(halved(v[4]), halved(v[5])), _mm256_hadd_ps(halved(v[6]), halved(v[7])));
  __m256 sums = _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
  _mm256_storeu_ps(out, _mm256_add_ps(_mm256_loadu_ps(out), sums));
}
inline void add_sums(const Vector<double>* v, double* out) {
  for (int i = 0; i < 8; i += 4) {
    __m256d a = _mm256_hadd_pd(halved(v[i]), halved(v[i + 1])), b = _mm256_hadd_pd(halved(v[i + 2]), halved(v[i + 3]));
    __m256d sums = _mm256_add_pd(_mm256_permute2f128_pd(a, b, 0x20), _mm256_permute2f128_pd(a, b, 0x31));
    _mm256_storeu_pd(out + i, _mm256_add_pd(_mm256_loadu_pd(out + i), sums));
  }
}
#else
template <class F> inline void add_sums_plain(const Vector<F>* v, F* out) {
  for (int i = 0; i < 8; i++) out[i] += sum_of_lanes<F>(v[i]);
}
inline void add_sums(const Vector<float>* v, float* out) { add_sums_plain<float>(v, out); }
inline void add_sums(const Vector<double>* v, double* out) { add_sums_plain<double>(v, out); }
#endif

// e^x for x <= 0 (softmax subtracts the maximum), within 2 units in the last place; NaN stays NaN.
// x = n ln 2 + r, e^x = 2^n e^r, and e^r by its series up to r^7 on |r| <= ln 2 / 2.
inline Vector<float> exp_of(Vector<float> x) {
  typedef VectorOf<float>::integers Integers;
  const Vector<float> lowest = Vector<float>{} - 87.0f;
  x = x < lowest ? lowest : x;
  Vector<float> scaled = x * 1.44269504088896341f;
  const Vector<float> magic = Vector<float>{} + 12582912.0f;  // 1.5 * 2^23: adding and subtracting it rounds
  Vector<float> shifted = scaled + magic;
  Vector<float> n = shifted - magic;
  Vector<float> r = x - n * 0.693359375f + n * 2.12194440e-4f;
  Vector<float> p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  Integers power = ((Integers)shifted << 23) + (127 << 23);  // the low bits of `shifted` are n
  return p * (Vector<float>)power;
}
inline Vector<double> exp_of(Vector<double> x) {
  for (int i = 0; i < lanes<double>; i++) x[i] = std::exp(x[i]);
  return x;
}
