// Causal grouped-query attention over an f16 cache.
#pragma once

#include <algorithm>
#include <vector>

#include "vectors.h"

// Keys of a slot and KV head lie in panels of 16 positions, [position / 16][head_dim][16]; values lie as
// [position][head_dim].
// So scores and outputs both are sums of broadcast times vector, without sums across lanes.
constexpr int kKeyPositions = 16;
constexpr int kMaxQueries = 6;

struct Cache {
    uint16_t *keys;
    uint16_t *values;
    int num_kv_heads;
    int num_positions;  // of a slot, a multiple of 16
    int head_dim;

    size_t offset(int slot, int kv_head) const {
        return (size_t(slot) * num_kv_heads + kv_head) * num_positions * head_dim;
    }
};

static inline uint16_t to_half(float value) {
    return uint16_t(_cvtss_sh(std::min(65504.0f, std::max(-65504.0f, value)), _MM_FROUND_TO_NEAREST_INT));
}

static inline void write_cache(const Cache &cache, int slot, int kv_head, int position, const float *key,
                               const float *value) {
    const int size = cache.head_dim, lane = position % kKeyPositions;
    uint16_t *keys = cache.keys + cache.offset(slot, kv_head) + size_t(position - lane) * size + lane;
    uint16_t *values = cache.values + cache.offset(slot, kv_head) + size_t(position) * size;
    for (int i = 0; i < size; i++) {
        keys[size_t(i) * kKeyPositions] = to_half(key[i]);
        values[i] = to_half(value[i]);
    }
}

// out[r][0:16] = sum over k < depth of x[r][k] * y[k][0:16], y in f16 with a stride.
template <int R>
static inline void weigh(const float *const *x, int depth, const uint16_t *y, size_t y_stride, float *const *out) {
    __m256 sums[R][2];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) sums[r][0] = sums[r][1] = _mm256_setzero_ps();
    for (int k = 0; k < depth; k++) {
        const __m256 low = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(y + k * y_stride)));
        const __m256 high = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(y + k * y_stride + 8)));
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            const __m256 value = _mm256_broadcast_ss(x[r] + k);
            sums[r][0] = _mm256_fmadd_ps(value, low, sums[r][0]);
            sums[r][1] = _mm256_fmadd_ps(value, high, sums[r][1]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
        _mm256_storeu_ps(out[r], sums[r][0]);
        _mm256_storeu_ps(out[r] + 8, sums[r][1]);
    }
}

// Softmax of scores[0:visible]; zero up to `stop`, so that what lies beyond a row's own position weighs nothing.
static inline void softmax(float *scores, int visible, int stop) {
    for (int i = visible; i < stop; i++) scores[i] = -INFINITY;
    __m256 top = _mm256_set1_ps(-INFINITY);
    for (int i = 0; i < stop; i += 8) top = _mm256_max_ps(top, _mm256_loadu_ps(scores + i));
    const __m256 peak = _mm256_set1_ps(max_lanes(top));
    __m256 total = _mm256_setzero_ps();
    for (int i = 0; i < visible; i += 8) {
        const __m256 weight = exp_lanes(_mm256_sub_ps(_mm256_loadu_ps(scores + i), peak));
        _mm256_storeu_ps(scores + i, weight);
        if (i + 8 <= visible) total = _mm256_add_ps(total, weight);
    }
    float sum = sum_lanes(total);
    for (int i = visible / 8 * 8; i < visible; i++) sum += scores[i];
    for (int i = visible; i < stop; i++) scores[i] = 0.0f;
    const __m256 scale = _mm256_set1_ps(1.0f / sum);
    for (int i = 0; i < visible; i += 8)
        _mm256_storeu_ps(scores + i, _mm256_mul_ps(_mm256_loadu_ps(scores + i), scale));
}

// R queries of one KV head with `visible[r]` positions each; `scores` has R rows of `num_positions`.
template <int R>
static void attend_block(const Cache &cache, int slot, int kv_head, const float *const *queries, const int *visible,
                         float *const *out, float *scores) {
    const uint16_t *keys = cache.keys + cache.offset(slot, kv_head);
    const uint16_t *values = cache.values + cache.offset(slot, kv_head);
    const int last = *std::max_element(visible, visible + R);
    const int stop = (last + kKeyPositions - 1) / kKeyPositions * kKeyPositions;
    float *rows[R], *targets[R];
    for (int position = 0; position < stop; position += kKeyPositions) {
        for (int r = 0; r < R; r++) rows[r] = scores + size_t(r) * cache.num_positions + position;
        weigh<R>(queries, cache.head_dim, keys + size_t(position) * cache.head_dim, kKeyPositions, rows);
    }
    for (int r = 0; r < R; r++) {
        rows[r] = scores + size_t(r) * cache.num_positions;
        softmax(rows[r], visible[r], stop);
    }
    for (int column = 0; column < cache.head_dim; column += 16) {
        for (int r = 0; r < R; r++) targets[r] = out[r] + column;
        weigh<R>(rows, last, values + column, cache.head_dim, targets);
    }
}

static void attend(int num_queries, const Cache &cache, int slot, int kv_head, const float *const *queries,
                   const int *visible, float *const *out, float *scores) {
    switch (num_queries) {
        case 1: return attend_block<1>(cache, slot, kv_head, queries, visible, out, scores);
        case 2: return attend_block<2>(cache, slot, kv_head, queries, visible, out, scores);
        case 3: return attend_block<3>(cache, slot, kv_head, queries, visible, out, scores);
        case 4: return attend_block<4>(cache, slot, kv_head, queries, visible, out, scores);
        case 5: return attend_block<5>(cache, slot, kv_head, queries, visible, out, scores);
        case 6: return attend_block<6>(cache, slot, kv_head, queries, visible, out, scores);
    }
}
