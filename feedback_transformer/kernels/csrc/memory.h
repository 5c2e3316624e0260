// Working memory. Blocks follow each other with the same sizes, and the system is slow to hand out fresh pages (it
// clears them): what one block gives back, the next one takes.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <vector>
#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

constexpr int64_t large_page = 2 << 20;
constexpr int64_t most_kept = 512 << 20;  // bytes that wait for their next use; more is given back to the system

inline int64_t rounded_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

// Large pages where the system offers them: products walk through megabytes of weights every step, and with small pages
// the processor spends its time on address translation. To be called before the memory is first written.
inline void use_large_pages(void* data, int64_t bytes) {
#if defined(__linux__)
  const int64_t begin = rounded_up(reinterpret_cast<int64_t>(data), large_page);
  const int64_t end = (reinterpret_cast<int64_t>(data) + bytes) / large_page * large_page;
  if (end > begin) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  (void)data, (void)bytes;
#endif
}

struct Stretch {
  void* data = nullptr;
  int64_t bytes = 0;
};

class Pool {
 public:
  // At least `bytes`, with anything in them.
  Stretch take(int64_t bytes) {
    {
      std::lock_guard<std::mutex> guard(lock);
      size_t best = waiting.size();
      for (size_t i = 0; i < waiting.size(); i++) {
        const bool fits = waiting[i].bytes >= bytes && waiting[i].bytes <= bytes + bytes / 4 + 4096;
        if (fits && (best == waiting.size() || waiting[i].bytes < waiting[best].bytes)) best = i;
      }
      if (best < waiting.size()) {
        const Stretch found = waiting[best];
        waiting.erase(waiting.begin() + best);
        kept -= found.bytes;
        return found;
      }
    }
    const int64_t unit = bytes < large_page ? 4096 : large_page, size = rounded_up(bytes + 64, unit);
    void* data = std::aligned_alloc(unit, size);
    if (!data) throw std::bad_alloc();
    use_large_pages(data, size);
    return {data, size};
  }
  void give(Stretch stretch) {
    if (!stretch.data) return;
    std::lock_guard<std::mutex> guard(lock);
    waiting.push_back(stretch);
    kept += stretch.bytes;
    while (kept > most_kept || waiting.size() > 64) drop_oldest();
  }

  std::mutex lock;

 private:
  void drop_oldest() {
    std::free(waiting.front().data);
    kept -= waiting.front().bytes;
    waiting.erase(waiting.begin());
  }
  std::vector<Stretch> waiting;
  int64_t kept = 0;
};

inline Pool* new_pool();
inline Pool& pool() {
  static Pool* one = new_pool();  // never destroyed: tapes may outlive static objects at exit
  return *one;
}
inline Pool* new_pool() {
#if defined(__unix__) || defined(__APPLE__)  // a process must not be copied while another thread holds the lock
  pthread_atfork([] { pool().lock.lock(); }, [] { pool().lock.unlock(); }, [] { pool().lock.unlock(); });
#endif
  return new Pool;
}

// Hands out parts of one allocation, each on a cache line of its own; without a base it only counts.
template <class F> struct Arena {
  F* base = nullptr;
  int64_t used = 0;
  F* take(int64_t count) {
    F* part = base ? base + used : nullptr;
    used += rounded_up(count, 64 / sizeof(F)) + 256 / sizeof(F);  // and room to read and write past its end
    return part;
  }
};

// Memory for one layout, sized by counting: `auto pack = room.fill<BackwardPack<F>>(shape)`. It may hold anything.
template <class F> struct Room {
  Stretch stretch;
  Room() = default;
  Room(const Room&) = delete;
  template <class Layout, class... Args> Layout fill(const Args&... args) {
    Arena<F> count;
    Layout measure(count, args...);
    stretch = pool().take(count.used * sizeof(F));
    Arena<F> arena{data()};
    return Layout(arena, args...);
  }
  F* data() const { return static_cast<F*>(stretch.data); }
  ~Room() { pool().give(stretch); }
};
