// Matrix products over bf16 weights that stay bf16 in memory.
//
// A weight matrix W[N, K] is stored as panels of 32 output columns: panel p holds, for every k, the 32 values
// W[32p .. 32p+31, k] in one 64-byte line. Lane i of the line carries column i in its low half and column i+16 in its
// high half, so one load, one shift and one mask give two vectors of float. Activations are packed [K][rows of the
// block]. Every output is one accumulator that adds its K products in ascending k by fused multiply-add: a row's
// result does not depend on how many other rows the call has.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace vs {

typedef float vec __attribute__((vector_size(64), aligned(4)));
typedef uint32_t line __attribute__((vector_size(64), aligned(4)));
typedef int32_t ivec __attribute__((vector_size(64), aligned(4)));

constexpr int PANEL_COLUMNS = 32;
constexpr int LINE_WORDS = 16;
// Rows of a register block: 14 x 2 accumulators, 2 weight vectors and 1 broadcast fit 32 registers of 512 bits.
#if defined(__AVX512F__)
constexpr int BLOCK_ROWS = 14;
#else
constexpr int BLOCK_ROWS = 3;
#endif
// Bytes ahead of the running load. The hardware prefetcher stops at 4 KiB borders; this does not.
constexpr int PREFETCH_BYTES = 2048;

inline int64_t num_panels(int64_t columns) { return (columns + PANEL_COLUMNS - 1) / PANEL_COLUMNS; }
inline int64_t panel_words(int64_t depth) { return depth * LINE_WORDS; }

inline float bf16_to_float(uint16_t bits) {
  uint32_t word = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &word, 4);
  return value;
}

// Round to nearest, ties to even; the inputs are finite.
inline uint16_t float_to_bf16(float value) {
  uint32_t word;
  std::memcpy(&word, &value, 4);
  return static_cast<uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
}

// weights: [columns, depth] bf16 row-major; panels: num_panels * panel_words words. Missing columns become zero.
inline void pack_panels(const uint16_t* weights, int64_t columns, int64_t depth, uint32_t* panels) {
  for (int64_t first = 0; first < columns; first += PANEL_COLUMNS) {
    uint32_t* panel = panels + first / PANEL_COLUMNS * panel_words(depth);
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t lane = 0; lane < LINE_WORDS; ++lane) {
        int64_t low = first + lane, high = first + LINE_WORDS + lane;
        uint32_t low_bits = low < columns ? weights[low * depth + k] : 0u;
        uint32_t high_bits = high < columns ? weights[high * depth + k] : 0u;
        panel[k * LINE_WORDS + lane] = low_bits | high_bits << 16;
      }
  }
}

// Memory on 2 MiB pages where the kernel grants them: a decode step reads all weights once, and 4 KiB pages make that
// read walk page tables. Freed with munmap of the same size by `release`.
inline void* reserve(size_t bytes) {
  constexpr size_t HUGE = size_t{2} << 20;
  size_t rounded = (bytes + HUGE - 1) / HUGE * HUGE;
  void* raw = mmap(nullptr, rounded + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  uintptr_t start = (reinterpret_cast<uintptr_t>(raw) + HUGE - 1) / HUGE * HUGE;
  uintptr_t head = start - reinterpret_cast<uintptr_t>(raw);
  if (head) munmap(raw, head);
  if (HUGE - head) munmap(reinterpret_cast<void*>(start + rounded), HUGE - head);
#ifdef MADV_HUGEPAGE
  madvise(reinterpret_cast<void*>(start), rounded, MADV_HUGEPAGE);
#endif
  return reinterpret_cast<void*>(start);
}

inline void release(void* memory, size_t bytes) {
  constexpr size_t HUGE = size_t{2} << 20;
  if (memory) munmap(memory, (bytes + HUGE - 1) / HUGE * HUGE);
}

// A grow-only scratch buffer, 64-byte aligned.
class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::free(memory_); }
  template <class T>
  T* get(int64_t count) {
    size_t bytes = (static_cast<size_t>(count) * sizeof(T) + 127) / 64 * 64;
    if (bytes > size_) {
      std::free(memory_);
      memory_ = std::aligned_alloc(64, bytes);
      size_ = bytes;
    }
    return static_cast<T*>(memory_);
  }

 private:
  void* memory_ = nullptr;
  size_t size_ = 0;
};

// How M rows split into register blocks of nearly equal height.
struct Blocks {
  int64_t count, height, taller;  // the first `taller` blocks have height + 1 rows
  explicit Blocks(int64_t rows) : count((rows + BLOCK_ROWS - 1) / BLOCK_ROWS) {
    height = count ? rows / count : 0;
    taller = count ? rows % count : 0;
  }
  int64_t rows_of(int64_t block) const { return height + (block < taller); }
  int64_t first_of(int64_t block) const { return block * height + std::min(block, taller); }
};

// Rows ids[0 .. rows-1] of x [*, depth] -> packed, per block [depth][rows of the block].
inline void pack_rows(const float* x, const int32_t* ids, int64_t rows, int64_t depth, float* packed) {
  Blocks blocks(rows);
  for (int64_t b = 0; b < blocks.count; ++b) {
    int64_t height = blocks.rows_of(b), first = blocks.first_of(b);
    float* out = packed + first * depth;
    for (int64_t r = 0; r < height; ++r) {
      const float* row = x + ids[first + r] * depth;
      for (int64_t k = 0; k < depth; ++k) out[k * height + r] = row[k];
    }
  }
}

// y[R, 32 * P] = x @ P panels, `stride` words apart. x: [depth][R], or rows S apart where S is not 0 (a constant, because
// fourteen row pointers would not fit the registers). `ahead` walks `step` bytes per k and is only prefetched.
template <int R, int P, int S>
static inline __attribute__((always_inline)) void multiply(const float* __restrict x, const uint32_t* __restrict panels,
                                                           int64_t stride, int64_t depth, float* __restrict y,
                                                           int64_t y_stride, const char* ahead, int64_t step) {
  vec sum[P][R][2];
#pragma GCC unroll 16
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) sum[p][r][0] = sum[p][r][1] = vec{};
#pragma GCC unroll 1
  for (int64_t k = 0; k < depth; ++k) {
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p) {
      line words = *reinterpret_cast<const line*>(panels + p * stride + k * LINE_WORDS);
      vec low = reinterpret_cast<vec>(words << 16), high = reinterpret_cast<vec>(words & 0xffff0000u);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const float value = S ? x[r * S + k] : x[k * R + r];
        sum[p][r][0] += low * value;
        sum[p][r][1] += high * value;
      }
      if (P == 1 && R >= 7)
        __builtin_prefetch(ahead + p * stride * 4, 0, 2);
      else
        __builtin_prefetch(ahead + p * stride * 4, 0, 3);
    }
    ahead += step;
  }
#pragma GCC unroll 16
  for (int p = 0; p < P; ++p)
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      *reinterpret_cast<vec*>(y + r * y_stride + p * PANEL_COLUMNS) = sum[p][r][0];
      *reinterpret_cast<vec*>(y + r * y_stride + p * PANEL_COLUMNS + LINE_WORDS) = sum[p][r][1];
    }
}

// Panels that one register block covers at a time; few rows need several to keep the multipliers busy.
constexpr int panels_at_once(int rows) { return rows <= 2 ? 4 : rows <= 6 ? 2 : 1; }

template <int R, int S>
static void multiply_block(const float* x, const uint32_t* panels, int64_t stride, int64_t depth, int count, float* y,
                           int64_t y_stride, const char* ahead, int64_t step) {
  constexpr int P = BLOCK_ROWS >= 14 ? panels_at_once(R) : 1;
  int p = 0;
  for (; p + P <= count; p += P)
    multiply<R, P, S>(x, panels + p * stride, stride, depth, y + p * PANEL_COLUMNS, y_stride, ahead + p * stride * 4, step);
  for (; p < count; ++p)
    multiply<R, 1, S>(x, panels + p * stride, stride, depth, y + p * PANEL_COLUMNS, y_stride, ahead + p * stride * 4, step);
}

// One register block of `rows` rows against `count` panels; x and S as in `multiply`.
template <int S = 0>
inline void multiply_rows(int64_t rows, const float* x, const uint32_t* panels, int64_t stride, int64_t depth, int count,
                          float* y, int64_t y_stride, const char* ahead, int64_t step) {
#define VS_CASE(R) \
  case R: return multiply_block<R, S>(x, panels, stride, depth, count, y, y_stride, ahead, step)
  switch (rows) {
    VS_CASE(1);
    VS_CASE(2);
    VS_CASE(3);
#if defined(__AVX512F__)
    VS_CASE(4);
    VS_CASE(5);
    VS_CASE(6);
    VS_CASE(7);
    VS_CASE(8);
    VS_CASE(9);
    VS_CASE(10);
    VS_CASE(11);
    VS_CASE(12);
    VS_CASE(13);
    VS_CASE(14);
#endif
  }
#undef VS_CASE
}

// tile[rows, 32 * count] = packed rows @ `count` panels. With several blocks the later passes find the panels in the
// cache and each pass fetches its share of what follows.
inline void multiply_group(const float* packed, int64_t rows, const uint32_t* panels, int64_t depth, int count, float* tile,
                           int64_t tile_stride) {
  Blocks blocks(rows);
  const int64_t stride = panel_words(depth);
  const int64_t group_bytes = count * stride * 4;
  for (int64_t b = 0; b < blocks.count; ++b) {
    int64_t height = blocks.rows_of(b), first = blocks.first_of(b);
    const char* ahead = reinterpret_cast<const char*>(panels);
    int64_t step = 64;
    if (blocks.count == 1) {
      ahead += height >= 7 ? 2 * PREFETCH_BYTES : PREFETCH_BYTES;
    } else {
      step = 64 / blocks.count;
      ahead += group_bytes + b * (stride * 4 / blocks.count);
    }
    multiply_rows(height, packed + first * depth, panels, stride, depth, count, tile + first * tile_stride, tile_stride,
                  ahead, step);
  }
}

}  // namespace vs
