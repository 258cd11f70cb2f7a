// Products of f32 rows with bf16 weights that stay 16 bits wide in memory and are widened in registers (AVX2).
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

// A panel holds 16 output columns; for every k one line of 16 bf16, column i in the low and column i + 8 in the high
// half of 32-bit word i, so that one load, one shift and one mask give two vectors of f32.
constexpr int kPanelColumns = 16;
constexpr int kMaxBlockRows = 6;

struct Weight {
    const uint16_t *panels;
    int depth;
    int num_panels;
    const float *units = nullptr;  // of each column, for `fixed.h`

    const uint16_t *panel(int index) const { return panels + size_t(index) * depth * kPanelColumns; }
};

static inline void widen(const uint16_t *line, __m256 &low, __m256 &high) {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(line));
    low = _mm256_castsi256_ps(_mm256_slli_epi32(words, 16));
    high = _mm256_castsi256_ps(_mm256_and_si256(words, _mm256_set1_epi32(int(0xffff0000u))));
}

// One block of R rows by P panels. Every output is one accumulator, k ascending: a row's result does not depend on the
// other rows. `ahead` is fetched meanwhile, `ahead_step` bytes per k.
template <int R, int P, bool Add>
static void multiply_block(const float *x, size_t x_stride, const uint16_t *panel, int depth, float *y, size_t y_stride,
                           const char *ahead, int ahead_step) {
    __m256 sums[R][2 * P];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int c = 0; c < 2 * P; c++) sums[r][c] = _mm256_setzero_ps();
    for (int k = 0; k < depth; k++) {
        _mm_prefetch(ahead + size_t(k) * ahead_step, _MM_HINT_T0);
#pragma GCC unroll 8
        for (int p = 0; p < P; p++) {
            __m256 low, high;
            widen(panel + (size_t(p) * depth + k) * kPanelColumns, low, high);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++) {
                const __m256 value = _mm256_broadcast_ss(x + r * x_stride + k);
                sums[r][2 * p] = _mm256_fmadd_ps(value, low, sums[r][2 * p]);
                sums[r][2 * p + 1] = _mm256_fmadd_ps(value, high, sums[r][2 * p + 1]);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++)
#pragma GCC unroll 8
        for (int c = 0; c < 2 * P; c++) {
            float *out = y + r * y_stride + 8 * c;
            _mm256_storeu_ps(out, Add ? _mm256_add_ps(_mm256_loadu_ps(out), sums[r][c]) : sums[r][c]);
        }
}

template <int P, bool Add>
static void multiply_rows(int num_rows, const float *x, size_t x_stride, const uint16_t *panel, int depth, float *y,
                          size_t y_stride, const char *ahead, int step) {
    switch (num_rows) {
        case 1: return multiply_block<1, P, Add>(x, x_stride, panel, depth, y, y_stride, ahead, step);
        case 2: return multiply_block<2, P, Add>(x, x_stride, panel, depth, y, y_stride, ahead, step);
        case 3: return multiply_block<3, P, Add>(x, x_stride, panel, depth, y, y_stride, ahead, step);
    }
    if constexpr (P == 1) switch (num_rows) {
            case 4: return multiply_block<4, P, Add>(x, x_stride, panel, depth, y, y_stride, ahead, step);
            case 5: return multiply_block<5, P, Add>(x, x_stride, panel, depth, y, y_stride, ahead, step);
            case 6: return multiply_block<6, P, Add>(x, x_stride, panel, depth, y, y_stride, ahead, step);
        }
}

// Columns of `count` panels from `first` of y = x W^T, or y += x W^T. `y` points at the first of these columns.
template <bool Add>
static void multiply_panels(const Weight &w, int first, int count, int num_rows, const float *x, size_t x_stride,
                            float *y, size_t y_stride) {
    const int num_blocks = (num_rows + kMaxBlockRows - 1) / kMaxBlockRows;
    const int step = num_rows <= 3 ? 0 : kPanelColumns * 2 / (num_blocks < 32 ? num_blocks : 32);
    int done = 0;
    // few rows: several panels at once, to hide the latency of the multiplier
    for (; num_rows == 1 && done + 4 <= count; done += 4)
        multiply_block<1, 4, Add>(x, x_stride, w.panel(first + done), w.depth, y + 16 * done, y_stride,
                                  reinterpret_cast<const char *>(w.panel(first + done)), 0);
    for (; num_rows <= 3 && done + 2 <= count; done += 2)
        multiply_rows<2, Add>(num_rows, x, x_stride, w.panel(first + done), w.depth, y + 16 * done, y_stride,
                              reinterpret_cast<const char *>(w.panel(first + done)), 0);
    for (; done < count; done++) {
        const uint16_t *panel = w.panel(first + done);
        const char *ahead = reinterpret_cast<const char *>(w.panel(first + done + 1));
        for (int block = 0, row = 0; block < num_blocks; block++) {
            const int rows = (num_rows - row + num_blocks - block - 1) / (num_blocks - block);
            multiply_rows<1, Add>(rows, x + row * x_stride, x_stride, panel, w.depth, y + row * y_stride + 16 * done,
                                  y_stride, ahead + size_t(block) * w.depth * step, step);
            row += rows;
        }
    }
}

// Rows whose activations stay in the second-level cache while all panels pass over them.
static inline int chunk_rows(int depth) { return std::max(4 * kMaxBlockRows, (64 << 10) / depth); }

template <bool Add>
static void multiply(const Weight &w, int num_rows, const float *x, size_t x_stride, float *y, size_t y_stride) {
    const int limit = chunk_rows(w.depth);
    for (int row = 0; row < num_rows; row += limit)
        multiply_panels<Add>(w, 0, w.num_panels, std::min(limit, num_rows - row), x + row * x_stride, x_stride,
                             y + row * y_stride, y_stride);
}
