// Norm, rotary embedding and activation of a Llama block, on plain vector types.
#pragma once

#include <cmath>

#include "panels.h"

namespace vs {

constexpr int LANES = 16;

inline vec load(const float* p) { return *reinterpret_cast<const vec*>(p); }
inline void store(float* p, vec v) { *reinterpret_cast<vec*>(p) = v; }
inline vec splat(float value) { return value - vec{}; }

inline float sum_lanes(vec v) {
  float sum = 0.0f;
  for (int i = 0; i < LANES; ++i) sum += v[i];
  return sum;
}

// 2^x for x in [-126, 126] (clamped): split off the nearest integer, Taylor polynomial of degree 6 for the rest
// (relative error 1.2e-7 at 1/2), then add the integer to the exponent.
inline vec exp2_lanes(vec x) {
  const vec lowest = splat(-126.0f), highest = splat(126.0f), shifter = splat(12582912.0f);  // 1.5 * 2^23
  x = x < lowest ? lowest : x;
  x = x > highest ? highest : x;
  const vec shifted = x + shifter;
  const vec f = x - (shifted - shifter);
  vec p = splat(1.5403530e-4f);
  p = p * f + 1.3333558e-3f;
  p = p * f + 9.6181291e-3f;
  p = p * f + 5.5504109e-2f;
  p = p * f + 2.4022651e-1f;
  p = p * f + 6.9314718e-1f;
  p = p * f + 1.0f;
  const ivec exponent = reinterpret_cast<ivec>(shifted) << 23;  // the integer sits in the low bits of the sum
  return reinterpret_cast<vec>(reinterpret_cast<ivec>(p) + exponent);
}

// out = x / rms(x) * weight (Zhang and Sennrich 2019); `size` is a multiple of 16.
inline void rms_norm(const float* x, const float* weight, int64_t size, float eps, float* out) {
  vec squares{};
  for (int64_t i = 0; i < size; i += LANES) squares += load(x + i) * load(x + i);
  const float scale = 1.0f / std::sqrt(sum_lanes(squares) / static_cast<float>(size) + eps);
  for (int64_t i = 0; i < size; i += LANES) store(out + i, load(x + i) * scale * load(weight + i));
}

// Rotates the pairs (i, i + size / 2) of one head; cos and sin hold size / 2 values.
inline void rotate(float* head, const float* cos, const float* sin, int64_t size) {
  float *low = head, *high = head + size / 2;
  for (int64_t i = 0; i < size / 2; ++i) {
    const float a = low[i], b = high[i];
    low[i] = a * cos[i] - b * sin[i];
    high[i] = b * cos[i] + a * sin[i];
  }
}

// silu(gate) * up for 32 columns.
inline void gated(const float* gate, const float* up, float* out) {
  constexpr float LOG2_E = 1.44269504f;
  for (int i = 0; i < PANEL_COLUMNS; i += LANES) {
    const vec g = load(gate + i);
    store(out + i, g * load(up + i) / (1.0f + exp2_lanes(g * -LOG2_E)));
  }
}

}  // namespace vs
