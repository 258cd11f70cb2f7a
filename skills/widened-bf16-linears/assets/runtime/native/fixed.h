// Products of many rows in 16-bit fixed point (AVX-512 VNNI): two multiplications where f32 does one.
//
// Weights stay bf16 in memory. Each panel is turned into 16-bit integers with one scale per column, once for all rows of
// the call; activations become 15-bit integers with one scale per row and 64 values. Sums are exact in int32 over 64
// values (the column scale is chosen so that they cannot overflow) and are then added in f32. The rounding is 2^-15 of a
// group's largest activation; that of bf16 activations is 2^-9 of each one.
#pragma once

#include "panels.h"

#if defined(__AVX512VNNI__) && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define VS_FIXED_POINT 1
#include <immintrin.h>
#else
#define VS_FIXED_POINT 0
#endif

namespace vs {

constexpr bool HAS_FIXED_POINT = VS_FIXED_POINT;
constexpr int64_t GROUP_DEPTH = 64;
constexpr float ACTIVATION_LIMIT = 16383.0f;  // 2^14 - 1

inline int64_t num_groups(int64_t depth) { return (depth + GROUP_DEPTH - 1) / GROUP_DEPTH; }

// Scale of one column of a panel (integer = weight / scale): the sum of |integer| over any group stays below
// 2^31 / 2^14, so that int32 cannot overflow, and no integer leaves 16 bits.
inline float column_scale(const uint32_t* panel, int64_t column, int64_t depth) {
  constexpr float SUM_LIMIT = 131072.0f - 2 * GROUP_DEPTH, VALUE_LIMIT = 32766.0f;
  const uint32_t* words = panel + column % LINE_WORDS;
  const int shift = column < LINE_WORDS ? 0 : 16;
  float largest = 0.0f, largest_sum = 0.0f;
  for (int64_t first = 0; first < depth; first += GROUP_DEPTH) {
    float sum = 0.0f;
    for (int64_t k = first; k < std::min(depth, first + GROUP_DEPTH); ++k) {
      float value = bf16_to_float(static_cast<uint16_t>(words[k * LINE_WORDS] >> shift));
      value = value < 0 ? -value : value;
      largest = std::max(largest, value);
      sum += value;
    }
    largest_sum = std::max(largest_sum, sum);
  }
  float scale = std::max(largest / VALUE_LIMIT, largest_sum / SUM_LIMIT);
  return scale > 0 ? scale : 1.0f;
}

inline void column_scales(const uint32_t* panels, int64_t columns, int64_t depth, float* scales) {
  for (int64_t column = 0; column < num_panels(columns) * PANEL_COLUMNS; ++column)
    scales[column] = column_scale(panels + column / PANEL_COLUMNS * panel_words(depth), column % PANEL_COLUMNS, depth);
}

// Activations of a call: rows of pairs of integers, `stride` pairs apart, and scales [row][group]. Strides are constants of
// the kernel, see `multiply`; odd numbers of cache lines, so that rows do not fall into the same cache sets.
struct FixedRows {
  int32_t* pairs;
  float* scales;
  int64_t stride;
};

constexpr int64_t FIXED_STRIDES[] = {304, 1040, 8208};
constexpr int64_t MAX_FIXED_DEPTH = 2 * FIXED_STRIDES[2];

inline int64_t fixed_stride(int64_t depth) {
  for (int64_t stride : FIXED_STRIDES)
    if (depth <= 2 * stride) return stride;
  return 0;
}

#if VS_FIXED_POINT

// values[0 .. size-1] -> size / 2 pairs and their scale. `size` is even and at most GROUP_DEPTH.
inline float to_fixed(const float* values, int64_t size, int32_t* pairs) {
  const int64_t whole = size / 16 * 16;
  __m512 peak = _mm512_setzero_ps();
  for (int64_t k = 0; k < whole; k += 16) peak = _mm512_max_ps(peak, _mm512_abs_ps(_mm512_loadu_ps(values + k)));
  float largest = _mm512_reduce_max_ps(peak);
  for (int64_t k = whole; k < size; ++k) largest = std::max(largest, values[k] < 0 ? -values[k] : values[k]);
  const float inverse = largest > 0 ? ACTIVATION_LIMIT / largest : 0.0f;
  int16_t* integers = reinterpret_cast<int16_t*>(pairs);
  for (int64_t k = 0; k < whole; k += 16) {
    __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(values + k), _mm512_set1_ps(inverse)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(integers + k), _mm512_cvtepi32_epi16(rounded));
  }
  for (int64_t k = whole; k < size; ++k)
    integers[k] = static_cast<int16_t>(_mm_cvtss_si32(_mm_set_ss(values[k] * inverse)));
  return largest / ACTIVATION_LIMIT;
}

// Rows ids[0 .. rows-1] of x [*, depth]; depth is even.
inline void pack_fixed_rows(const float* x, const int32_t* ids, int64_t rows, int64_t depth, FixedRows out) {
  const int64_t groups = num_groups(depth);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t first = g * GROUP_DEPTH, size = std::min(GROUP_DEPTH, depth - first);
      out.scales[r * groups + g] = to_fixed(x + ids[r] * depth + first, size, out.pairs + r * out.stride + first / 2);
    }
}

// One panel -> [depth / 2][2][16] pairs of 16-bit integers.
inline void widen_panel(const uint32_t* panel, int64_t depth, const float* scales, int32_t* integers) {
  const __m512 one = _mm512_set1_ps(1.0f);
  const __m512 low_inverse = _mm512_div_ps(one, _mm512_loadu_ps(scales));
  const __m512 high_inverse = _mm512_div_ps(one, _mm512_loadu_ps(scales + LINE_WORDS));
  const __m512i high_half = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  auto integer = [](__m512i bits, __m512 inverse) {
    return _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_castsi512_ps(bits), inverse));
  };
  auto join = [](__m512i a, __m512i b) { return _mm512_mask_blend_epi16(0xaaaaaaaau, a, _mm512_slli_epi32(b, 16)); };
  for (int64_t k = 0; k < depth; k += 2) {
    const __m512i even = _mm512_loadu_si512(panel + k * LINE_WORDS);
    const __m512i odd = _mm512_loadu_si512(panel + (k + 1) * LINE_WORDS);
    const __m512i low = join(integer(_mm512_slli_epi32(even, 16), low_inverse), integer(_mm512_slli_epi32(odd, 16), low_inverse));
    const __m512i high = join(integer(_mm512_and_si512(even, high_half), high_inverse),
                              integer(_mm512_and_si512(odd, high_half), high_inverse));
    _mm512_storeu_si512(integers + k * LINE_WORDS, low);
    _mm512_storeu_si512(integers + (k + 1) * LINE_WORDS, high);
  }
}

// `sum += a . b` over pairs of 16-bit integers. As assembly on plain vector types: the intrinsic, and any array of
// __m512i, makes GCC 12 write the accumulators to memory in every turn of the loop.
static inline __attribute__((always_inline)) void add_pairs(ivec& sum, ivec a, ivec b) {
  asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
}

// y[R, 32] += scale of each row * (one register block @ one group of a widened panel).
template <int R, int S>
static inline __attribute__((always_inline)) void add_group(const int32_t* __restrict x, const float* __restrict x_scales,
                                                            int64_t groups, const int32_t* __restrict integers,
                                                            int64_t num_pairs, float* __restrict y, int64_t y_stride,
                                                            const char* ahead, int64_t step) {
  ivec sum[R][2];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) sum[r][0] = sum[r][1] = ivec{};
#pragma GCC unroll 1
  for (int64_t i = 0; i < num_pairs; ++i) {
    ivec low = *reinterpret_cast<const ivec*>(integers + i * 2 * LINE_WORDS);
    ivec high = *reinterpret_cast<const ivec*>(integers + (i * 2 + 1) * LINE_WORDS);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      ivec pair = x[r * S + i] - ivec{};
      add_pairs(sum[r][0], pair, low);
      add_pairs(sum[r][1], pair, high);
    }
    __builtin_prefetch(ahead, 0, 2);
    ahead += step;
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    float* row = y + r * y_stride;
    const float scale = x_scales[r * groups];
    *reinterpret_cast<vec*>(row) += __builtin_convertvector(sum[r][0], vec) * scale;
    *reinterpret_cast<vec*>(row + LINE_WORDS) += __builtin_convertvector(sum[r][1], vec) * scale;
  }
}

// y[R, 32] = one register block @ one widened panel.
template <int R, int S>
static void multiply_fixed(const int32_t* x, const float* x_scales, const int32_t* integers, int64_t depth,
                           const float* scales, float* y, int64_t y_stride, const char* ahead, int64_t step) {
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < PANEL_COLUMNS; ++c) y[r * y_stride + c] = 0.0f;
  const int64_t groups = num_groups(depth);
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t first = g * GROUP_DEPTH, num_pairs = std::min(GROUP_DEPTH, depth - first) / 2;
    add_group<R, S>(x + first / 2, x_scales + g, groups, integers + first * LINE_WORDS, num_pairs, y, y_stride, ahead, step);
    ahead += num_pairs * step;
  }
  for (int r = 0; r < R; ++r)
    for (int c = 0; c < PANEL_COLUMNS; ++c) y[r * y_stride + c] *= scales[c];
}

template <int S>
static void multiply_fixed_rows(int64_t rows, const int32_t* x, const float* x_scales, const int32_t* integers,
                                int64_t depth, const float* scales, float* y, int64_t y_stride, const char* ahead,
                                int64_t step) {
#define VS_CASE(R) \
  case R: return multiply_fixed<R, S>(x, x_scales, integers, depth, scales, y, y_stride, ahead, step)
  switch (rows) {
    VS_CASE(1);
    VS_CASE(2);
    VS_CASE(3);
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
  }
#undef VS_CASE
}

// tile[rows, 32 * count] = rows @ `count` panels; `integers` holds one widened panel, depth * 16 words.
inline void multiply_fixed_group(FixedRows x, int64_t rows, const uint32_t* panels, int64_t depth, int count,
                                 const float* scales, float* tile, int64_t tile_stride, int32_t* integers) {
  Blocks blocks(rows);
  const int64_t stride = panel_words(depth);
  auto* multiply = x.stride == FIXED_STRIDES[0]   ? multiply_fixed_rows<FIXED_STRIDES[0]>
                   : x.stride == FIXED_STRIDES[1] ? multiply_fixed_rows<FIXED_STRIDES[1]>
                                                  : multiply_fixed_rows<FIXED_STRIDES[2]>;
  for (int p = 0; p < count; ++p) {
    const float* panel_scales = scales + p * PANEL_COLUMNS;
    widen_panel(panels + p * stride, depth, panel_scales, integers);
    const char* next = reinterpret_cast<const char*>(panels + (p + 1) * stride);
    for (int64_t b = 0; b < blocks.count; ++b) {
      const int64_t first = blocks.first_of(b);
      multiply(blocks.rows_of(b), x.pairs + first * x.stride, x.scales + first * num_groups(depth), integers, depth,
               panel_scales, tile + first * tile_stride + p * PANEL_COLUMNS, tile_stride,
               next + b * (stride * 4 / blocks.count), std::max<int64_t>(1, 128 / blocks.count));
    }
  }
}

#else

inline void pack_fixed_rows(const float*, const int32_t*, int64_t, int64_t, FixedRows) { std::abort(); }
inline void multiply_fixed_group(FixedRows, int64_t, const uint32_t*, int64_t, int, const float*, float*, int64_t, int32_t*) {
  std::abort();
}

#endif

}  // namespace vs
