// Layer norm, dropout masks, and the small vector loops between matrix products.
#pragma once
#include "vector.h"

constexpr double norm_epsilon = 1e-5;  // nn.LayerNorm's

template <class F> inline F dot(const F* a, const F* b, int64_t n) {
  Vector<F> sums[4] = {};
  int64_t i = 0;
  for (; i + 4 * lanes<F> <= n; i += 4 * lanes<F>)
    for (int v = 0; v < 4; v++) sums[v] += load(a + i + v * lanes<F>) * load(b + i + v * lanes<F>);
  for (; i + lanes<F> <= n; i += lanes<F>) sums[0] += load(a + i) * load(b + i);
  F sum = sum_of_lanes<F>((sums[0] + sums[1]) + (sums[2] + sums[3]));
  for (; i < n; i++) sum += a[i] * b[i];
  return sum;
}

template <class F> inline F sum_of(const F* a, int64_t n) {
  Vector<F> sums[2] = {};
  int64_t i = 0;
  for (; i + 2 * lanes<F> <= n; i += 2 * lanes<F>)
    for (int v = 0; v < 2; v++) sums[v] += load(a + i + v * lanes<F>);
  F sum = sum_of_lanes<F>(sums[0] + sums[1]);
  for (; i < n; i++) sum += a[i];
  return sum;
}

// to += factor * from
template <class F> inline void scale_by(F* to, F factor, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] *= factor;
}

template <class F> inline void add_scaled(F* __restrict to, F factor, const F* __restrict from, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] += factor * from[i];
}

// to = one * other; `to` may be one of them
template <class F> inline void multiply_by(F* to, const F* one, const F* other, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = one[i] * other[i];
}

template <class F> struct Moments {
  F mean, inverse_deviation;
};

// normal = (x - mean) / deviation
template <class F> inline void normalise(const F* __restrict x, Moments<F> m, F* __restrict normal, int64_t n) {
  for (int64_t i = 0; i < n; i++) normal[i] = (x[i] - m.mean) * m.inverse_deviation;
}
template <class F> inline Moments<F> layer_norm(const F* x, F* normal, int64_t n) {
  const F mean = sum_of(x, n) / n;
  for (int64_t i = 0; i < n; i++) normal[i] = x[i] - mean;
  const F scale = F(1) / std::sqrt(dot(normal, normal, n) / n + F(norm_epsilon));
  for (int64_t i = 0; i < n; i++) normal[i] *= scale;
  return {mean, scale};
}

// out = base + J^T g, J the derivative of x -> normal; base may be null
template <class F>
inline void layer_norm_backward(const F* base, const F* g, const F* normal, F scale, F* out, int64_t n) {
  const F mean = sum_of(g, n) / n, along = dot(g, normal, n) / n;
  if (base)
    for (int64_t i = 0; i < n; i++) out[i] = base[i] + scale * (g[i] - mean - normal[i] * along);
  else
    for (int64_t i = 0; i < n; i++) out[i] = scale * (g[i] - mean - normal[i] * along);
}

// Dropout: a mask is a hash of (seed, place), so that backward and any number of threads find the same one. A `Mask` is
// the stream of one place: (layer, step, row, and head or feed-forward); an element of it is a slot or a unit.
inline uint32_t scrambled(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352dU;
  x = (x ^ (x >> 15)) * 0x846ca68bU;
  return x ^ (x >> 16);
}
struct Mask {
  uint32_t key, threshold;
  Mask(uint64_t seed, uint64_t place, double rate) {
    uint64_t z = seed + (place + 1) * 0x9E3779B97F4A7C15ULL;  // splitmix64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    key = uint32_t(z ^ (z >> 31));
    threshold = uint32_t(rate * 4294967296.0);
  }
  bool keeps(uint32_t element) const { return scrambled(key + element * 0x9E3779B9U) >= threshold; }
};
