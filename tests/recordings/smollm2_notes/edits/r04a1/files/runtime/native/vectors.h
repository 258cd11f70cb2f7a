// Elementwise pieces of the decoder on eight f32 lanes.
#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstddef>

// e^x by 2^n * p(r), |r| <= ln(2) / 2, relative error 2e-7; -inf and everything below -87 give 0 or next to it.
static inline __m256 exp_lanes(__m256 x) {
    x = _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(-87.0f)), _mm256_set1_ps(88.0f));
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(1.9875691500e-4f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
    p = _mm256_fmadd_ps(_mm256_mul_ps(r, r), p, _mm256_add_ps(r, _mm256_set1_ps(1.0f)));
    const __m256i scale = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(p, _mm256_castsi256_ps(scale));
}

static inline float sum_lanes(__m256 x) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
}

static inline float max_lanes(__m256 x) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_shuffle_ps(half, half, 1)));
}

// Root-mean-square norm of one row; `size` is a multiple of 8.
static inline void rms_norm(const float *x, const float *weight, float eps, int size, float *out) {
    __m256 squares = _mm256_setzero_ps();
    for (int i = 0; i < size; i += 8) {
        const __m256 value = _mm256_loadu_ps(x + i);
        squares = _mm256_fmadd_ps(value, value, squares);
    }
    const __m256 scale = _mm256_set1_ps(1.0f / std::sqrt(sum_lanes(squares) / size + eps));
    for (int i = 0; i < size; i += 8)
        _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), scale),
                                                _mm256_loadu_ps(weight + i)));
}

// silu(gate) * up.
static inline __m256 swiglu(__m256 gate, __m256 up) {
    const __m256 one = _mm256_set1_ps(1.0f);
    const __m256 down = _mm256_add_ps(one, exp_lanes(_mm256_sub_ps(_mm256_setzero_ps(), gate)));
    return _mm256_mul_ps(_mm256_div_ps(gate, down), up);
}

// Rotates the pairs (i, i + size / 2) of `x` and multiplies by `scale`; `cos` and `sin` hold size / 2 values.
static inline void rotate(float *x, const float *cos, const float *sin, int size, float scale) {
    const int half = size / 2;
    for (int i = 0; i < half; i++) {
        const float low = x[i], high = x[i + half];
        x[i] = (low * cos[i] - high * sin[i]) * scale;
        x[i + half] = (high * cos[i] + low * sin[i]) * scale;
    }
}
