// A group of rows, undone step by step: layers, memories, weights. See backward_attention.h for its attention, backward.h
// for what waits and layout.h for the maths.
#pragma once
#include "backward_attention.h"

template <class F> class BackwardGroup : BackwardAttention<F> {
  using Base = BackwardAttention<F>;
  using Base::s, Base::raw, Base::w, Base::tape, Base::io, Base::scratch, Base::sums, Base::first, Base::rows;
  using Base::begin, Base::count, Base::history_at, Base::chunk_row, Base::slot_of, Base::pull_slot;
  using Base::undo_attention, Base::undo_source_head, Base::push_older, Base::push_source;

 public:
  using Base::Base;

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
    // What the first step does not see no step does: it has no gradient, whatever it holds (0 * NaN would be NaN).
    std::memset(normal, 0, (s.carried - history_at(0)[i]) * d * sizeof(F));
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
