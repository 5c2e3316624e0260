// What is computed, and where everything lies.
//
// B batch (rows), T steps of the block, M carried memories, L layers, D model width, H heads, K head width, F
// feed-forward width, P key/value pairs (1: shared by all layers, or L), S memory window, W = min(S, M + T) slots a
// step can see.
//
// For a row at step t (x^0 its input; pre-norm on the left, post-norm on the right):
//   n   = norm(x^l)                               n   = x^l
//   q   = Wq n / sqrt(K),  o = attention(q, keys, values),  r = x^l + Wo o
//   z   = r                                       z   = g1 norm(r) + c1
//   n'  = norm(z)                                 n'  = z
//   u   = dropped(relu(W1 n' + b1)),  s = z + W2 u + b2
//   x^{l+1} = s                                   x^{l+1} = g2 norm(s) + c2
//   m_t = sum_l mixing_l x^l;  keys, values of slot M + t = Wk, Wv times norm(m_t) (post-norm: m_t)
// With adaptive spans a head's attention is a_j = m_j e^{s_j} / sum_i m_i e^{s_i}, m its mask, and a head reads only the
// slots that its mask leaves: short spans are cheap, head by head.
// A decoder attends to a source of N positions between z and n', in the same way over keys that do not grow:
//   n_s = norm(z),  z' = z + Wo_s attention(Wq_s n_s / sqrt(K), source)      z' = g3 norm(z + Wo_s attention(..)) + c3
//
// Under pre-norm a norm's gain and shift are folded into the weight behind it: W (g * n + c) = (W diag(g)) n + W c.
// Slots are in order of time: carried memories 0..M-1, step t writes slot M + t and sees `history` slots before it.
#pragma once
#include "matrix.h"
#include "memory.h"
#include <vector>

struct Shape {
  int64_t batch, steps, carried, layers, width, heads, head, inner, pairs;
  int64_t window, reach;      // S and W
  int64_t slots;              // of the key/value buffers: M + T, or the capacity of a decoding cache
  int64_t pre_norm, save;     // save: keep what backward needs
  int64_t threads, seed;
  int64_t source, source_rows;  // N, or 0 without a source; batch / source_rows rows after each other read the same
  int64_t log_scale;          // queries times `sharpness`
  const int64_t* windows;     // [L][H] how many slots a head reads at most, with adaptive spans; else null
  double dropout;

  int64_t inside() const { return heads * head; }  // H*K
  int64_t projected() const { return pairs * 2 * inside(); }
  int64_t pair(int64_t layer) const { return pairs == 1 ? 0 : layer; }
  double query_scale() const { return 1 / std::sqrt(double(head)); }
  double sharpness(int64_t history) const { return std::log1p(double(history)) / 3; }
  double keep_scale() const { return 1 / (1 - dropout); }
  int64_t norms() const { return source ? 3 : 2; }  // a layer
  // Dropout's place of (layer, step, row, what); what: a head, H the feed-forward, H + 1 + h a head that reads the source
  uint64_t place(int64_t layer, int64_t step, int64_t row, int64_t what) const {
    return ((layer * steps + step) * batch + row) * (heads + 1 + (source ? heads : 0)) + what;
  }
};

template <class F> struct Weights {  // as the contract has them; from memory_gain on they may be null
  const F *query, *output, *expand, *expand_bias, *contract, *contract_bias;
  const F *attention_gain, *attention_shift, *feed_forward_gain, *feed_forward_shift;
  const F *key, *value, *mixing, *position;
  const F *memory_gain, *memory_shift, *position_bias, *span;
  const F *source_query, *source_output, *source_gain, *source_shift;
};
template <class F> struct Gradients {
  F *query, *output, *expand, *expand_bias, *contract, *contract_bias;
  F *attention_gain, *attention_shift, *feed_forward_gain, *feed_forward_shift;
  F *key, *value, *mixing, *position;
  F *memory_gain, *memory_shift, *position_bias, *span;
  F *source_query, *source_output, *source_gain, *source_shift;
};

// How far each head of each layer sees, and where its columns are in a row that holds those of a layer's heads. Columns
// begin where a panel of the position table begins, which may be a little further back than the head sees.
template <class F> struct Sights {
  int64_t heads;
  std::vector<int64_t> slots, columns, before, width;  // [L][H] three times; [L]
  explicit Sights(const Shape& s) : heads(s.heads), width(s.layers) {
    for (int64_t i = 0; i < s.layers * s.heads; i++) {
      const int64_t seen = s.windows && s.windows[i] < s.reach ? s.windows[i] : s.reach;
      slots.push_back(seen), columns.push_back(s.reach - (s.reach - seen) / panel<F> * panel<F>);
      before.push_back(width[i / heads]), width[i / heads] += columns[i];
    }
  }
  int64_t at(int64_t layer, int64_t head) const { return layer * heads + head; }
  int64_t seen(int64_t layer, int64_t head, int64_t history) const {
    return history < slots[at(layer, head)] ? history : slots[at(layer, head)];
  }
  // How far any layer that reads this pair of keys and values sees with this head.
  int64_t farthest(const Shape& s, int64_t pair, int64_t head) const {
    if (s.pairs > 1) return slots[at(pair, head)];
    int64_t most = 0;
    for (int64_t l = 0; l < s.layers; l++) most = most > slots[at(l, head)] ? most : slots[at(l, head)];
    return most;
  }
};

// What forward keeps for backward: [L][T][B][..] each; without `save` one step's worth, written over.
template <class F> struct Tape {
  F *residual;         // [L+1]: pre-norm x^l; post-norm x^0 and then norm(s) of each layer
  F *inner_normal;     // [L]: pre-norm norm(z); post-norm norm(r)
  F *mean, *scale;     // of norm(x^l) (pre-norm) or norm(r) (post-norm)
  F *outer_scale;      // of norm(z) or norm(s)
  F *query, *mixed, *hidden;  // q, o, u
  F *marked;           // [L][T][B] and the columns of each head: probabilities (with a span, over the mask), negative
                       // where dropped; the last that the head sees are set
  F *source_normal;    // [L]: pre-norm norm(z), what the source is asked with; post-norm the norm behind
  F *source_scale, *source_query, *source_mixed;
  F *source_marked;    // [L][T][B][H][N], like `marked`
  F *memory;           // [T][B][D]
  F *memory_mean, *memory_scale;  // [T][B]
  int64_t steps, batch;
  Sights<F> sights;
  std::vector<int64_t> marked_before;  // [L]
  Tape(Arena<F>& arena, const Shape& s) : steps(s.save ? s.steps : 1), batch(s.batch), sights(s) {
    const int64_t rows = steps * batch, all = s.layers * rows;
    residual = arena.take((all + rows) * s.width);
    inner_normal = arena.take(all * s.width);
    mean = arena.take(all), scale = arena.take(all), outer_scale = arena.take(all);
    query = arena.take(all * s.inside()), mixed = arena.take(all * s.inside()), hidden = arena.take(all * s.inner);
    int64_t columns = 0;
    for (int64_t width : sights.width) marked_before.push_back(rows * columns), columns += width;
    marked = arena.take(rows * columns);
    const int64_t read = s.source ? all : 0;
    source_normal = arena.take(read * s.width), source_scale = arena.take(read);
    source_query = arena.take(read * s.inside()), source_mixed = arena.take(read * s.inside());
    source_marked = arena.take(read * s.heads * s.source);
    memory = arena.take(rows * s.width), memory_mean = arena.take(rows), memory_scale = arena.take(rows);
  }
  int64_t row(int64_t layer, int64_t step, int64_t row) const {
    return (layer * steps + (steps == 1 ? 0 : step)) * batch + row;
  }
  // The end of a head's columns.
  F* marked_end(int64_t layer, int64_t step, int64_t row, int64_t head) const {
    const int64_t at = sights.at(layer, head), line = (steps == 1 ? 0 : step) * batch + row;
    return marked + marked_before[layer] + line * sights.width[layer] + sights.before[at] + sights.columns[at];
  }
};

// Keys and values [B][P][H][slots][K].
template <class F> struct KeyValues {
  F *keys, *values;
  int64_t at(const Shape& s, int64_t row, int64_t pair, int64_t head, int64_t slot) const {
    return (((row * s.pairs + pair) * s.heads + head) * s.slots + slot) * s.head;
  }
};

// A source: keys and values [L][rows][H][N][K], mask [rows][N] added to the scores, length [rows] behind which is padding.
template <class F> struct SourceKeys {
  const F *keys, *values, *mask;
  const int64_t* length;
  int64_t row(const Shape& s, int64_t row) const { return row / (s.batch / s.source_rows); }
  int64_t at(const Shape& s, int64_t layer, int64_t row, int64_t head) const {
    return ((layer * s.source_rows + this->row(s, row)) * s.heads + head) * s.source * s.head;
  }
};

// How many memories exist for each row of a shard before a step.
struct History {
  const int64_t* length;   // [B]
  const uint8_t* reset;    // [B][T] or null
  // Fills history[i] for rows first + i, from its value before the step that went before (or the start).
  void advance(const Shape& s, int64_t step, int64_t first, int64_t rows, int64_t* history) const {
    for (int64_t i = 0; i < rows; i++) {
      if (step == 0) history[i] = length[first + i] < s.carried ? length[first + i] : s.carried;
      else history[i] += 1;
      if (reset && reset[(first + i) * s.steps + step]) history[i] = 0;
      if (history[i] > s.window) history[i] = s.window;
      if (history[i] < 0) history[i] = 0;
    }
  }
};
