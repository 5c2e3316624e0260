// A group of rows, undone step by step. See backward.h for what waits and layout.h for the maths.
#pragma once
#include "backward.h"

template <class F> class BackwardGroup {
 public:
  BackwardGroup(const Shape& s, const Weights<F>& raw, const BackwardPack<F>& w, const Tape<F>& tape,
                const BackwardIO<F>& io, const BackwardScratch<F>& scratch, const Sums<F>& sums, int64_t first,
                int64_t rows)
      : s(s), raw(raw), w(w), tape(tape), io(io), scratch(scratch), sums(sums), first(first), rows(rows) {}

  void run() {
    for (int64_t t = 0; t < s.steps; t++) {
      if (t) std::memcpy(history_at(t), history_at(t - 1), rows * sizeof(int64_t));
      io.history.advance(s, t, first, rows, history_at(t));
    }
    const int64_t slots = rows * s.pairs * s.inside() * s.slots;
    std::memset(scratch.keys_gradient, 0, slots * sizeof(F));
    std::memset(scratch.values_gradient, 0, slots * sizeof(F));
    for (int64_t end = s.steps; end > 0; end = begin) {
      begin = (end - 1) / scratch.chunk * scratch.chunk;
      count = end - begin;
      for (int64_t t = end - 1; t >= begin; t--) step(t);
      for (int64_t i = 0; i < rows; i++)
        for (int64_t h = 0; h < s.heads; h++) push_older(i, h), push_source(i, h);
      add_weight_gradients();
    }
    for (int64_t i = 0; i < rows && s.carried; i++) finish_carried(i);
  }

 private:
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

  void step(int64_t t) {
    const int64_t d = s.width;
    F *memory_gradient = scratch.memory_now, *x = scratch.now;
    undo_memory(t, memory_gradient);
    for (int64_t i = 0; i < rows; i++) {
      const F* g = io.y_gradient + ((first + i) * s.steps + t) * d;
      for (int64_t c = 0; c < d; c++) x[i * d + c] = g[c] + raw.mixing[s.layers] * memory_gradient[i * d + c];
    }
    add_mixing_gradient(s.layers, layer_input(s.layers, t, scratch.normal), memory_gradient);
    for (int64_t l = s.layers - 1; l >= 0; l--) {
      add_mixing_gradient(l, prepare_inputs(l, t), memory_gradient);
      undo_layer(l, t, x);
      add_scaled(x, raw.mixing[l], memory_gradient, rows * d);
    }
    for (int64_t i = 0; i < rows; i++)
      std::memcpy(io.x_gradient + ((first + i) * s.steps + t) * d, x + i * d, d * sizeof(F));
  }

  // Gradient of m_t, from the keys and values of its slot and from outside.
  void undo_memory(int64_t t, F* gradient) {
    const int64_t d = s.width, at = tape.row(0, t, first), here = (t - begin) * rows;
    F* projected = scratch.projected_gradient + here * s.projected();
    F* normal = scratch.memory_input + here * d;
    for (int64_t i = 0; i < rows; i++)
      for (int64_t p = 0; p < s.pairs; p++)
        for (int64_t h = 0; h < s.heads; h++) pull_slot(i, p, h, t, projected + i * s.projected());
    times<F>(rows, projected, s.projected(), Packed<F>{w.key_value, s.projected(), d}, gradient, d, Into::overwrite);
    for (int64_t i = 0; i < rows; i++) {
      const F *m = tape.memory + (at + i) * d, *outside = io.memories_gradient + ((first + i) * s.steps + t) * d;
      F* g = gradient + i * d;
      if (s.pre_norm) {
        const F scale = tape.memory_scale[at + i];
        normalise(m, Moments<F>{tape.memory_mean[at + i], scale}, normal + i * d, d);
        layer_norm_backward(outside, g, normal + i * d, scale, g, d);
      } else {
        std::memcpy(normal + i * d, m, d * sizeof(F));
        add_scaled(g, F(1), outside, d);
      }
    }
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

  // x^l of the group's rows; `room` is used where it is not on the tape as such.
  const F* layer_input(int64_t l, int64_t t, F* room) {
    const F* kept = tape.residual + tape.row(l, t, first) * s.width;
    if (s.pre_norm || l == 0) return kept;
    for (int64_t i = 0; i < rows; i++)
      affine(kept + i * s.width, raw.feed_forward_gain, raw.feed_forward_shift, l - 1, room + i * s.width);
    return room;
  }

  // Fills what the query and the feed-forward projection of layer l read; returns x^l.
  const F* prepare_inputs(int64_t l, int64_t t) {
    const int64_t d = s.width, at = tape.row(l, t, first), here = chunk_row(l, t);
    F* input = scratch.query_input + here * d;
    const F* x = layer_input(l, t, input);
    for (int64_t i = 0; i < rows; i++) {
      if (s.pre_norm) {
        normalise(x + i * d, Moments<F>{tape.mean[at + i], tape.scale[at + i]}, input + i * d, d);
      } else {
        if (l == 0) std::memcpy(input + i * d, x + i * d, d * sizeof(F));
        affine(tape.inner_normal + (at + i) * d, raw.attention_gain, raw.attention_shift, l,
               (s.source ? scratch.source_input : scratch.feed_input) + (here + i) * d);
        if (s.source)
          affine(tape.source_normal + (at + i) * d, raw.source_gain, raw.source_shift, l,
                 scratch.feed_input + (here + i) * d);
      }
    }
    return x;
  }

  void add_mixing_gradient(int64_t l, const F* x, const F* memory_gradient) {
    sums.mixing[l] += dot(x, memory_gradient, rows * s.width);
  }

  // x: gradient of x^{l+1}, becomes that of x^l (without what the memory adds).
  void undo_layer(int64_t l, int64_t t, F* x) {
    const int64_t d = s.width, at = tape.row(l, t, first), here = chunk_row(l, t);
    F *sum = scratch.sum_gradient + here * d, *after = scratch.after_gradient + here * d;
    F* fed = s.source ? scratch.source_after_gradient + here * d : after;  // of the sum before the feed-forward
    F *hidden = scratch.hidden_gradient + here * s.inner, *query = scratch.query_gradient + here * s.inside();
    F* normal = scratch.normal;
    const F* above = tape.residual + tape.row(l + 1, t, first) * d;
    for (int64_t i = 0; i < rows; i++) {
      if (s.pre_norm) std::memcpy(sum + i * d, x + i * d, d * sizeof(F));
      else undo_post_norm(2, l, x + i * d, above + i * d, tape.outer_scale[at + i], sum + i * d);
    }
    product(sum, w.contract + l * w.contract_size, d, s.inner, hidden);
    const F *kept = tape.hidden + at * s.inner, keep_scale = F(s.keep_scale());
    for (int64_t c = 0; c < rows * s.inner; c++) hidden[c] = kept[c] > 0 ? hidden[c] * keep_scale : F(0);
    product(hidden, w.expand + l * w.expand_size, s.inner, d, normal);
    for (int64_t i = 0; i < rows; i++) {
      if (s.pre_norm)
        layer_norm_backward(sum + i * d, normal + i * d, tape.inner_normal + (at + i) * d, tape.outer_scale[at + i],
                            fed + i * d, d);
      else
        undo_sum_and_norm(s.source ? 4 : 0, l, at + i, sum + i * d, normal + i * d, fed + i * d);
    }
    if (s.source) undo_source(l, t, fed, after);
    product(after, w.output + l * w.output_size, d, s.inside(), scratch.mixed);
    undo_attention(l, t, query);
    product(query, w.query + l * w.query_size, s.inside(), d, normal);
    for (int64_t i = 0; i < rows; i++) {
      if (s.pre_norm)
        layer_norm_backward(after + i * d, normal + i * d, scratch.query_input + (here + i) * d, tape.scale[at + i],
                            x + i * d, d);
      else
        for (int64_t c = i * d; c < (i + 1) * d; c++) x[c] = after[c] + normal[c];
    }
  }

  // fed: gradient of the sum behind the source; after: becomes that of the sum before it.
  void undo_source(int64_t l, int64_t t, const F* fed, F* after) {
    const int64_t d = s.width, hk = s.inside(), at = tape.row(l, t, first), here = chunk_row(l, t);
    F *query = scratch.source_query_gradient + here * hk, *normal = scratch.normal;
    product(fed, w.source_output + l * w.output_size, d, hk, scratch.mixed);
    for (int64_t i = 0; i < rows; i++)
      for (int64_t h = 0; h < s.heads; h++) {
        const int64_t c = (i * s.heads + h) * s.head;
        undo_source_head(l, t, i, h, scratch.mixed + c, query + c);
      }
    product(query, w.source_query + l * w.query_size, hk, d, normal);
    for (int64_t i = 0; i < rows; i++) {
      if (s.pre_norm)
        layer_norm_backward(fed + i * d, normal + i * d, tape.source_normal + (at + i) * d, tape.source_scale[at + i],
                            after + i * d, d);
      else
        undo_sum_and_norm(0, l, at + i, fed + i * d, normal + i * d, after + i * d);
    }
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

  // Post-norm: g, the gradient of what the norm gives, is that of the next sum and of what was projected together.
  void undo_sum_and_norm(int which, int64_t l, int64_t at, const F* next, F* g, F* out) {
    const F *normal = which ? tape.source_normal : tape.inner_normal, *scale = which ? tape.source_scale : tape.scale;
    add_scaled(g, F(1), next, s.width);
    undo_post_norm(which, l, g, normal + at * s.width, scale[at], out);
  }

  // Through out = gain * normal + shift and the norm before it; `which` as in ForwardPack::gains. g is overwritten.
  void undo_post_norm(int which, int64_t l, F* g, const F* normal, F scale, F* out) {
    const F* gains[3] = {raw.attention_gain, raw.feed_forward_gain, raw.source_gain};
    const F* gain = gains[which / 2] + l * s.width;
    F *gain_sum = sums.gains + (which * s.layers + l) * s.width, *shift_sum = gain_sum + s.layers * s.width;
    for (int64_t c = 0; c < s.width; c++) {
      gain_sum[c] += g[c] * normal[c];
      shift_sum[c] += g[c];
      g[c] *= gain[c];
    }
    layer_norm_backward((const F*)nullptr, g, normal, scale, out, s.width);
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

  void add_weight_gradients() {
    const int64_t d = s.width, hk = s.inside(), f = s.inner;
    for (int64_t l = 0; l < s.layers; l++) {
      const int64_t here = chunk_row(l, begin), at = tape.row(l, begin, first);
      const F* feed = s.pre_norm ? nullptr : scratch.feed_input + here * d;
      add_gradient(of_chunk(scratch.query_gradient + here * hk, hk), hk, of_chunk(scratch.query_input + here * d, d), d,
                   sums.query + l * hk * d, sums.query_bias + l * hk);
      add_gradient(of_chunk(scratch.after_gradient + here * d, d), d, of_tape(tape.mixed + at * hk, hk), hk,
                   sums.output + l * d * hk, nullptr);
      add_gradient(of_chunk(scratch.hidden_gradient + here * f, f), f,
                   feed ? of_chunk(feed, d) : of_tape(tape.inner_normal + at * d, d), d, sums.expand + l * f * d,
                   sums.expand_bias + l * f);
      add_gradient(of_chunk(scratch.sum_gradient + here * d, d), d, of_tape(tape.hidden + at * f, f), f,
                   sums.contract + l * d * f, sums.contract_bias + l * d);
      if (!s.source) continue;
      add_gradient(of_chunk(scratch.source_query_gradient + here * hk, hk), hk,
                   s.pre_norm ? of_tape(tape.source_normal + at * d, d) : of_chunk(scratch.source_input + here * d, d),
                   d, sums.source_query + l * hk * d, sums.source_bias + l * hk);
      add_gradient(of_chunk(scratch.source_after_gradient + here * d, d), d, of_tape(tape.source_mixed + at * hk, hk),
                   hk, sums.source_output + l * d * hk, nullptr);
    }
    add_projection_gradient(of_chunk(scratch.projected_gradient, s.projected()), of_chunk(scratch.memory_input, d));
  }
  StepRows<F> of_chunk(const F* base, int64_t columns) { return {base, count, rows * columns, rows, columns}; }
  StepRows<F> of_tape(const F* base, int64_t columns) { return {base, count, s.batch * columns, rows, columns}; }

  void add_projection_gradient(StepRows<F> gradient, const StepRows<F>& input) {
    pack_rows(input, s.width, panel<F>, scratch.packed_inputs);
    for (int64_t i = 0; i < 2 * s.pairs; i++, gradient.base += s.inside())
      add_packed_gradient(gradient, s.inside(), s.width, sums.key_value + i * s.inside() * s.width,
                          sums.key_value_bias + i * s.inside());
  }

  // dW [out][in] += g^T x over the rows; the bias gradient is the sum of g.
  void add_gradient(const StepRows<F>& g, int64_t out, const StepRows<F>& x, int64_t in, F* dw, F* bias) {
    pack_rows(x, in, panel<F>, scratch.packed_inputs);
    add_packed_gradient(g, out, in, dw, bias);
  }
  void add_packed_gradient(const StepRows<F>& g, int64_t out, int64_t in, F* dw, F* bias) {
    pack_rows(g, out, tile_rows, scratch.packed_outputs);
    add_weight_gradient(out, in, g.count(), scratch.packed_outputs, scratch.packed_inputs, dw);
    if (bias) add_row_sums(g, out, bias);
  }

  // Carried memories: their keys and values give gradient to the projections, and to the memories if asked.
  void finish_carried(int64_t i) {
    const int64_t d = s.width, hk = s.inside();
    const F* memory = io.memory + (first + i) * s.carried * d;
    F *normal = scratch.carried_normal, *projected = scratch.carried_gradient;
    for (int64_t j = 0; j < s.carried; j++) {
      for (int64_t p = 0; p < s.pairs; p++)
        for (int64_t h = 0; h < s.heads; h++) {
          F* to = projected + j * s.projected() + p * 2 * hk + h * s.head;
          std::memcpy(to, scratch.keys_gradient + slot_of(i, p, h, j), s.head * sizeof(F));
          std::memcpy(to + hk, scratch.values_gradient + slot_of(i, p, h, j), s.head * sizeof(F));
        }
    }
    std::memcpy(normal, memory, s.carried * d * sizeof(F));
    F* out = io.memory_gradient ? io.memory_gradient + (first + i) * s.carried * d : nullptr;
    const Packed<F> weights{w.key_value, s.projected(), d};
    if (out) times<F>(s.carried, projected, s.projected(), weights, out, d, Into::overwrite);
    for (int64_t j = 0; s.pre_norm && j < s.carried; j++) {
      const Moments<F> moments = layer_norm(normal + j * d, normal + j * d, d);
      F* row = out + j * d;
      if (out) layer_norm_backward((const F*)nullptr, row, normal + j * d, moments.inverse_deviation, row, d);
    }
    if (!s.windows)
      return add_projection_gradient({projected, 1, 0, s.carried, s.projected()}, {normal, 1, 0, s.carried, d});
    for (int64_t c = 0; c < s.projected(); c += s.head) {  // head by head, over the slots that it sees
      const int64_t far = scratch.sights.farthest(s, c / (2 * hk), c % hk / s.head);
      const int64_t seen = far < s.carried ? far : s.carried, from = s.carried - seen;
      add_gradient({projected + from * s.projected() + c, 1, 0, seen, s.projected()}, s.head,
                   {normal + from * d, 1, 0, seen, d}, d, sums.key_value + c * d, sums.key_value_bias + c);
    }
  }

  void affine(const F* normal, const F* gains, const F* shifts, int64_t l, F* out) {
    for (int64_t c = 0; c < s.width; c++) out[c] = normal[c] * gains[l * s.width + c] + shifts[l * s.width + c];
  }
  void product(const F* a, const F* packed, int64_t depth, int64_t columns, F* c) {
    times<F>(rows, a, depth, Packed<F>{packed, depth, columns}, c, columns, Into::overwrite);
  }
};
