// A large weight for a few rows, as an output layer has it in a step of decoding:
//
//   y[r][c] = bias[c] + sum_k x[r][k] W[c][k]
//
// The work is to bring W here from far away. It is read once, in order, as it lies: nothing is packed. Every element is
// summed in the same order, so a row's result does not depend on the rows beside it.
#pragma once
#include "elementwise.h"

// Three rows by four columns of W: twelve of sixteen registers hold sums. The columns stay near for the other rows.
constexpr int few_columns = 4;

// While a tile is computed, the columns of the next are fetched.
template <class F, int Rows>
inline void few_rows_tile(int64_t depth, int64_t columns, const F* x, const F* w, F* y) {
  Vector<F> sums[4][few_columns] = {};
  int64_t k = 0;
  for (; k + lanes<F> <= depth; k += lanes<F>) {
#pragma GCC unroll 4
    for (int c = 0; c < few_columns; c++) {
      const F* at = w + c * depth + k;
      const Vector<F> weight = load(at);
      __builtin_prefetch(at + few_columns * depth);
#pragma GCC unroll 4
      for (int r = 0; r < Rows; r++) sums[r][c] += load(x + r * depth + k) * weight;
    }
  }
  F found[4][few_columns] = {};
  add_sums(sums[0], found[0]);
  if (Rows > 2) add_sums(sums[2], found[2]);
  for (; k < depth; k++)
    for (int r = 0; r < Rows; r++)
      for (int c = 0; c < few_columns; c++) found[r][c] += x[r * depth + k] * w[c * depth + k];
  for (int r = 0; r < Rows; r++)
    for (int c = 0; c < few_columns; c++) y[r * columns + c] += found[r][c];
}

// x [rows][depth], w [columns][depth], bias [columns] or null -> columns first .. end of y [rows][columns]
template <class F>
void few_rows(int64_t rows, int64_t columns, int64_t depth, const F* x, const F* w, const F* bias, F* y, int64_t first,
              int64_t end) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = first; c < end; c++) y[r * columns + c] = bias ? bias[c] : F(0);
  int64_t c = first;
  for (; c + few_columns <= end; c += few_columns) {
    const F* block = w + c * depth;
    for (int64_t r = 0; r < rows; r += 3) {
      const F* from = x + r * depth;
      F* to = y + r * columns + c;
      if (rows - r >= 3) few_rows_tile<F, 3>(depth, columns, from, block, to);
      else if (rows - r == 2) few_rows_tile<F, 2>(depth, columns, from, block, to);
      else few_rows_tile<F, 1>(depth, columns, from, block, to);
    }
  }
  for (; c < end; c++)
    for (int64_t r = 0; r < rows; r++) y[r * columns + c] += dot(x + r * depth, w + c * depth, depth);
}
