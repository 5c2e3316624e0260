// The attention of a group of rows, undone: what its slots, queries and the position table get. A slot's gradient waits
// where later steps have pushed it until its own step pulls it. The rest of a step is in backward_group.h.
#pragma once
#include "backward.h"

template <class F> class BackwardAttention {
 public:
  BackwardAttention(const Shape& s, const Weights<F>& raw, const BackwardPack<F>& w, const Tape<F>& tape,
                    const BackwardIO<F>& io, const BackwardScratch<F>& scratch, const Sums<F>& sums, int64_t first,
                    int64_t rows)
      : s(s), raw(raw), w(w), tape(tape), io(io), scratch(scratch), sums(sums), first(first), rows(rows) {}

 protected:
  const Shape& s;
  const Weights<F>& raw;
  const BackwardPack<F>& w;
  const Tape<F>& tape;
  const BackwardIO<F>& io;
  const BackwardScratch<F>& scratch;
  const Sums<F>& sums;
  const int64_t first, rows;
  int64_t begin = 0, count = 0;  // the chunk's first step and its steps

  int64_t* history_at(int64_t t) { return scratch.history + t * rows; }
  int64_t chunk_row(int64_t l, int64_t t) { return (l * count + t - begin) * rows; }
  // Row (l, t) of a [n][H][L][C] buffer, for row i and head h.
  int64_t line(int64_t i, int64_t h, int64_t l, int64_t t) {
    return ((i * s.heads + h) * s.layers + l) * count + t - begin;
  }
  int64_t wide(int64_t l, int64_t h) { return scratch.wide[l * s.heads + h]; }
  // The same for `score_gradient` and `used`, whose lines are as long as a head sees; the column of slot M + begin.
  int64_t newest(int64_t i, int64_t h, int64_t l, int64_t t) {
    const int64_t at = l * s.heads + h;
    return count * (i * scratch.total + scratch.before[at]) + (t - begin) * scratch.wide[at] + scratch.sights.slots[at];
  }

  // What the key and value of slot M + t get: from steps after this chunk (pushed), and from later ones inside it.
  void pull_slot(int64_t i, int64_t p, int64_t h, int64_t t, F* projected) {
    F *key = projected + p * 2 * s.inside() + h * s.head, *value = key + s.inside();
    const int64_t from = slot_of(i, p, h, s.carried + t), later = begin + count - t - 1;
    std::memcpy(key, scratch.keys_gradient + from, s.head * sizeof(F));
    std::memcpy(value, scratch.values_gradient + from, s.head * sizeof(F));
    for (int64_t l = s.pairs == 1 ? 0 : p; later && l <= (s.pairs == 1 ? s.layers - 1 : p); l++) {
      const int64_t at = line(i, h, l, t + 1), column = newest(i, h, l, t + 1) + t - begin;
      gather(scratch.score_gradient + column, wide(l, h), later);
      weighted_sum(scratch.weights, scratch.queries + at * s.head, key, later, s.head, Into::add);
      gather(scratch.used + column, wide(l, h), later);
      weighted_sum(scratch.weights, scratch.mixed_gradient + at * s.head, value, later, s.head, Into::add);
    }
  }
  void gather(const F* column, int64_t stride, int64_t n) {
    for (int64_t k = 0; k < n; k++) scratch.weights[k] = column[k * stride];
  }
  int64_t slot_of(int64_t i, int64_t p, int64_t h, int64_t slot) {
    return (((i * s.pairs + p) * s.heads + h) * s.slots + slot) * s.head;
  }

  // scratch.mixed: gradient of o; out: gradient of q.
  void undo_attention(int64_t l, int64_t t, F* query_gradient) {
    int64_t longest = 0;
    for (int64_t i = 0; i < rows; i++) {
      const int64_t seen = history_at(t)[i];
      longest = longest > seen ? longest : seen;
      for (int64_t h = 0; h < s.heads; h++) {
        const int64_t c = i * s.heads + h;
        undo_head(l, t, i, h, scratch.mixed + c * s.head, query_gradient + c * s.head);
      }
    }
    const int64_t together = s.windows ? 1 : s.heads;  // as in the forward
    for (int64_t h = 0; h < s.heads; h += together) {
      const int64_t seen = scratch.sights.seen(l, h, longest), from = newest(0, h, l, t) + t - begin - seen;
      multiply<F>(rows * together, s.head, seen,
                  RowMajor<F>{scratch.score_gradient + from, count * scratch.total / together},
                  Panels<F>{w.position + (s.reach - seen) * panel<F>, s.reach * panel<F>, panel<F>},
                  Target<F>{query_gradient + h * s.head, s.inside() / together, Into::add});
    }
    for (int64_t i = 0; s.log_scale && i < rows; i++)
      scale_by(query_gradient + i * s.inside(), F(s.sharpness(history_at(t)[i])), s.inside());
  }

  void undo_head(int64_t l, int64_t t, int64_t i, int64_t h, const F* mixed_gradient, F* query_gradient) {
    const int64_t seen = scratch.sights.seen(l, h, history_at(t)[i]), c = i * s.heads + h, at = line(i, h, l, t);
    const int64_t slots = scratch.sights.slots[l * s.heads + h], from = newest(i, h, l, t) - slots;
    F *scores = scratch.score_gradient + from, *used = scratch.used + from;
    const int64_t row = tape.row(l, t, first);
    std::memcpy(scratch.queries + at * s.head, tape.query + row * s.inside() + c * s.head, s.head * sizeof(F));
    std::memcpy(scratch.mixed_gradient + at * s.head, mixed_gradient, s.head * sizeof(F));
    std::memset(scores, 0, wide(l, h) * sizeof(F));
    std::memset(used, 0, wide(l, h) * sizeof(F));
    if (seen == 0) return (void)std::memset(query_gradient, 0, s.head * sizeof(F));
    const int64_t slot = io.cache.at(s, first + i, s.pair(l), h, s.carried + t - seen);
    scores += slots + t - begin - seen, used += slots + t - begin - seen;
    add_scores(mixed_gradient, io.cache.values + slot, scores, seen, s.head);
    const F *marked = tape.marked_end(l, t, first + i, h) - seen, keep_scale = F(s.keep_scale());
    if (raw.span) {
      const int64_t head = l * s.heads + h;
      span_backward(marked, scores, used, seen, keep_scale, raw.span + (head + 1) * s.window - seen,
                    sums.span + (head + 1) * s.reach - seen);
    } else {
      softmax_backward(marked, scores, used, seen, keep_scale);
    }
    weighted_sum(scores, io.cache.keys + slot, query_gradient, seen, s.head, Into::overwrite);
    if (raw.position_bias) add_scaled(sums.position_bias + h * s.reach + s.reach - seen, F(1), scores, seen);
  }

  // The chunk is done: all slots older than it, and the position table, get their gradient from this row and head.
  void push_older(int64_t i, int64_t h) {
    for (int64_t l = 0, end; l < s.layers; l = end) {  // layers whose head sees as far share a product
      for (end = l + 1; end < s.layers && wide(end, h) == wide(l, h);) end++;
      push_layers(i, h, l, end - l);
    }
  }
  void push_layers(int64_t i, int64_t h, int64_t l, int64_t layers) {
    const int64_t depth = layers * count, stride = wide(l, h);
    int64_t older = 0, longest = 0;
    for (int64_t t = begin; t < begin + count; t++) {
      const int64_t seen = scratch.sights.seen(l, h, history_at(t)[i]);
      older = older > seen + begin - t ? older : seen + begin - t;
      longest = longest > seen ? longest : seen;
    }
    const int64_t lines = s.pairs == 1 ? depth : count, products = s.pairs == 1 ? 1 : layers;
    for (int64_t p = l; p < l + products; p++) {
      const int64_t at = line(i, h, p, begin), column = newest(i, h, p, begin) - older;
      const int64_t to = slot_of(i, s.pair(p), h, s.carried + begin - older);
      outer(older, lines, DepthMajor<F>{scratch.score_gradient + column, stride}, scratch.queries + at * s.head,
            scratch.keys_gradient + to);
      outer(older, lines, DepthMajor<F>{scratch.used + column, stride}, scratch.mixed_gradient + at * s.head,
            scratch.values_gradient + to);
    }
    for (int64_t k = 0; k < depth; k++) scratch.offsets[k] = k * stride + k % count;
    outer(longest, depth, Listed<F>{scratch.score_gradient + newest(i, h, l, begin) - longest, scratch.offsets},
          scratch.queries + line(i, h, l, begin) * s.head, sums.position + (s.reach - longest) * s.head);
  }
  template <class A> void outer(int64_t slots, int64_t lines, A a, const F* b, F* to) {
    multiply<F>(slots, s.head, lines, a, Panels<F>{b, panel<F>, s.head}, Target<F>{to, s.head, Into::add});
  }

  void undo_source_head(int64_t l, int64_t t, int64_t i, int64_t h, const F* mixed_gradient, F* query_gradient) {
    const int64_t row = first + i, seen = io.source.length[io.source.row(s, row)], from = io.source.at(s, l, row, h);
    const int64_t at = line(i, h, l, t), kept = tape.row(l, t, row) * s.heads + h;
    F *scores = scratch.source_scores + at * s.source, *used = scratch.source_used + at * s.source;
    std::memcpy(scratch.source_queries + at * s.head, tape.source_query + kept * s.head, s.head * sizeof(F));
    std::memcpy(scratch.source_mixed_gradient + at * s.head, mixed_gradient, s.head * sizeof(F));
    std::memset(scores, 0, seen * sizeof(F));
    add_scores(mixed_gradient, io.source.values + from, scores, seen, s.head);
    softmax_backward(tape.source_marked + kept * s.source, scores, used, seen, F(s.keep_scale()));
    weighted_sum(scores, io.source.keys + from, query_gradient, seen, s.head, Into::overwrite);
  }

  // The chunk is done: the source's keys and values get their gradient from this row and head.
  void push_source(int64_t i, int64_t h) {
    for (int64_t l = 0; s.source && l < s.layers; l++) {
      const int64_t seen = io.source.length[io.source.row(s, first + i)], to = io.source.at(s, l, first + i, h);
      const int64_t at = line(i, h, l, begin);
      outer(seen, count, DepthMajor<F>{scratch.source_scores + at * s.source, s.source},
            scratch.source_queries + at * s.head, io.source_keys_gradient + to);
      outer(seen, count, DepthMajor<F>{scratch.source_used + at * s.source, s.source},
            scratch.source_mixed_gradient + at * s.head, io.source_values_gradient + to);
    }
  }
};
