// The library's doors: plain C functions over raw pointers, in float and double. See layout.h for the maths.
#include <exception>
#include <thread>
#include <vector>
#include "backward_group.h"
#include "few_rows.h"
#include "forward.h"

// While it lives, this thread takes numbers too small to be normal for zero. Attention that falls off with distance makes
// many of them (in float exp(-90) already is one), and some processors compute with them a hundred times slower.
class TinyIsZero {
#if defined(__SSE__)
  const unsigned before = _mm_getcsr();

 public:
  TinyIsZero() { _mm_setcsr(before | 0x8040); }  // results, and what is read
  ~TinyIsZero() { _mm_setcsr(before); }
#elif defined(__aarch64__)
  uint64_t before;

 public:
  TinyIsZero() {
    asm volatile("mrs %0, fpcr" : "=r"(before));
    asm volatile("msr fpcr, %0" ::"r"(before | (uint64_t{1} << 24)));
  }
  ~TinyIsZero() { asm volatile("msr fpcr, %0" ::"r"(before)); }
#else
 public:
  TinyIsZero() {}
#endif
};

// work(first row, rows, shard) for shards of the batch, one a thread; nothing is shared inside.
template <class Work> void over_shards(int64_t batch, int64_t threads, const Work& work) {
  const int64_t shards = threads < 1 ? 1 : threads < batch ? threads : batch;
  std::vector<std::exception_ptr> failures(shards);
  auto run = [&](int64_t i) {
    const TinyIsZero tiny_is_zero;
    try {
      const int64_t first = i * batch / shards;
      work(first, (i + 1) * batch / shards - first, i);
    } catch (...) {
      failures[i] = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (int64_t i = 1; i < shards; i++) others.emplace_back(run, i);
  run(0);
  for (std::thread& other : others) other.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

// Rows that run together: few enough for their keys and values to stay in the cache beside the weights, and enough
// of them to use a weight often once it is there. Measured with 32 MB of cache; the optimum is flat.
template <class F> int64_t group_rows(const Shape& s, int64_t rows) {
  const int64_t budget = s.steps == 1 ? 12 << 20 : 6 << 20, seen = s.steps == 1 ? s.reach : s.slots;
  const int64_t read = s.source * s.layers * 2 * s.inside();
  const int64_t bytes = (seen * s.projected() + read) * sizeof(F), fitting = budget / (bytes > 0 ? bytes : 1);
  const int64_t least = s.steps == 1 ? 6 : 12, most = s.steps == 1 ? 256 : 24;
  const int64_t wanted = fitting < least ? least : fitting > most ? most : fitting;
  const int64_t groups = (rows + wanted - 1) / wanted;
  return groups ? (rows + groups - 1) / groups : 0;
}

template <class F>
void run_forward(const Shape& s, const ForwardPack<F>& pack, F* tape_memory, const ForwardIO<F>& io) {
  Arena<F> arena{tape_memory};
  const Tape<F> tape(arena, s);
  over_shards(s.batch, s.threads, [&](int64_t first, int64_t rows, int64_t) {
    const int64_t group = group_rows<F>(s, rows);
    Room<F> room;
    const auto scratch = room.template fill<ForwardScratch<F>>(s, group);
    for (int64_t done = 0; done < rows; done += group)
      ForwardGroup<F>(s, pack, tape, io, scratch, first + done, group < rows - done ? group : rows - done).run();
  });
}

// The weight was read as W diag(gain) * scale, and scale * W shift was added: from the gradients of those two to W's,
// the gain's and the shift's. Without a gain only the scale.
template <class F>
void unfold(const F* w, const F* gain, const F* shift, F scale, int64_t out, int64_t in, const F* folded, const F* bias,
            F* dw, F* dgain, F* dshift) {
  for (int64_t i = 0; i < out; i++, w += in, folded += in, dw += in)
    for (int64_t j = 0; j < in; j++) {
      dw[j] = gain ? scale * (folded[j] * gain[j] + bias[i] * shift[j]) : scale * folded[j];
      if (!gain) continue;
      dgain[j] += scale * folded[j] * w[j];
      dshift[j] += scale * bias[i] * w[j];
    }
}

// From the gradients of folded weights to those of the weights; gains, shifts and positions of `out` start as zeros.
template <class F>
void write_gradients(const Shape& s, const Weights<F>& w, const Sums<F>& sums, const Gradients<F>& out) {
  const int64_t d = s.width, hk = s.inside(), f = s.inner;
  const F* none = nullptr;
  for (int64_t l = 0; l < s.layers; l++) {
    const int64_t v = l * d;
    unfold(w.query + l * hk * d, s.pre_norm ? w.attention_gain + v : none, w.attention_shift + v, F(s.query_scale()),
           hk, d, sums.query + l * hk * d, sums.query_bias + l * hk, out.query + l * hk * d, out.attention_gain + v,
           out.attention_shift + v);
    unfold(w.expand + l * f * d, s.pre_norm ? w.feed_forward_gain + v : none, w.feed_forward_shift + v, F(1), f, d,
           sums.expand + l * f * d, sums.expand_bias + l * f, out.expand + l * f * d, out.feed_forward_gain + v,
           out.feed_forward_shift + v);
    if (s.source)
      unfold(w.source_query + l * hk * d, s.pre_norm ? w.source_gain + v : none, w.source_shift + v,
             F(s.query_scale()), hk, d, sums.source_query + l * hk * d, sums.source_bias + l * hk,
             out.source_query + l * hk * d, out.source_gain + v, out.source_shift + v);
  }
  if (s.source) std::memcpy(out.source_output, sums.source_output, s.layers * d * hk * sizeof(F));
  for (int64_t i = 0; i < 2 * s.pairs; i++) {
    const int64_t p = i / 2, at = p * hk * d;
    unfold((i % 2 ? w.value : w.key) + at, s.pre_norm ? w.memory_gain + p * d : none, w.memory_shift + p * d, F(1), hk,
           d, sums.key_value + i * hk * d, sums.key_value_bias + i * hk, (i % 2 ? out.value : out.key) + at,
           out.memory_gain + p * d, out.memory_shift + p * d);
  }
  std::memcpy(out.output, sums.output, s.layers * d * hk * sizeof(F));
  std::memcpy(out.contract, sums.contract, s.layers * d * f * sizeof(F));
  std::memcpy(out.expand_bias, sums.expand_bias, s.layers * f * sizeof(F));
  std::memcpy(out.contract_bias, sums.contract_bias, s.layers * d * sizeof(F));
  std::memcpy(out.mixing, sums.mixing, (s.layers + 1) * sizeof(F));
  F* gains[6] = {out.attention_gain,     out.attention_shift, out.feed_forward_gain,
                 out.feed_forward_shift, out.source_gain,     out.source_shift};
  for (int i = 0; !s.pre_norm && i < 2 * s.norms(); i++)
    std::memcpy(gains[i], sums.gains + i * s.layers * d, s.layers * d * sizeof(F));
  const int64_t skipped = s.window - s.reach;
  for (int64_t k = 0; k < s.head; k++)
    for (int64_t c = 0; c < s.reach; c++) out.position[k * s.window + skipped + c] = sums.position[c * s.head + k];
  for (int64_t h = 0; out.position_bias && h < s.heads; h++)
    std::memcpy(out.position_bias + h * s.window + skipped, sums.position_bias + h * s.reach, s.reach * sizeof(F));
  for (int64_t i = 0; out.span && i < s.layers * s.heads; i++)
    std::memcpy(out.span + i * s.window + skipped, sums.span + i * s.reach, s.reach * sizeof(F));
}

template <class F> void run_backward(const Shape& s, const Weights<F>& w, F* tape_memory, const BackwardIO<F>& io,
                                     const Gradients<F>& out) {
  Arena<F> arena{tape_memory}, sums_size;
  const Tape<F> tape(arena, s);
  Sums<F>(sums_size, s);
  Room<F> pack_room;
  auto pack = pack_room.template fill<BackwardPack<F>>(s);
  fill_pack(s, w, pack);
  std::vector<Room<F>> sums_rooms(s.threads < s.batch ? s.threads : (s.batch > 0 ? s.batch : 1));
  for (auto& room : sums_rooms) {
    room.template fill<Sums<F>>(s);
    std::memset(static_cast<void*>(room.data()), 0, sums_size.used * sizeof(F));
  }
  over_shards(s.batch, s.threads, [&](int64_t first, int64_t rows, int64_t shard) {
    const int64_t group = group_rows<F>(s, rows);
    Room<F> room;
    const auto scratch = room.template fill<BackwardScratch<F>>(s, group);
    Arena<F> own{sums_rooms[shard].data()};
    const Sums<F> sums(own, s);
    for (int64_t done = 0; done < rows; done += group) {
      const int64_t count = group < rows - done ? group : rows - done;
      BackwardGroup<F>(s, w, pack, tape, io, scratch, sums, first + done, count).run();
    }
  });
  for (size_t i = 1; i < sums_rooms.size(); i++)
    add_scaled(sums_rooms[0].data(), F(1), sums_rooms[i].data(), sums_size.used);
  Arena<F> whole{sums_rooms[0].data()};
  write_gradients(s, w, Sums<F>(whole, s), out);
}

template <class F> ForwardPack<F> pack_in(F* memory, const Shape& s, bool biased) {
  Arena<F> arena{memory};
  return ForwardPack<F>(arena, s, biased);
}

// 0: done; 1: out of memory (nothing else can be thrown)
template <class Work> int guarded(const Work& work) {
  try {
    work();
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}

template <class F> int64_t pack_size(const Shape& s) {
  Arena<F> arena;
  ForwardPack<F>(arena, s, true);
  return arena.used;
}
template <class F> int64_t tape_size(const Shape& s) {
  Arena<F> arena;
  Tape<F>(arena, s);
  return arena.used;
}

#define DOORS(F, name) \
  int64_t pack_size_##name(const Shape* s) { return pack_size<F>(*s); } \
  int64_t tape_size_##name(const Shape* s) { return tape_size<F>(*s); } \
  int pack_##name(const Shape* s, const Weights<F>* w, F* memory) { \
    return guarded([&] { \
      auto pack = pack_in(memory, *s, w->position_bias != nullptr); \
      fill_pack(*s, *w, pack); \
    }); \
  } \
  int forward_##name(const Shape* s, F* packed, int64_t biased, F* tape, const ForwardIO<F>* io) { \
    return guarded([&] { run_forward(*s, pack_in(packed, *s, biased != 0), tape, *io); }); \
  } \
  int backward_##name(const Shape* s, const Weights<F>* w, F* tape, const BackwardIO<F>* io, Gradients<F>* out) { \
    return guarded([&] { run_backward(*s, *w, tape, *io, *out); }); \
  } \
  int few_rows_##name(const int64_t* sizes, const F* x, const F* w, const F* bias, F* y) { \
    const int64_t rows = sizes[0], columns = sizes[1], depth = sizes[2], threads = sizes[3]; \
    return guarded([&] { \
      over_shards(columns, threads, [&](int64_t first, int64_t count, int64_t) { \
        few_rows(rows, columns, depth, x, w, bias, y, first, first + count); \
      }); \
    }); \
  }

extern "C" {
void large_pages(void* data, int64_t bytes) { use_large_pages(data, bytes); }
int borrow(int64_t bytes, Stretch* stretch) {
  return guarded([&] { *stretch = pool().take(bytes); });
}
void give_back(const Stretch* stretch) { pool().give(*stretch); }
DOORS(float, f32)
DOORS(double, f64)
}
