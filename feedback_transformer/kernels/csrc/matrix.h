// Matrix products for few rows, and the packing they read.
//
//   C[r][c] (+)= sum_k A(r, k) B(k, c)
//
// C is computed in tiles of up to `tile_rows` rows by a panel of two vectors that stay in registers while k runs. B is
// read panel by panel: packed, a panel is [depth][panel], so that a weight is read once, in order, whatever the number
// of rows. Every element is summed in the order of k, so a row's result does not depend on the rows beside it.
#pragma once
#include "memory.h"
#include "vector.h"

template <class F> constexpr int64_t panel = 2 * lanes<F>;

enum class Into { overwrite, add };

// Where A(r, k) is.
template <class F> struct RowMajor {  // rows of activations
  const F* base;
  int64_t stride;
  F at(int64_t r, int64_t k) const { return base[r * stride + k]; }
  RowMajor from_row(int64_t r) const { return {base + r * stride, stride}; }
};
template <class F> struct DepthMajor {  // packed columns of activations: the k-th row holds A(., k)
  const F* base;
  int64_t stride;
  F at(int64_t r, int64_t k) const { return base[k * stride + r]; }
  DepthMajor from_row(int64_t r) const { return {base + r, stride}; }
};
template <class F> struct Listed {  // the same, each k at a place of its own
  const F* base;
  const int64_t* offset;
  F at(int64_t r, int64_t k) const { return base[offset[k] + r]; }
  Listed from_row(int64_t r) const { return {base + r, offset}; }
};

// Where B(k, c) is: panel i begins at base + i * panel_stride, its row k at k * depth_stride. Up to a panel is read
// past the last column, never used.
template <class F> struct Panels {
  const F* base;
  int64_t panel_stride, depth_stride;
};
// Memory to be fetched into the cache while a tile is computed: `step` bytes further with every k.
struct Ahead {
  const char* from = nullptr;
  int64_t step = 0;
};
template <class F> struct Target {
  F* base;
  int64_t stride;
  Into into;
};

template <class F>
__attribute__((always_inline)) inline void store_row(F* c, const Vector<F>* sums, int count, Into into,
                                                     int64_t columns) {
  const int64_t wide = lanes<F>;
  if (columns >= count * wide) {
    for (int v = 0; v < count; v++) store(c + v * wide, into == Into::add ? load(c + v * wide) + sums[v] : sums[v]);
    return;
  }
  for (int64_t i = 0; i < columns; i++) {
    const F sum = sums[i / wide][i % wide];
    c[i] = into == Into::add ? c[i] + sum : sum;
  }
}

// Rows x (Wide panels) of C, all sums in registers.
// `ahead`: what will be read next; it is fetched on the way, one part in `share` of it.
template <class F, int Rows, int Wide, class A>
inline void tile(int64_t depth, A a, Panels<F> b, Target<F> c, int64_t columns, Ahead ahead = {}) {
  constexpr int count = 2 * Wide;
  Vector<F> sums[Rows][count];
  for (int r = 0; r < Rows; r++)
    for (int v = 0; v < count; v++) sums[r][v] = Vector<F>{};
  for (int r = 0; r < Rows && c.into == Into::add; r++) __builtin_prefetch(c.base + r * c.stride, 1);
  for (int64_t k = 0; k < depth; k++) {
    Vector<F> row[count];
    if (Rows > 3) __builtin_prefetch(ahead.from + k * ahead.step, 0, 2);
#pragma GCC unroll 8
    for (int v = 0; v < count; v++) {
      const F* at = b.base + (v / 2) * b.panel_stride + k * b.depth_stride + (v % 2) * lanes<F>;
      row[v] = load(at);
    }
#pragma GCC unroll 16
    for (int r = 0; r < Rows; r++) {
      const F x = a.at(r, k);
#pragma GCC unroll 8
      for (int v = 0; v < count; v++) sums[r][v] += x * row[v];
    }
  }
  for (int r = 0; r < Rows; r++) store_row<F>(c.base + r * c.stride, sums[r], count, c.into, columns);
}

// `rows` <= Most is only known now: find its tile. One to three rows take several panels, to keep enough sums going.
template <class F, int Most, class A>
inline void tile_of(int64_t rows, int64_t depth, A a, Panels<F> b, Target<F> c, int64_t columns, Ahead ahead = {}) {
  constexpr int wide = Most == 1 ? 4 : Most <= 3 ? 2 : 1;
  if (rows == Most) {
    int64_t done = 0;
    for (; wide > 1 && done + (wide - 1) * panel<F> < columns; done += wide * panel<F>, b.base += wide * b.panel_stride)
      tile<F, Most, wide>(depth, a, b, {c.base + done, c.stride, c.into}, columns - done);
    for (; done < columns; done += panel<F>, b.base += b.panel_stride)
      tile<F, Most, 1>(depth, a, b, {c.base + done, c.stride, c.into}, columns - done, ahead);
  } else if constexpr (Most > 1) {
    tile_of<F, Most - 1>(rows, depth, a, b, c, columns, ahead);
  }
}

// C[rows][columns] (+)= A B. A panel of B is used by all rows before the next: it comes from far away once.
template <class F, class A>
inline void multiply(int64_t rows, int64_t columns, int64_t depth, A a, Panels<F> b, Target<F> c) {
  if (rows <= 3 && rows > 0) return tile_of<F, 3>(rows, depth, a, b, c, columns);
  const int64_t blocks = (rows + tile_rows - 1) / tile_rows;
  for (int64_t done = 0; done < columns; done += panel<F>, b.base += b.panel_stride) {
    for (int64_t i = 0; i < blocks; i++) {
      const int64_t first = i * rows / blocks, count = (i + 1) * rows / blocks - first;
      const int64_t width = columns - done < panel<F> ? columns - done : panel<F>;
      // Each block of rows fetches its share of the next panel.
      const int64_t step = panel<F> * sizeof(F) / blocks;
      const Ahead ahead{reinterpret_cast<const char*>(b.base + b.panel_stride) + i * depth * step, step};
      tile_of<F, tile_rows>(count, depth, a.from_row(first), b, {c.base + first * c.stride + done, c.stride, c.into},
                            width, ahead);
    }
  }
}

// A weight W [out][in], packed.
template <class F> struct Packed {
  const F* data;
  int64_t depth, columns;
  Panels<F> panels() const { return {data, depth * panel<F>, panel<F>}; }
  static int64_t size(int64_t depth, int64_t columns) { return rounded_up(columns, panel<F>) * depth; }
  // The unused columns of the last panel: never read as numbers, but slow ones (NaN, denormal) must not lie there.
  static void clear_tail(F* data, int64_t depth, int64_t columns) {
    if (columns % panel<F>) std::memset(data + columns / panel<F> * panel<F> * depth, 0, depth * panel<F> * sizeof(F));
  }
};

// For x W^T: depth `in`, columns `out`. With a norm's gain in front of the weight, W is read as W diag(gain) * scale.
template <class F>
void pack_forward(const F* w, int64_t out, int64_t in, const F* gain, F scale, F* packed, int64_t first,
                  int64_t depth) {
  for (int64_t column = 0; column < out; column++) {
    const int64_t at = first + column;
    F* to = packed + at / panel<F> * panel<F> * depth + at % panel<F>;
    for (int64_t k = 0; k < in; k++) to[k * panel<F>] = w[column * in + k] * (gain ? gain[k] * scale : scale);
  }
}
// For g W: depth `out`, columns `in`. `first` is the row of the packed matrix where this weight begins.
template <class F>
void pack_backward(const F* w, int64_t out, int64_t in, const F* gain, F scale, F* packed, int64_t first,
                   int64_t depth) {
  for (int64_t c = 0; c < in; c += panel<F>) {
    const int64_t width = in - c < panel<F> ? in - c : panel<F>;
    F* to = packed + c * depth + first * panel<F>;
    for (int64_t k = 0; k < out; k++, to += panel<F>)
      for (int64_t i = 0; i < width; i++) to[i] = w[k * in + c + i] * (gain ? gain[c + i] * scale : scale);
  }
}

template <class F>
inline void times(int64_t rows, const F* a, int64_t a_stride, const Packed<F>& w, F* c, int64_t c_stride, Into into) {
  multiply<F>(rows, w.columns, w.depth, RowMajor<F>{a, a_stride}, w.panels(), Target<F>{c, c_stride, into});
}

// Rows of an activation over several steps: row i of step t is at base + t * step_stride + i * row_stride.
template <class F> struct StepRows {
  const F* base;
  int64_t steps, step_stride, rows, row_stride;
  int64_t count() const { return steps * rows; }
};

// Columns [0, columns) of the rows, in panels of `unit`: [columns / unit][rows][unit]. Up to a vector is read past a
// row's end and, at the very end, written past the panel: both sides have room.
template <class F> void pack_rows(const StepRows<F>& from, int64_t columns, int64_t unit, F* to) {
  for (int64_t c = 0; c < columns; c += unit)
    for (int64_t t = 0; t < from.steps; t++)
      for (int64_t r = 0; r < from.rows; r++, to += unit) {
        const F* row = from.base + t * from.step_stride + r * from.row_stride + c;
        for (int64_t i = 0; i < unit; i += lanes<F>) store(to + i, load(row + i));
      }
}

// sums[c] += the sum over all rows of column c
template <class F> void add_row_sums(const StepRows<F>& from, int64_t columns, F* sums) {
  int64_t c = 0;
  for (; c + 4 * lanes<F> <= columns; c += 4 * lanes<F>) {
    Vector<F> part[4] = {};
    for (int64_t t = 0; t < from.steps; t++)
      for (int64_t r = 0; r < from.rows; r++)
        for (int v = 0; v < 4; v++)
          part[v] += load(from.base + t * from.step_stride + r * from.row_stride + c + v * lanes<F>);
    for (int v = 0; v < 4; v++) store(sums + c + v * lanes<F>, load(sums + c + v * lanes<F>) + part[v]);
  }
  for (; c < columns; c++)
    for (int64_t t = 0; t < from.steps; t++)
      for (int64_t r = 0; r < from.rows; r++) sums[c] += from.base[t * from.step_stride + r * from.row_stride + c];
}

// dW [out][in] += sum over rows of g^T x, with g and x packed by `pack_rows` (units tile_rows and panel). The operand
// that is larger streams past the smaller one, which stays in the cache.
template <class F>
void add_weight_gradient(int64_t out, int64_t in, int64_t depth, const F* g, const F* x, F* dw) {
  auto block = [&](int64_t o, int64_t i) {
    const int64_t rows = out - o < tile_rows ? out - o : tile_rows, columns = in - i < panel<F> ? in - i : panel<F>;
    multiply<F>(rows, columns, depth, DepthMajor<F>{g + o * depth, tile_rows},
                Panels<F>{x + i * depth, depth * panel<F>, panel<F>}, Target<F>{dw + o * in + i, in, Into::add});
  };
  if (out >= in) {
    for (int64_t o = 0; o < out; o += tile_rows)
      for (int64_t i = 0; i < in; i += panel<F>) block(o, i);
  } else {
    for (int64_t i = 0; i < in; i += panel<F>)
      for (int64_t o = 0; o < out; o += tile_rows) block(o, i);
  }
}
