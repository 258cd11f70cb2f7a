// Products of many rows in 16-bit fixed point: vpmaddwd multiplies twice as many pairs per cycle as f32 does.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "product.h"
#include "vectors.h"

// A panel of bf16 weights becomes integers once for all rows, with a scale per column; activations become 15-bit
// integers, with a scale per row and 64 values. The column scales (see `linear.py`) keep the sum of magnitudes of 64
// weights below 2^17 and activations stay below 2^14, so that the sum of a group is exact in int32.
constexpr int kGroup = 64;
constexpr float kLargestActivation = 16383.0f;

static inline int padded_depth(int depth) { return (depth + kGroup - 1) / kGroup * kGroup; }

struct FixedRows {
    std::vector<int16_t> values;  // [row][padded depth]
    std::vector<float> scales;    // [row][group]: what one unit is worth
    std::vector<int16_t> panel;   // [pair of k][column][2]
};

static void quantise_row(const float *x, int depth, int16_t *values, float *scales) {
    float group[kGroup];
    for (int start = 0; start < depth; start += kGroup) {
        const int size = std::min(kGroup, depth - start);
        std::memset(group, 0, sizeof group);
        std::memcpy(group, x + start, size * sizeof(float));
        __m256 top = _mm256_setzero_ps();
        const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
        for (int i = 0; i < kGroup; i += 8)
            top = _mm256_max_ps(top, _mm256_and_ps(magnitude, _mm256_loadu_ps(group + i)));
        const float peak = std::max(max_lanes(top), 1e-30f);
        const __m256 scale = _mm256_set1_ps(kLargestActivation / peak);
        for (int i = 0; i < kGroup; i += 16) {
            const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(group + i), scale));
            const __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(group + i + 8), scale));
            const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
            _mm256_storeu_si256(reinterpret_cast<__m256i *>(values + start + i), packed);
        }
        *scales++ = peak / kLargestActivation;
    }
}

static void quantise_rows(const float *x, size_t x_stride, int num_rows, int depth, FixedRows &rows) {
    const int width = padded_depth(depth), groups = width / kGroup;
    rows.values.resize(size_t(num_rows) * width);
    rows.scales.resize(size_t(num_rows) * groups);
    for (int row = 0; row < num_rows; row++)
        quantise_row(x + row * x_stride, depth, &rows.values[size_t(row) * width], &rows.scales[size_t(row) * groups]);
}

// `units` holds what one unit of each column is worth.
static void quantise_panel(const uint16_t *panel, const float *units, int depth, int16_t *out) {
    const __m256 one = _mm256_set1_ps(1.0f);
    const __m256 low_scale = _mm256_div_ps(one, _mm256_loadu_ps(units));
    const __m256 high_scale = _mm256_div_ps(one, _mm256_loadu_ps(units + 8));
    const int width = padded_depth(depth);
    for (int k = 0; k < width; k += 2, out += 2 * kPanelColumns) {
        __m256i parts[2][2] = {};
        for (int i = 0; i < 2 && k + i < depth; i++) {
            __m256 low, high;
            widen(panel + size_t(k + i) * kPanelColumns, low, high);
            parts[i][0] = _mm256_cvtps_epi32(_mm256_mul_ps(low, low_scale));
            parts[i][1] = _mm256_cvtps_epi32(_mm256_mul_ps(high, high_scale));
        }
        for (int half = 0; half < 2; half++) {
            const __m256i pairs = _mm256_blend_epi16(parts[0][half], _mm256_slli_epi32(parts[1][half], 16), 0xaa);
            _mm256_storeu_si256(reinterpret_cast<__m256i *>(out + half * kPanelColumns), pairs);
        }
    }
}

// sums += the pair at `x` times 16 columns of pairs. In assembly, because GCC moves the products of a block forward and
// then keeps half of the sums in memory: twelve sums, two weights and these two temporaries fill the 16 registers.
static inline void add_products(const int16_t *x, __m256i low, __m256i high, __m256i &low_sum, __m256i &high_sum) {
    __m256i pair, product;
    asm("vpbroadcastd %[x], %[pair]\n\t"
        "vpmaddwd %[low], %[pair], %[product]\n\t"
        "vpmaddwd %[high], %[pair], %[pair]\n\t"
        "vpaddd %[product], %[low_sum], %[low_sum]\n\t"
        "vpaddd %[pair], %[high_sum], %[high_sum]"
        : [pair] "=&x"(pair), [product] "=&x"(product), [low_sum] "+x"(low_sum), [high_sum] "+x"(high_sum)
        : [x] "m"(*reinterpret_cast<const int16_t(*)[2]>(x)), [low] "x"(low), [high] "x"(high));
}

template <int R, bool Add>
static void multiply_fixed_block(const int16_t *x, const float *scales, int width, const int16_t *panel,
                                 const float *units, float *y, size_t y_stride) {
    const int groups = width / kGroup;
    alignas(32) float totals[R][kPanelColumns] = {};
    for (int group = 0; group < groups; group++) {
        __m256i sums[R][2];
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) sums[r][0] = sums[r][1] = _mm256_setzero_si256();
        const int16_t *weights = panel + size_t(group) * kGroup * kPanelColumns;
        const int16_t *values = x + group * kGroup;
        for (int k = 0; k < kGroup; k += 2, weights += 2 * kPanelColumns) {
            const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(weights));
            const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(weights + kPanelColumns));
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) {
                add_products(values + size_t(r) * width + k, low, high, sums[r][0], sums[r][1]);
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            const __m256 scale = _mm256_broadcast_ss(scales + size_t(r) * groups + group);
            for (int half = 0; half < 2; half++) {
                float *total = totals[r] + 8 * half;
                const __m256 sum = _mm256_cvtepi32_ps(sums[r][half]);
                _mm256_store_ps(total, _mm256_fmadd_ps(sum, scale, _mm256_load_ps(total)));
            }
        }
    }
    for (int r = 0; r < R; r++)
        for (int i = 0; i < kPanelColumns; i += 8) {
            const __m256 value = _mm256_mul_ps(_mm256_load_ps(totals[r] + i), _mm256_loadu_ps(units + i));
            float *out = y + r * y_stride + i;
            _mm256_storeu_ps(out, Add ? _mm256_add_ps(_mm256_loadu_ps(out), value) : value);
        }
}

// As `multiply_panels`, over rows from `first_row` of what `quantise_rows` has left.
template <bool Add>
static void multiply_fixed_panels(const Weight &w, int first, int count, int first_row, int num_rows, FixedRows &rows,
                                  float *y, size_t y_stride) {
    const int width = padded_depth(w.depth), groups = width / kGroup;
    rows.panel.resize(size_t(width) * kPanelColumns);
    for (int done = 0; done < count; done++, y += kPanelColumns) {
        const float *units = w.units + size_t(first + done) * kPanelColumns;
        quantise_panel(w.panel(first + done), units, w.depth, rows.panel.data());
        for (int row = 0; row < num_rows; row += kMaxBlockRows) {
            const int16_t *x = &rows.values[size_t(first_row + row) * width];
            const float *scales = &rows.scales[size_t(first_row + row) * groups];
            float *out = y + row * y_stride;
            switch (std::min(kMaxBlockRows, num_rows - row)) {
                case 1: multiply_fixed_block<1, Add>(x, scales, width, rows.panel.data(), units, out, y_stride); break;
                case 2: multiply_fixed_block<2, Add>(x, scales, width, rows.panel.data(), units, out, y_stride); break;
                case 3: multiply_fixed_block<3, Add>(x, scales, width, rows.panel.data(), units, out, y_stride); break;
                case 4: multiply_fixed_block<4, Add>(x, scales, width, rows.panel.data(), units, out, y_stride); break;
                case 5: multiply_fixed_block<5, Add>(x, scales, width, rows.panel.data(), units, out, y_stride); break;
                case 6: multiply_fixed_block<6, Add>(x, scales, width, rows.panel.data(), units, out, y_stride); break;
            }
        }
    }
}

// Rows whose integers stay in the second-level cache while all panels pass over them.
static inline int fixed_chunk_rows(int depth) {
    return std::max(4, (128 << 10) / padded_depth(depth) / kMaxBlockRows) * kMaxBlockRows;
}

template <bool Add>
static void multiply_fixed(const Weight &w, int num_rows, const float *x, size_t x_stride, FixedRows &rows, float *y,
                           size_t y_stride) {
    quantise_rows(x, x_stride, num_rows, w.depth, rows);
    const int limit = fixed_chunk_rows(w.depth);
    for (int row = 0; row < num_rows; row += limit)
        multiply_fixed_panels<Add>(w, 0, w.num_panels, row, std::min(limit, num_rows - row), rows, y + row * y_stride,
                                   y_stride);
}
