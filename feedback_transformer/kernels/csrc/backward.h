// The block backward, step by step from the last one. Two kinds of work wait until a chunk of C steps is done, to
// become a few large products: the weight gradients, and what a step's scores give to keys and values older than the
// chunk. Inside the chunk a slot collects (`pull_slot`) from the later steps just before its own step is undone.
#pragma once
#include "attention.h"
#include "layout.h"

template <class F> struct BackwardPack {  // weights as g W reads them
  F *query, *output, *expand, *contract, *key_value, *position;
  F *source_query, *source_output;  // nothing without a source
  int64_t query_size, output_size, expand_size, contract_size;
  BackwardPack(Arena<F>& arena, const Shape& s) {
    query_size = Packed<F>::size(s.inside(), s.width), output_size = Packed<F>::size(s.width, s.inside());
    expand_size = Packed<F>::size(s.inner, s.width), contract_size = Packed<F>::size(s.width, s.inner);
    query = arena.take(s.layers * query_size), output = arena.take(s.layers * output_size);
    expand = arena.take(s.layers * expand_size), contract = arena.take(s.layers * contract_size);
    const int64_t readers = s.source ? s.layers : 0;
    source_query = arena.take(readers * query_size), source_output = arena.take(readers * output_size);
    key_value = arena.take(Packed<F>::size(s.projected(), s.width));
    position = arena.take(Packed<F>::size(s.reach, s.head));
  }
};

template <class F> void fill_pack(const Shape& s, const Weights<F>& w, BackwardPack<F>& p) {
  const int64_t d = s.width, hk = s.inside(), f = s.inner;
  const F* none = nullptr;
  Packed<F>::clear_tail(p.key_value, s.projected(), d);
  Packed<F>::clear_tail(p.position, s.reach, s.head);
  for (int64_t l = 0; l < s.layers; l++) {
    Packed<F>::clear_tail(p.query + l * p.query_size, hk, d);
    Packed<F>::clear_tail(p.output + l * p.output_size, d, hk);
    Packed<F>::clear_tail(p.expand + l * p.expand_size, f, d);
    Packed<F>::clear_tail(p.contract + l * p.contract_size, d, f);
    const F* gain1 = s.pre_norm ? w.attention_gain + l * d : none;
    const F* gain2 = s.pre_norm ? w.feed_forward_gain + l * d : none;
    pack_backward(w.query + l * hk * d, hk, d, gain1, F(s.query_scale()), p.query + l * p.query_size, 0, hk);
    pack_backward(w.output + l * d * hk, d, hk, none, F(1), p.output + l * p.output_size, 0, d);
    pack_backward(w.expand + l * f * d, f, d, gain2, F(1), p.expand + l * p.expand_size, 0, f);
    pack_backward(w.contract + l * d * f, d, f, none, F(1), p.contract + l * p.contract_size, 0, d);
    if (!s.source) continue;
    Packed<F>::clear_tail(p.source_query + l * p.query_size, hk, d);
    Packed<F>::clear_tail(p.source_output + l * p.output_size, d, hk);
    pack_backward(w.source_query + l * hk * d, hk, d, s.pre_norm ? w.source_gain + l * d : none, F(s.query_scale()),
                  p.source_query + l * p.query_size, 0, hk);
    pack_backward(w.source_output + l * d * hk, d, hk, none, F(1), p.source_output + l * p.output_size, 0, d);
  }
  for (int64_t i = 0; i < 2 * s.pairs; i++)
    pack_backward((i % 2 ? w.value : w.key) + i / 2 * hk * d, hk, d, s.pre_norm ? w.memory_gain + i / 2 * d : none,
                  F(1), p.key_value, i * hk, s.projected());
  for (int64_t k = 0; k < s.head; k++)
    for (int64_t c = 0; c < s.reach; c++)
      p.position[(k / panel<F> * s.reach + c) * panel<F> + k % panel<F>] =
          w.position[k * s.window + s.window - s.reach + c];
}

// Gradients of the folded weights, one set a thread.
template <class F> struct Sums {
  F *query, *output, *expand, *contract, *key_value;                // like the weights; key_value [P*2*H*K][D]
  F *query_bias, *expand_bias, *contract_bias, *key_value_bias;
  F *source_query, *source_output, *source_bias;                    // of what reads a source
  F *gains, *mixing, *position, *position_bias;                     // [4 or 6][L][D] post-norm; [L+1]; [W][K]; [H][W]
  F *span;                                                          // [L][H][W] or null
  Sums(Arena<F>& arena, const Shape& s) {
    query = arena.take(s.layers * s.inside() * s.width), output = arena.take(s.layers * s.inside() * s.width);
    expand = arena.take(s.layers * s.inner * s.width), contract = arena.take(s.layers * s.inner * s.width);
    key_value = arena.take(s.projected() * s.width);
    query_bias = arena.take(s.layers * s.inside()), expand_bias = arena.take(s.layers * s.inner);
    contract_bias = arena.take(s.layers * s.width), key_value_bias = arena.take(s.projected());
    const int64_t readers = s.source ? s.layers : 0;
    source_query = arena.take(readers * s.inside() * s.width), source_bias = arena.take(readers * s.inside());
    source_output = arena.take(readers * s.inside() * s.width);
    gains = arena.take(2 * s.norms() * s.layers * s.width), mixing = arena.take(s.layers + 1);
    position = arena.take(s.reach * s.head), position_bias = arena.take(s.heads * s.reach);
    span = s.windows ? arena.take(s.layers * s.heads * s.reach) : nullptr;
  }
};

template <class F> struct BackwardIO {
  const F *y_gradient, *memories_gradient;  // [B][T][D]
  const F *memory;                          // [B][M][D]
  History history;
  KeyValues<F> cache;
  F *x_gradient, *memory_gradient;          // [B][T][D]; [B][M][D] or null
  SourceKeys<F> source;
  F *source_keys_gradient, *source_values_gradient;  // [L][B][H][N][K], zeros at first
};

inline int64_t chunk_steps(const Shape& s) {
  const int64_t wanted = 64 / s.layers < 4 ? 4 : 64 / s.layers > 32 ? 32 : 64 / s.layers;
  return wanted < s.steps ? wanted : s.steps;
}

// Buffers of a group of n rows. "Chunk" buffers are [L][C][n][..], or [n][H][L][C][..] where attention reads them.
template <class F> struct BackwardScratch {
  int64_t chunk;                                         // C
  Sights<F> sights;
  std::vector<int64_t> wide, before;                     // [L][H] a line of `score_gradient`: the slots that the head
  int64_t total = 0;                                     // sees and C; those before it, [H][L] being the order; all
  F *query_input, *feed_input, *memory_input;            // inputs of the projections; memory_input [C][n][D]
  F *query_gradient, *after_gradient, *hidden_gradient, *sum_gradient;  // of q, r, u before the ReLU, s
  F *projected_gradient;                                 // [C][n][P*2*H*K]
  F *source_input;                                       // post-norm: what the source is asked with
  F *source_query_gradient, *source_after_gradient;      // of its query, and of the sum behind it
  F *source_scores, *source_used;                        // [n][H][L][C][N]
  F *source_queries, *source_mixed_gradient;             // [n][H][L][C][K]
  F *score_gradient, *used;                              // [n][H][L][C] lines, by slot; zero where nothing is seen
  F *queries, *mixed_gradient;                           // [n][H][L][C][K]
  F *keys_gradient, *values_gradient;                    // [n][P][H][M + T][K]
  F *now, *normal, *mixed, *memory_now;                  // [n][D], [n][D], [n][H*K], [n][D]
  F *packed_outputs, *packed_inputs, *weights;
  F *carried_normal, *carried_gradient;
  int64_t *history, *offsets;                            // [T][n]; [L][C]

  BackwardScratch(Arena<F>& arena, const Shape& s, int64_t n)
      : chunk(chunk_steps(s)), sights(s), wide(s.layers * s.heads), before(s.layers * s.heads) {
    for (int64_t h = 0; h < s.heads; h++)
      for (int64_t l = 0, at = h; l < s.layers; l++, at += s.heads)
        wide[at] = sights.slots[at] + chunk, before[at] = total, total += wide[at];
    const int64_t all = s.layers * chunk * n, hk = s.inside(), d = s.width;
    const int64_t most = s.inner > d ? (s.inner > hk ? s.inner : hk) : (d > hk ? d : hk);
    const int64_t depth = chunk * n > s.carried ? chunk * n : s.carried;
    query_input = arena.take(all * d), feed_input = s.pre_norm ? nullptr : arena.take(all * d);
    memory_input = arena.take(chunk * n * d);
    query_gradient = arena.take(all * hk), after_gradient = arena.take(all * d);
    hidden_gradient = arena.take(all * s.inner), sum_gradient = arena.take(all * d);
    projected_gradient = arena.take(chunk * n * s.projected());
    const int64_t read = s.source ? all : 0;
    source_input = s.pre_norm ? nullptr : arena.take(read * d);
    source_query_gradient = arena.take(read * hk), source_after_gradient = arena.take(read * d);
    source_scores = arena.take(read * s.heads * s.source), source_used = arena.take(read * s.heads * s.source);
    source_queries = arena.take(read * hk), source_mixed_gradient = arena.take(read * hk);
    score_gradient = arena.take(n * chunk * total), used = arena.take(n * chunk * total);
    queries = arena.take(all * hk), mixed_gradient = arena.take(all * hk);
    keys_gradient = arena.take(n * s.pairs * hk * s.slots), values_gradient = arena.take(n * s.pairs * hk * s.slots);
    now = arena.take(n * d), normal = arena.take(n * d), mixed = arena.take(n * hk), memory_now = arena.take(n * d);
    packed_outputs = arena.take(rounded_up(most, tile_rows) * depth);
    packed_inputs = arena.take(rounded_up(most, panel<F>) * depth);
    weights = arena.take(chunk);
    carried_normal = arena.take(s.carried * d), carried_gradient = arena.take(s.carried * s.projected());
    history = reinterpret_cast<int64_t*>(arena.take(s.steps * n * 2));
    offsets = reinterpret_cast<int64_t*>(arena.take(s.layers * chunk * 2));
  }
};
