// Products over 8-bit weights with one scale per column and 32 values, activations in 15 bits.
//
// A panel of 32 columns is stored group after group of 32 k: sixteen lines of 64 bytes, each the pairs (k, k + 1) of all
// columns, and one line of bf16 scales, interleaved as in `panels.h`; 8.5 bits per weight. A line widens to two vectors of
// 16-bit pairs, which `vpdpwssd` multiplies with pairs of 15-bit activations (a scale per row and 32 values). Integer sums
// are exact, groups are added in ascending order: a row's result does not depend on the other rows.
#pragma once

#include <cmath>

#include "panels.h"

#if defined(__AVX512VNNI__) && defined(__AVX512F__) && defined(__AVX512BW__)
#define VS_INT8_VNNI 1
#include <immintrin.h>
#else
#define VS_INT8_VNNI 0
#endif

namespace vs {

constexpr int64_t GROUP = 32;
constexpr int64_t PAIRS = GROUP / 2;
constexpr int64_t GROUP_WORDS = (PAIRS + 1) * LINE_WORDS;
constexpr float ACTIVATION_LIMIT = 16383.0f;

inline int64_t groups_of(int64_t depth) { return (depth + GROUP - 1) / GROUP; }

// Smallest bf16 that is not below `value` > 0.
inline uint16_t bf16_above(float value) {
  uint32_t word;
  std::memcpy(&word, &value, 4);
  return static_cast<uint16_t>((word + 0xffffu) >> 16);
}

// One column of one group: 32 values (zero where the matrix ends) -> its bytes and its scale.
inline void pack_column(const float* values, int64_t column, int8_t* bytes, uint16_t* scales) {
  float largest = 0.0f;
  for (int64_t k = 0; k < GROUP; ++k) largest = std::max(largest, std::fabs(values[k]));
  const uint16_t scale = largest > 0 ? bf16_above(largest / 127.0f) : 0;
  const float inverse = largest > 0 ? 1.0f / bf16_to_float(scale) : 0.0f;
  for (int64_t k = 0; k < GROUP; ++k)
    bytes[k / 2 * 64 + column * 2 + k % 2] = static_cast<int8_t>(std::lrint(values[k] * inverse));
  scales[column % LINE_WORDS * 2 + column / LINE_WORDS] = scale;
}

// weights: bf16 [columns, depth]; packed: num_panels * groups * GROUP_WORDS words.
inline void pack_int8(const uint16_t* weights, int64_t columns, int64_t depth, uint32_t* packed) {
  for (int64_t column = 0; column < num_panels(columns) * PANEL_COLUMNS; ++column)
    for (int64_t g = 0; g < groups_of(depth); ++g) {
      float values[GROUP] = {};
      for (int64_t k = g * GROUP; k < std::min(depth, (g + 1) * GROUP) && column < columns; ++k)
        values[k - g * GROUP] = bf16_to_float(weights[column * depth + k]);
      uint32_t* block = packed + (column / PANEL_COLUMNS * groups_of(depth) + g) * GROUP_WORDS;
      pack_column(values, column % PANEL_COLUMNS, reinterpret_cast<int8_t*>(block),
                  reinterpret_cast<uint16_t*>(block + PAIRS * LINE_WORDS));
    }
}

// Activations: rows of pairs of 15-bit integers and their scales, both whole groups long.
struct Int8Rows {
  int32_t* pairs;
  float* scales;
};

inline void pack_activations(const float* x, const int32_t* ids, int64_t rows, int64_t depth, Int8Rows out) {
  const int64_t groups = groups_of(depth);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t size = std::min(GROUP, depth - g * GROUP);
      const float* values = x + ids[r] * depth + g * GROUP;
      float largest = 0.0f;
      for (int64_t k = 0; k < size; ++k) largest = std::max(largest, std::fabs(values[k]));
      const float inverse = largest > 0 ? ACTIVATION_LIMIT / largest : 0.0f;
      auto* integers = reinterpret_cast<int16_t*>(out.pairs + (r * groups + g) * PAIRS);
      for (int64_t k = 0; k < GROUP; ++k)
        integers[k] = k < size ? static_cast<int16_t>(std::nearbyintf(values[k] * inverse)) : int16_t{0};
      out.scales[r * groups + g] = largest / ACTIVATION_LIMIT;
    }
}

#if VS_INT8_VNNI

static inline __attribute__((always_inline)) ivec widen_bytes(const uint32_t* words) {
  return reinterpret_cast<ivec>(_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(words))));
}

// Assembly because GCC 12 keeps accumulators of the intrinsic in memory; see `fixed.h` of widened-bf16-linears.
static inline __attribute__((always_inline)) void add_products(ivec& sum, ivec a, ivec b) {
  asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
}

#else

static inline __attribute__((always_inline)) ivec widen_bytes(const uint32_t* words) {
  const auto* bytes = reinterpret_cast<const int8_t*>(words);
  ivec pairs;
  for (int i = 0; i < LINE_WORDS; ++i)
    pairs[i] = static_cast<int32_t>(static_cast<uint16_t>(bytes[2 * i]) | static_cast<uint32_t>(bytes[2 * i + 1]) << 16);
  return pairs;
}

static inline __attribute__((always_inline)) void add_products(ivec& sum, ivec a, ivec b) {
  sum += (a << 16 >> 16) * (b << 16 >> 16) + (a >> 16) * (b >> 16);
}

#endif

// y[R, 32] = R rows @ one panel.
template <int R>
static void multiply_int8(const int32_t* __restrict x, const float* __restrict x_scales, int64_t groups,
                          const uint32_t* __restrict panel, float* __restrict y, int64_t y_stride, const char* ahead,
                          int64_t step) {
  vec total[R][2];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) total[r][0] = total[r][1] = vec{};
  const int64_t row = groups * PAIRS;
#pragma GCC unroll 1
  for (int64_t g = 0; g < groups; ++g, panel += GROUP_WORDS, x += PAIRS) {
    ivec sum[R][2];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = ivec{};
#pragma GCC unroll 1
    for (int64_t i = 0; i < PAIRS; ++i) {
      const ivec low = widen_bytes(panel + i * LINE_WORDS), high = widen_bytes(panel + i * LINE_WORDS + LINE_WORDS / 2);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const ivec pair = x[r * row + i] - ivec{};
        add_products(sum[r][0], pair, low);
        add_products(sum[r][1], pair, high);
      }
      __builtin_prefetch(ahead, 0, 2);
      ahead += step;
    }
    const line words = *reinterpret_cast<const line*>(panel + PAIRS * LINE_WORDS);
    const vec low_scale = reinterpret_cast<vec>(words << 16), high_scale = reinterpret_cast<vec>(words & 0xffff0000u);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const float scale = x_scales[r * groups + g];
      total[r][0] += __builtin_convertvector(sum[r][0], vec) * (low_scale * scale);
      total[r][1] += __builtin_convertvector(sum[r][1], vec) * (high_scale * scale);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    *reinterpret_cast<vec*>(y + r * y_stride) = total[r][0];
    *reinterpret_cast<vec*>(y + r * y_stride + LINE_WORDS) = total[r][1];
  }
}

inline void multiply_int8_rows(int64_t rows, const int32_t* x, const float* x_scales, int64_t groups, const uint32_t* panel,
                               float* y, int64_t y_stride, const char* ahead, int64_t step) {
#define VS_CASE(R) \
  case R: return multiply_int8<R>(x, x_scales, groups, panel, y, y_stride, ahead, step)
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

}  // namespace vs
