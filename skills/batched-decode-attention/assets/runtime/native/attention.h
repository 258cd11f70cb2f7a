// Causal grouped-query attention over a bf16 KV cache whose keys and values lie as weight panels.
//
// Of one slot and KV head the keys are a weight matrix [positions, head_dim] in panels of 32 positions, the values one
// [head_dim, positions]: scores and outputs are the products of `panels.h`. The query heads of a KV head are rows of one
// block and share its loads. Decode rows and prompt rows run the same operations in the same order, so a token's result
// does not depend on how its prompt was cut or with whom it was batched.
#pragma once

#include <limits>
#include <vector>

#include "elementwise.h"
#ifdef _OPENMP
#include <omp.h>
#endif

namespace vs {

// Bits of the nearest bf16 in the low halves.
inline line bf16_bits(vec value) {
  const line words = reinterpret_cast<line>(value);
  return (words + 0x7fffu + ((words >> 16) & 1u)) >> 16;
}

// Layout of the cache: keys [layer][slot][kv head][position / 32][head_dim][16 words],
// values [layer][slot][kv head][head_dim / 32][position][16 words].
struct CacheShape {
  int64_t num_slots, num_kv_heads, capacity, head_dim;  // capacity: positions of a slot, a multiple of 32

  int64_t key_words() const { return capacity / PANEL_COLUMNS * panel_words(head_dim); }
  int64_t value_words() const { return num_panels(head_dim) * panel_words(capacity); }
  int64_t index(int64_t layer, int64_t slot, int64_t kv_head) const {
    return (layer * num_slots + slot) * num_kv_heads + kv_head;
  }
};

struct Cache {
  CacheShape shape;
  uint32_t *keys, *values;

  uint32_t* keys_of(int64_t layer, int64_t slot, int64_t kv_head) const {
    return keys + shape.index(layer, slot, kv_head) * shape.key_words();
  }
  uint32_t* values_of(int64_t layer, int64_t slot, int64_t kv_head) const {
    return values + shape.index(layer, slot, kv_head) * shape.value_words();
  }

  // Column c of a panel line lies in half c / 16 of word c % 16.
  static int64_t half(int64_t column) { return column % LINE_WORDS * 2 + column / LINE_WORDS; }

  void write(int64_t layer, int64_t slot, int64_t kv_head, int64_t position, const float* key, const float* value) const {
    auto* k = reinterpret_cast<uint16_t*>(keys_of(layer, slot, kv_head)) +
              position / PANEL_COLUMNS * panel_words(shape.head_dim) * 2 + half(position % PANEL_COLUMNS);
    auto* v = reinterpret_cast<uint16_t*>(values_of(layer, slot, kv_head)) + position * PANEL_COLUMNS;
    for (int64_t d = 0; d < shape.head_dim; ++d) k[d * PANEL_COLUMNS] = float_to_bf16(key[d]);
    int64_t d = 0;
    for (; d + PANEL_COLUMNS <= shape.head_dim; d += PANEL_COLUMNS, v += panel_words(shape.capacity) * 2) {
      const line words = bf16_bits(load(value + d)) | bf16_bits(load(value + d + LINE_WORDS)) << 16;
      *reinterpret_cast<line*>(v) = words;
    }
    for (int64_t column = 0; d < shape.head_dim; ++d, ++column) v[half(column)] = float_to_bf16(value[d]);
  }
};

// The rows of one sequence in a step.
struct Segment {
  int64_t slot, start_row, num_rows, start_position;
};

// A block of consecutive (row, query head of the KV head) pairs of one segment, heads running faster.
struct AttentionTask {
  Segment segment;
  int64_t kv_head, first_pair, num_pairs;
};

// f32 rows `stride` apart, of heads side by side.
struct Rows {
  float* first;
  int64_t stride;
  float* at(int64_t row) const { return first + row * stride; }
};

// scores[0 .. visible) -> 2^(score - max), zero up to `depth`; returns their sum. The row is a whole number of panels long.
inline float softmax_terms(float* scores, int64_t visible, int64_t depth) {
  const int64_t end = (visible + LANES - 1) / LANES * LANES;
  for (int64_t i = visible; i < end; ++i) scores[i] = -std::numeric_limits<float>::infinity();
  vec peaks = load(scores);
  for (int64_t i = LANES; i < end; i += LANES) {
    const vec s = load(scores + i);
    peaks = s > peaks ? s : peaks;
  }
  float peak = peaks[0];
  for (int i = 1; i < LANES; ++i) peak = std::max(peak, peaks[i]);
  for (int64_t i = 0; i < end; i += LANES) store(scores + i, exp2_lanes(load(scores + i) - peak));
  for (int64_t i = visible; i < std::max(depth, end); ++i) scores[i] = 0.0f;
  vec sum{};
  for (int64_t i = 0; i < end; i += LANES) sum += load(scores + i);
  return sum_lanes(sum);
}

// rows[num][stride] -> packed [depth][num]
inline void transpose(const float* rows, int64_t stride, int64_t num, int64_t depth, float* packed) {
  for (int64_t k = 0; k < depth; ++k)
    for (int64_t r = 0; r < num; ++r) packed[k * num + r] = rows[r * stride + k];
}

// Distance of two rows of scores, up to which contexts need no transposition; see `multiply`.
constexpr int SCORE_STRIDE = 2064;

struct AttentionScratch {
  Scratch query, scores, packed, output;
};

struct HeadLayout {
  int64_t num_heads, num_kv_heads, head_dim;
  int64_t group() const { return num_heads / num_kv_heads; }
  int64_t query_width() const { return num_heads * head_dim; }
  int64_t kv_width() const { return num_kv_heads * head_dim; }
};

class Attention {
 public:
  Attention(const HeadLayout& heads, const CacheShape& shape, int64_t num_threads)
      : heads_(heads), shape_(shape), scratch_(static_cast<size_t>(std::max<int64_t>(1, num_threads))) {}

  const HeadLayout& heads() const { return heads_; }
  const CacheShape& shape() const { return shape_; }

  // cos, sin: f32 [capacity, head_dim / 2]
  void set_rotary(const float* cos, const float* sin) {
    const int64_t size = shape_.capacity * (heads_.head_dim / 2);
    cos_.assign(cos, cos + size);
    sin_.assign(sin, sin + size);
  }

  // Tasks of all rows of a segment (or of a part of one).
  void add_tasks(const Segment& segment, std::vector<AttentionTask>& tasks) const {
    const int64_t pairs = segment.num_rows * heads_.group();
    for (int64_t head = 0; head < heads_.num_kv_heads; ++head)
      for (int64_t first = 0; first < pairs; first += BLOCK_ROWS)
        tasks.push_back({segment, head, first, std::min<int64_t>(BLOCK_ROWS, pairs - first)});
  }

  // Rotates query and key of a segment's rows in place and writes key and value to the cache.
  void write(const Segment& segment, int64_t layer, Rows query, Rows key, Rows value, const Cache& cache) const {
    const int64_t dim = heads_.head_dim;
    for (int64_t i = 0; i < segment.num_rows; ++i) {
      const int64_t row = segment.start_row + i, position = segment.start_position + i;
      const float *cos = cos_.data() + position * (dim / 2), *sin = sin_.data() + position * (dim / 2);
      for (int64_t head = 0; head < heads_.num_heads; ++head) rotate(query.at(row) + head * dim, cos, sin, dim);
      for (int64_t head = 0; head < heads_.num_kv_heads; ++head) {
        rotate(key.at(row) + head * dim, cos, sin, dim);
        cache.write(layer, segment.slot, head, position, key.at(row) + head * dim, value.at(row) + head * dim);
      }
    }
  }

  void run(const std::vector<AttentionTask>& tasks, int64_t layer, Rows query, const Cache& cache, Rows attended) {
    const int threads = static_cast<int>(scratch_.size());
    const int64_t count = static_cast<int64_t>(tasks.size());
    (void)threads;
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1)
#endif
    for (int64_t i = 0; i < count; ++i) {
      const AttentionTask& next = tasks[static_cast<size_t>(std::min(i + 1, count - 1))];
      attend(tasks[static_cast<size_t>(i)], next, layer, query, cache, attended, own_scratch());
    }
  }

 private:
  AttentionScratch& own_scratch() {
#ifdef _OPENMP
    return scratch_[static_cast<size_t>(omp_get_thread_num())];
#else
    return scratch_[0];
#endif
  }

  // While it works on the keys and values of `task` it fetches those of `next`: they lie elsewhere, and a decode task is
  // too short for the hardware's prefetcher to find its streams.
  void attend(const AttentionTask& task, const AttentionTask& next, int64_t layer, Rows query, const Cache& cache,
              Rows attended, AttentionScratch& scratch) const {
    const int64_t group = heads_.group(), dim = heads_.head_dim, num = task.num_pairs;
    auto row_of = [&](int64_t pair) { return (task.first_pair + pair) / group; };
    auto column_of = [&](int64_t pair) { return (task.kv_head * group + (task.first_pair + pair) % group) * dim; };
    auto visible_of = [&](int64_t pair) { return task.segment.start_position + row_of(pair) + 1; };

    const float scale = 1.44269504f / std::sqrt(static_cast<float>(dim));  // scores in base 2
    float* packed_query = scratch.query.get<float>(num * dim);
    for (int64_t r = 0; r < num; ++r) {
      const float* source = query.at(task.segment.start_row + row_of(r)) + column_of(r);
      for (int64_t d = 0; d < dim; ++d) packed_query[d * num + r] = source[d] * scale;
    }
    const int64_t depth = visible_of(num - 1), panels = num_panels(depth);
    const int64_t stride = std::max<int64_t>(panels * PANEL_COLUMNS, SCORE_STRIDE);
    const uint32_t* keys = cache.keys_of(layer, task.segment.slot, task.kv_head);
    const uint32_t* values = cache.values_of(layer, task.segment.slot, task.kv_head);
    float* scores = scratch.scores.get<float>(num * stride);
    multiply_rows(num, packed_query, keys, panel_words(dim), dim, static_cast<int>(panels), scores, stride,
                  reinterpret_cast<const char*>(cache.keys_of(layer, next.segment.slot, next.kv_head)), 64);
    float sums[BLOCK_ROWS];
    for (int64_t r = 0; r < num; ++r) sums[r] = softmax_terms(scores + r * stride, visible_of(r), depth);
    const int64_t width = num_panels(dim) * PANEL_COLUMNS;
    float* output = scratch.output.get<float>(num * width);
    auto multiply_values = [&](auto* multiply, const float* terms) {
      multiply(num, terms, values, panel_words(shape_.capacity), depth, static_cast<int>(num_panels(dim)), output, width,
               reinterpret_cast<const char*>(cache.values_of(layer, next.segment.slot, next.kv_head)), 64);
    };
    if (stride == SCORE_STRIDE) {
      multiply_values(multiply_rows<SCORE_STRIDE>, scores);
    } else {
      float* packed = scratch.packed.get<float>(num * depth);
      transpose(scores, stride, num, depth, packed);
      multiply_values(multiply_rows<0>, packed);
    }
    for (int64_t r = 0; r < num; ++r) {
      float* target = attended.at(task.segment.start_row + row_of(r)) + column_of(r);
      const float inverse = 1.0f / sums[r];
      for (int64_t d = 0; d < dim; ++d) target[d] = output[r * width + d] * inverse;
    }
  }

  HeadLayout heads_;
  CacheShape shape_;
  std::vector<float> cos_, sin_;
  std::vector<AttentionScratch> scratch_;
};

}  // namespace vs
