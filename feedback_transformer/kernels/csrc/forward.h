// The block forward: groups of rows run through all steps, so that their keys and values stay in the cache.
#pragma once
#include "attention.h"
#include "layout.h"

// All weights as the forward products read them, the norms' gains and shifts folded in.
template <class F> struct ForwardPack {
  F *query, *output, *expand, *contract, *key_value, *position;  // packed; query..contract [L]
  F *source_query, *source_output, *source_bias;                 // packed [L], [L][H*K]; nothing without a source
  F *query_bias, *expand_bias, *contract_bias, *key_value_bias;  // [L][H*K] [L][F] [L][D] [P*2*H*K]
  F *gains;                                                      // [4 or 6][L][D]: gains and shifts, for post-norm
  F *mixing, *position_bias, *span;                              // [L+1], [H][W], [L][H][W] or null
  int64_t query_size, output_size, expand_size, contract_size;
  bool has_position_bias;

  ForwardPack(Arena<F>& arena, const Shape& s, bool position_biased) : has_position_bias(position_biased) {
    query_size = Packed<F>::size(s.width, s.inside()), output_size = Packed<F>::size(s.inside(), s.width);
    expand_size = Packed<F>::size(s.width, s.inner), contract_size = Packed<F>::size(s.inner, s.width);
    query = arena.take(s.layers * query_size), output = arena.take(s.layers * output_size);
    expand = arena.take(s.layers * expand_size), contract = arena.take(s.layers * contract_size);
    key_value = arena.take(Packed<F>::size(s.width, s.projected()));
    position = arena.take(Packed<F>::size(s.head, s.reach));
    query_bias = arena.take(s.layers * s.inside()), expand_bias = arena.take(s.layers * s.inner);
    contract_bias = arena.take(s.layers * s.width), key_value_bias = arena.take(s.projected());
    gains = arena.take(2 * s.norms() * s.layers * s.width), mixing = arena.take(s.layers + 1);
    const int64_t readers = s.source ? s.layers : 0;
    source_query = arena.take(readers * query_size), source_output = arena.take(readers * output_size);
    source_bias = arena.take(readers * s.inside());
    position_bias = arena.take(s.heads * s.reach);
    span = s.windows ? arena.take(s.layers * s.heads * s.reach) : nullptr;
  }
  const F* gain(const Shape& s, int which, int64_t layer) const { return gains + (which * s.layers + layer) * s.width; }
};

// out[i] = scale * W[i] . shift + bias[i]; a null shift or bias counts as zero
template <class F>
void folded_bias(const F* w, const F* shift, const F* bias, F scale, F* to, int64_t out, int64_t in) {
  for (int64_t i = 0; i < out; i++)
    to[i] = (shift ? scale * dot(w + i * in, shift, in) : F(0)) + (bias ? bias[i] : F(0));
}

template <class F> void fill_pack(const Shape& s, const Weights<F>& w, ForwardPack<F>& p) {
  const int64_t d = s.width, hk = s.inside(), f = s.inner;
  const F scale = F(s.query_scale());
  Packed<F>::clear_tail(p.key_value, d, s.projected());
  Packed<F>::clear_tail(p.position, s.head, s.reach);
  for (int64_t l = 0; l < s.layers; l++) {
    const F* gain1 = s.pre_norm ? w.attention_gain + l * d : nullptr;
    const F* gain2 = s.pre_norm ? w.feed_forward_gain + l * d : nullptr;
    Packed<F>::clear_tail(p.query + l * p.query_size, d, hk);
    Packed<F>::clear_tail(p.output + l * p.output_size, hk, d);
    Packed<F>::clear_tail(p.expand + l * p.expand_size, d, f);
    Packed<F>::clear_tail(p.contract + l * p.contract_size, f, d);
    pack_forward(w.query + l * hk * d, hk, d, gain1, scale, p.query + l * p.query_size, 0, d);
    pack_forward(w.output + l * d * hk, d, hk, (const F*)nullptr, F(1), p.output + l * p.output_size, 0, hk);
    pack_forward(w.expand + l * f * d, f, d, gain2, F(1), p.expand + l * p.expand_size, 0, d);
    pack_forward(w.contract + l * d * f, d, f, (const F*)nullptr, F(1), p.contract + l * p.contract_size, 0, f);
    folded_bias(w.query + l * hk * d, s.pre_norm ? w.attention_shift + l * d : nullptr, (const F*)nullptr, scale,
                p.query_bias + l * hk, hk, d);
    folded_bias(w.expand + l * f * d, s.pre_norm ? w.feed_forward_shift + l * d : nullptr, w.expand_bias + l * f, F(1),
                p.expand_bias + l * f, f, d);
    if (!s.source) continue;
    const F* gain3 = s.pre_norm ? w.source_gain + l * d : nullptr;
    Packed<F>::clear_tail(p.source_query + l * p.query_size, d, hk);
    Packed<F>::clear_tail(p.source_output + l * p.output_size, hk, d);
    pack_forward(w.source_query + l * hk * d, hk, d, gain3, scale, p.source_query + l * p.query_size, 0, d);
    pack_forward(w.source_output + l * d * hk, d, hk, (const F*)nullptr, F(1), p.source_output + l * p.output_size, 0,
                 hk);
    folded_bias(w.source_query + l * hk * d, s.pre_norm ? w.source_shift + l * d : nullptr, (const F*)nullptr, scale,
                p.source_bias + l * hk, hk, d);
  }
  for (int64_t i = 0; i < 2 * s.pairs; i++) {
    const F* weight = (i % 2 ? w.value : w.key) + i / 2 * hk * d;
    const F* gain = s.pre_norm ? w.memory_gain + i / 2 * d : nullptr;
    pack_forward(weight, hk, d, gain, F(1), p.key_value, i * hk, d);
    folded_bias(weight, s.pre_norm ? w.memory_shift + i / 2 * d : nullptr, (const F*)nullptr, F(1),
                p.key_value_bias + i * hk, hk, d);
  }
  const int64_t skipped = s.window - s.reach;  // columns of distances that this block does not know
  for (int64_t c = 0; c < s.reach; c++)
    for (int64_t k = 0; k < s.head; k++)
      p.position[c / panel<F> * panel<F> * s.head + k * panel<F> + c % panel<F>] =
          w.position[k * s.window + skipped + c];
  const F* gains[6] = {w.attention_gain,     w.attention_shift, w.feed_forward_gain,
                       w.feed_forward_shift, w.source_gain,     w.source_shift};
  for (int i = 0; i < 2 * s.norms(); i++) std::memcpy(p.gains + i * s.layers * d, gains[i], s.layers * d * sizeof(F));
  std::memcpy(p.contract_bias, w.contract_bias, s.layers * d * sizeof(F));
  std::memcpy(p.mixing, w.mixing, (s.layers + 1) * sizeof(F));
  for (int64_t h = 0; p.has_position_bias && h < s.heads; h++)
    std::memcpy(p.position_bias + h * s.reach, w.position_bias + h * s.window + skipped, s.reach * sizeof(F));
  for (int64_t i = 0; p.span && i < s.layers * s.heads; i++)
    std::memcpy(p.span + i * s.reach, w.span + i * s.window + skipped, s.reach * sizeof(F));
}

template <class F> struct ForwardIO {
  const F *x, *memory;  // [B][T][D], [B][M][D]
  History history;
  F *y, *memories;      // [B][T][D]
  int64_t memories_stride;  // from a row's memories to the next row's: T*D, or more inside a larger buffer
  KeyValues<F> cache;
  SourceKeys<F> source;
};

constexpr int64_t carried_together = 36;  // memories projected at once; tiles of 6 and of 12 rows fit in

template <class F> struct ForwardScratch {
  F *now, *normal, *used, *projected, *carried;
  int64_t* history;
  ForwardScratch(Arena<F>& arena, const Shape& s, int64_t rows) {
    const int64_t wide = rows > carried_together ? rows : carried_together;
    now = arena.take(2 * rows * s.width), normal = arena.take(rows * s.width), used = arena.take((s.reach > s.source ? s.reach : s.source) + 8);
    projected = arena.take(wide * s.projected()), carried = arena.take(carried_together * s.width);
    history = reinterpret_cast<int64_t*>(arena.take(rows * 2));
  }
};

// Rows first .. first + rows of the batch.
template <class F> class ForwardGroup {
 public:
  ForwardGroup(const Shape& s, const ForwardPack<F>& w, const Tape<F>& tape, const ForwardIO<F>& io,
               const ForwardScratch<F>& scratch, int64_t first, int64_t rows)
      : s(s), w(w), tape(tape), io(io), scratch(scratch), first(first), rows(rows) {}

  void run() {
    if (s.carried && io.memory) project_carried();
    for (int64_t t = 0; t < s.steps; t++) step(t);
  }

  void step(int64_t t) {
    io.history.advance(s, t, first, rows, scratch.history);
    F* x = tape.residual + tape.row(0, t, first) * s.width;
    F* memory = tape.memory + tape.row(0, t, first) * s.width;
    for (int64_t i = 0; i < rows; i++) {
      std::memcpy(x + i * s.width, io.x + ((first + i) * s.steps + t) * s.width, s.width * sizeof(F));
      for (int64_t c = 0; c < s.width; c++) memory[i * s.width + c] = w.mixing[0] * x[i * s.width + c];
    }
    for (int64_t l = 0; l < s.layers; l++) {
      x = layer(l, t, x);
      add_scaled(memory, w.mixing[l + 1], x, rows * s.width);
    }
    for (int64_t i = 0; i < rows; i++) {
      F* to = io.memories + (first + i) * io.memories_stride + t * s.width;
      std::memcpy(io.y + ((first + i) * s.steps + t) * s.width, x + i * s.width, s.width * sizeof(F));
      std::memcpy(to, memory + i * s.width, s.width * sizeof(F));
    }
    project_memory(t, memory);
  }

 private:
  const Shape& s;
  const ForwardPack<F>& w;
  const Tape<F>& tape;
  const ForwardIO<F>& io;
  const ForwardScratch<F>& scratch;
  int64_t first, rows;
  std::vector<int64_t> panel_reach;  // how far back the heads in a panel of keys and values see

  // x^l -> x^{l+1}
  F* layer(int64_t l, int64_t t, F* x) {
    const int64_t at = tape.row(l, t, first), d = s.width;
    F *query = tape.query + at * s.inside(), *mixed = tape.mixed + at * s.inside();
    F *hidden = tape.hidden + at * s.inner, *inner_normal = tape.inner_normal + at * d;
    const F* normal = x;
    if (s.pre_norm) {
      for (int64_t i = 0; i < rows; i++) keep(at + i, layer_norm(x + i * d, scratch.normal + i * d, d));
      normal = scratch.normal;
    }
    spread(w.query_bias + l * s.inside(), query, s.inside());
    product(normal, w.query + l * w.query_size, d, s.inside(), query);
    for (int64_t i = 0; s.log_scale && i < rows; i++)
      scale_by(query + i * s.inside(), F(s.sharpness(scratch.history[i])), s.inside());
    attend(l, t, query, mixed);
    F* z = scratch.now;
    std::memcpy(z, x, rows * d * sizeof(F));
    product(mixed, w.output + l * w.output_size, s.inside(), d, z);
    for (int64_t i = 0; !s.pre_norm && i < rows; i++) {
      keep(at + i, layer_norm(z + i * d, inner_normal + i * d, d));
      affine(inner_normal + i * d, 0, l, z + i * d);
    }
    if (s.source) read_source(l, t, z);
    const F* feed = s.pre_norm ? inner_normal : z;
    for (int64_t i = 0; s.pre_norm && i < rows; i++)
      tape.outer_scale[at + i] = layer_norm(z + i * d, inner_normal + i * d, d).inverse_deviation;
    spread(w.expand_bias + l * s.inner, hidden, s.inner);
    product(feed, w.expand + l * w.expand_size, d, s.inner, hidden);
    activate(l, t, hidden);
    return finish_layer(l, t, z, hidden);
  }

  // s = z + W2 u + b2, and the norm behind it when it is post-norm
  F* finish_layer(int64_t l, int64_t t, const F* z, const F* hidden) {
    const int64_t d = s.width, above = tape.row(l + 1, t, first);
    F* next = tape.residual + above * d;
    for (int64_t i = 0; i < rows; i++)
      for (int64_t c = 0; c < d; c++) next[i * d + c] = z[i * d + c] + w.contract_bias[l * d + c];
    product(hidden, w.contract + l * w.contract_size, s.inner, d, next);
    if (s.pre_norm) return next;
    F* x = scratch.now + rows * d;
    for (int64_t i = 0; i < rows; i++) {
      tape.outer_scale[tape.row(l, t, first) + i] = layer_norm(next + i * d, next + i * d, d).inverse_deviation;
      affine(next + i * d, 2, l, x + i * d);
    }
    return x;
  }

  void attend(int64_t l, int64_t t, const F* query, F* mixed) {
    int64_t longest = 0;
    for (int64_t i = 0; i < rows; i++) longest = longest > scratch.history[i] ? longest : scratch.history[i];
    const Sights<F>& sights = tape.sights;
    const int64_t together = s.windows ? 1 : s.heads;  // heads that see as far as each other share a product
    for (int64_t h = 0; h < s.heads; h += together) {
      // Nobody sees as far back as these columns.
      const int64_t skip = (s.reach - sights.seen(l, h, longest)) / panel<F> * panel<F>, columns = s.reach - skip;
      multiply<F>(rows * together, columns, s.head, RowMajor<F>{query + h * s.head, s.inside() / together},
                  Panels<F>{w.position + skip * s.head, s.head * panel<F>, panel<F>},
                  Target<F>{tape.marked_end(l, t, first, h) - columns, sights.width[l] / together, Into::overwrite});
    }
    for (int64_t i = 0; i < rows; i++)
      for (int64_t h = 0; h < s.heads; h++) {
        const int64_t c = (i * s.heads + h) * s.head;
        attend_head(l, t, i, h, query + c, mixed + c);
      }
  }

  void attend_head(int64_t l, int64_t t, int64_t i, int64_t h, const F* query, F* mixed) {
    const int64_t seen = tape.sights.seen(l, h, scratch.history[i]);
    if (seen == 0) return (void)std::memset(mixed, 0, s.head * sizeof(F));
    const int64_t at = io.cache.at(s, first + i, s.pair(l), h, s.carried + t - seen), skip = s.reach - seen;
    const F* span = w.span ? w.span + (l * s.heads + h) * s.reach + skip : nullptr;
    F *p = tape.marked_end(l, t, first + i, h) - seen, *used = scratch.used;
    if (w.has_position_bias) add_scaled(p, F(1), w.position_bias + h * s.reach + skip, seen);
    add_scores(query, io.cache.keys + at, p, seen, s.head);
    softmax(p, span, seen);
    if (s.dropout > 0) {
      const Mask mask(s.seed, s.place(l, t, first + i, h), s.dropout);
      mark_dropped(p, seen, mask, uint32_t(s.window - seen), F(s.keep_scale()), used);
    }
    if (span) multiply_by(used, s.dropout > 0 ? used : p, span, seen);
    else if (s.dropout == 0) used = p;
    weighted_sum(used, io.cache.values + at, mixed, seen, s.head, Into::overwrite);
  }

  // z += Wo_s attention(z, source), with the norm before or behind
  void read_source(int64_t l, int64_t t, F* z) {
    const int64_t at = tape.row(l, t, first), d = s.width, hk = s.inside();
    F *normal = tape.source_normal + at * d, *query = tape.source_query + at * hk, *mixed = tape.source_mixed + at * hk;
    auto norm = [&](int64_t i) {
      tape.source_scale[at + i] = layer_norm(z + i * d, normal + i * d, d).inverse_deviation;
    };
    for (int64_t i = 0; s.pre_norm && i < rows; i++) norm(i);
    spread(w.source_bias + l * hk, query, hk);
    product(s.pre_norm ? normal : z, w.source_query + l * w.query_size, d, hk, query);
    for (int64_t i = 0; i < rows; i++)
      for (int64_t h = 0; h < s.heads; h++) {
        const int64_t c = (i * s.heads + h) * s.head;
        read_head(l, t, first + i, h, query + c, mixed + c);
      }
    product(mixed, w.source_output + l * w.output_size, hk, d, z);
    for (int64_t i = 0; !s.pre_norm && i < rows; i++) norm(i), affine(normal + i * d, 4, l, z + i * d);
  }

  void read_head(int64_t l, int64_t t, int64_t row, int64_t h, const F* query, F* mixed) {
    const int64_t from = io.source.row(s, row), seen = io.source.length[from], at = io.source.at(s, l, row, h);
    F *p = tape.source_marked + (tape.row(l, t, row) * s.heads + h) * s.source, *used = scratch.used;
    std::memcpy(p, io.source.mask + from * s.source, seen * sizeof(F));
    add_scores(query, io.source.keys + at, p, seen, s.head);
    softmax(p, (const F*)nullptr, seen);
    if (s.dropout > 0)
      mark_dropped(p, seen, Mask(s.seed, s.place(l, t, row, s.heads + 1 + h), s.dropout), 0, F(s.keep_scale()), used);
    else
      used = p;
    weighted_sum(used, io.source.values + at, mixed, seen, s.head, Into::overwrite);
  }

  void activate(int64_t l, int64_t t, F* hidden) {
    const F keep_scale = F(s.keep_scale());
    for (int64_t i = 0; i < rows; i++) {
      F* u = hidden + i * s.inner;
      if (s.dropout > 0) {
        const Mask mask(s.seed, s.place(l, t, first + i, s.heads), s.dropout);
        for (int64_t c = 0; c < s.inner; c++) {
          const F positive = u[c] < 0 ? F(0) : u[c];
          u[c] = mask.keeps(uint32_t(c)) ? positive * keep_scale : F(0);
        }
      } else {
        for (int64_t c = 0; c < s.inner; c++) u[c] = u[c] < 0 ? F(0) : u[c];
      }
    }
  }

  // Keys and values of m_t into slot M + t.
  void project_memory(int64_t t, const F* memory) {
    const F* normal = memory;
    if (s.pre_norm) {
      const int64_t at = tape.row(0, t, first);
      for (int64_t i = 0; i < rows; i++) {
        const Moments<F> m = layer_norm(memory + i * s.width, scratch.normal + i * s.width, s.width);
        tape.memory_mean[at + i] = m.mean, tape.memory_scale[at + i] = m.inverse_deviation;
      }
      normal = scratch.normal;
    }
    spread(w.key_value_bias, scratch.projected, s.projected());
    product(normal, w.key_value, s.width, s.projected(), scratch.projected);
    for (int64_t i = 0; i < rows; i++) write_slot(first + i, s.carried + t, scratch.projected + i * s.projected());
  }

  // Keys and values of the carried memories, once a block, with this block's weights; a few at a time, so that what is
  // between memory and slot stays in the cache. A block projects for a head only what its span reaches; a stream of
  // single steps begins with all, since a span may grow while it goes on.
  void project_carried() {
    panel_reach.assign((s.projected() + panel<F> - 1) / panel<F>, s.steps ? 0 : s.carried);
    for (int64_t c = 0; c < s.projected(); c++) {
      const int64_t reach = tape.sights.farthest(s, c / (2 * s.inside()), c % s.inside() / s.head);
      panel_reach[c / panel<F>] = panel_reach[c / panel<F>] > reach ? panel_reach[c / panel<F>] : reach;
    }
    for (int64_t i = 0; i < rows; i++)
      for (int64_t j = 0; j < s.carried; j += carried_together)
        project_some(first + i, j, s.carried - j < carried_together ? s.carried - j : carried_together);
  }
  void project_some(int64_t row, int64_t slot, int64_t count) {
    const F *memory = io.memory + (row * s.carried + slot) * s.width, *normal = memory;
    if (s.pre_norm) {
      for (int64_t j = 0; j < count; j++) layer_norm(memory + j * s.width, scratch.carried + j * s.width, s.width);
      normal = scratch.carried;
    }
    F* projected = scratch.projected;
    for (int64_t j = 0; j < count; j++)
      std::memcpy(projected + j * s.projected(), w.key_value_bias, s.projected() * sizeof(F));
    const int64_t nearest = s.carried - slot - count + 1, panels = panel_reach.size();  // steps from the block's first
    for (int64_t p = 0, end; p < panels; p = end) {
      for (end = p + 1; end < panels && (panel_reach[end] < nearest) == (panel_reach[p] < nearest);) end++;
      if (panel_reach[p] < nearest) continue;
      const int64_t c = p * panel<F>, columns = (end < panels ? end * panel<F> : s.projected()) - c;
      const Packed<F> weights{w.key_value + c * s.width, s.width, columns};
      times<F>(count, normal, s.width, weights, projected + c, s.projected(), Into::add);
    }
    for (int64_t j = 0; j < count; j++) write_slot(row, slot + j, projected + j * s.projected());
  }

  void write_slot(int64_t row, int64_t slot, const F* projected) {
    for (int64_t p = 0; p < s.pairs; p++)
      for (int64_t h = 0; h < s.heads; h++) {
        const int64_t to = io.cache.at(s, row, p, h, slot);
        const F* from = projected + p * 2 * s.inside() + h * s.head;
        std::memcpy(io.cache.keys + to, from, s.head * sizeof(F));
        std::memcpy(io.cache.values + to, from + s.inside(), s.head * sizeof(F));
      }
  }

  void keep(int64_t at, Moments<F> m) { tape.mean[at] = m.mean, tape.scale[at] = m.inverse_deviation; }
  void affine(const F* normal, int which, int64_t layer, F* out) {
    const F *gain = w.gain(s, which, layer), *shift = w.gain(s, which + 1, layer);
    for (int64_t c = 0; c < s.width; c++) out[c] = normal[c] * gain[c] + shift[c];
  }
  void spread(const F* bias, F* to, int64_t columns) {
    for (int64_t i = 0; i < rows; i++) std::memcpy(to + i * columns, bias, columns * sizeof(F));
  }
  void product(const F* a, const F* packed, int64_t depth, int64_t columns, F* c) {
    times<F>(rows, a, depth, Packed<F>{packed, depth, columns}, c, columns, Into::add);
  }
};
