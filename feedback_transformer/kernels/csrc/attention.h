// One query attending to the slots of one row and one head.
//
//   s_j = q . k_j + q . p_d + b_d,   p = softmax(s) over the visible slots,   o = sum_j dropped(p)_j v_j
//
// q carries the 1/sqrt(K) already; q . p_d comes from one product for all rows and heads before. Keys and values are
// [slots][K]; only visible slots are ever passed in. With an adaptive span e^{s_j} is multiplied by the mask m_j before
// the sum is taken; p is then kept over the mask, p_j = e^{s_j} / sum_i m_i e^{s_i}, from which both gradients follow.
#pragma once
#include "elementwise.h"
#include "matrix.h"

// scores[j] += query . keys[j]
template <class F> inline void add_scores(const F* query, const F* keys, F* scores, int64_t slots, int64_t head) {
  const int64_t whole = head / lanes<F> * lanes<F>;
  int64_t j = 0;
  for (; j + 8 <= slots; j += 8, keys += 8 * head) {
    Vector<F> sums[8] = {};
    for (int64_t i = 0; i < whole; i += lanes<F>) {
      const Vector<F> q = load(query + i);
#pragma GCC unroll 8
      for (int r = 0; r < 8; r++) sums[r] += q * load(keys + r * head + i);
    }
    add_sums(sums, scores + j);
    for (int64_t i = whole; i < head; i++)
      for (int r = 0; r < 8; r++) scores[j + r] += query[i] * keys[r * head + i];
  }
  for (; j < slots; j++, keys += head) scores[j] += dot(query, keys, head);
}

// Count vectors of: out (+)= sum_j weights[j] rows[j]. Few vectors take several rows at once: enough sums in flight.
template <class F, int Count>
inline void weighted_columns(const F* weights, const F* rows, F* out, int64_t slots, int64_t stride, Into into) {
  constexpr int together = Count >= 8 ? 1 : Count >= 4 ? 2 : 4;
  Vector<F> sums[together][Count] = {};
  int64_t j = 0;
  for (; j + together <= slots; j += together, rows += together * stride)
#pragma GCC unroll 4
    for (int r = 0; r < together; r++)
#pragma GCC unroll 8
      for (int v = 0; v < Count; v++) sums[r][v] += weights[j + r] * load(rows + r * stride + v * lanes<F>);
  for (; j < slots; j++, rows += stride)
    for (int v = 0; v < Count; v++) sums[0][v] += weights[j] * load(rows + v * lanes<F>);
  for (int v = 0; v < Count; v++) {
    Vector<F> sum = sums[0][v];
    for (int r = 1; r < together; r++) sum += sums[r][v];
    store(out + v * lanes<F>, into == Into::add ? load(out + v * lanes<F>) + sum : sum);
  }
}

// out (+)= sum_j weights[j] rows[j], rows [slots][head]
template <class F>
inline void weighted_sum(const F* weights, const F* rows, F* out, int64_t slots, int64_t head, Into into) {
  int64_t i = 0;
  for (; i + 8 * lanes<F> <= head; i += 8 * lanes<F>)
    weighted_columns<F, 8>(weights, rows + i, out + i, slots, head, into);
  for (; i + 4 * lanes<F> <= head; i += 4 * lanes<F>)
    weighted_columns<F, 4>(weights, rows + i, out + i, slots, head, into);
  for (; i + 2 * lanes<F> <= head; i += 2 * lanes<F>)
    weighted_columns<F, 2>(weights, rows + i, out + i, slots, head, into);
  for (; i + lanes<F> <= head; i += lanes<F>) weighted_columns<F, 1>(weights, rows + i, out + i, slots, head, into);
  for (; i < head; i++) {
    F sum = into == Into::add ? out[i] : F(0);
    for (int64_t j = 0; j < slots; j++) sum += weights[j] * rows[j * head + i];
    out[i] = sum;
  }
}

template <class F> inline F largest(const F* a, int64_t n) {
  F most = a[0];
  int64_t i = 0;
  if (n >= lanes<F>) {
    Vector<F> best = load(a);
    for (; i + lanes<F> <= n; i += lanes<F>) best = load(a + i) > best ? load(a + i) : best;
    for (int v = 0; v < lanes<F>; v++) most = best[v] > most ? best[v] : most;
  }
  for (; i < n; i++) most = a[i] > most ? a[i] : most;
  return most;
}

// scores -> probabilities (with a span, over its mask), in place
template <class F> inline void softmax(F* scores, const F* span, int64_t n) {
  const F shift = largest(scores, n);
  Vector<F> sums{};
  int64_t i = 0;
  for (; i + lanes<F> <= n; i += lanes<F>) {
    const Vector<F> e = exp_of(load(scores + i) - shift);
    store(scores + i, e);
    sums += e;
  }
  F sum = sum_of_lanes<F>(sums);
  if (i < n) {
    F rest[lanes<F>] = {};
    for (int64_t r = 0; r < n - i; r++) rest[r] = scores[i + r] - shift;
    store(rest, exp_of(load(rest)));
    for (int64_t r = 0; r < n - i; r++) sum += scores[i + r] = rest[r];
  }
  if (span) sum = dot(scores, span, n);
  const F scale = sum == 0 ? F(0) : F(1) / sum;
  for (i = 0; i < n; i++) scores[i] *= scale;
}

// A dropped probability is kept with a minus sign, so that backward needs no mask.
template <class F> inline void mark_dropped(F* __restrict p, int64_t n, Mask mask, uint32_t first, F keep_scale,
                                            F* __restrict used) {
  for (int64_t i = 0; i < n; i++) {
    const bool keeps = mask.keeps(first + uint32_t(i));
    used[i] = keeps ? p[i] * keep_scale : F(0);
    p[i] = keeps ? p[i] : -p[i];
  }
}

// marked: probabilities as saved; g: gradient of the used ones, overwritten by the gradient of the scores.
template <class F>
inline void softmax_backward(const F* __restrict marked, F* __restrict g, F* __restrict used, int64_t n, F keep_scale) {
  for (int64_t i = 0; i < n; i++) used[i] = marked[i] > 0 ? marked[i] * keep_scale : F(0);
  const F along = dot(used, g, n);
  for (int64_t i = 0; i < n; i++) g[i] = used[i] * g[i] - std::abs(marked[i]) * along;
}
// The same with a span, whose mask gets gradient too.
template <class F>
inline void span_backward(const F* __restrict marked, F* __restrict g, F* __restrict used, int64_t n, F keep_scale,
                          const F* __restrict span, F* __restrict span_gradient) {
  for (int64_t i = 0; i < n; i++) used[i] = marked[i] > 0 ? marked[i] * keep_scale * span[i] : F(0);
  const F along = dot(used, g, n);
  for (int64_t i = 0; i < n; i++) {
    const F kept = marked[i] > 0 ? marked[i] * keep_scale : F(0), gradient = kept * g[i] - std::abs(marked[i]) * along;
    span_gradient[i] += gradient;
    g[i] = gradient * span[i];
  }
}
