// flags: -fopenmp -Wno-maybe-uninitialized
// One step of a Llama decoder (Touvron et al. 2023) in one call: embedding, blocks, LM head at the wanted rows.
#include <chrono>
#include <memory>

#include "attention.h"
#include "product.h"

namespace {

using vs::AttentionTask;
using vs::Matrix;
using vs::RowSets;
using vs::Segment;

struct Sizes {
  int64_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads, num_kv_heads, head_dim;
  int64_t num_slots, capacity, num_threads, min_fixed_rows;
  double rms_norm_eps;
};

struct Layer {
  Matrix projection, output, gate_up, down;  // projection: query, key, value; gate_up: 32 columns of each in turn
  std::vector<float> input_norm, mlp_norm;
};

struct Step {
  const int64_t* token_ids;
  int64_t num_rows;
  const Segment* segments;
  int64_t num_segments;
  const int64_t* logits_rows;
  int64_t num_logits;
};

class Timer {
 public:
  explicit Timer(double* seconds) : seconds_(seconds), start_(Clock::now()) {}
  ~Timer() { *seconds_ += std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  double* seconds_;
  Clock::time_point start_;
};

class Decoder {
 public:
  explicit Decoder(const Sizes& sizes)
      : sizes_(sizes),
        layers_(static_cast<size_t>(sizes.num_layers)),
        product_(static_cast<int>(sizes.num_threads)),
        attention_({sizes.num_heads, sizes.num_kv_heads, sizes.head_dim},
                   {sizes.num_slots, sizes.num_kv_heads, sizes.capacity, sizes.head_dim}, sizes.num_threads) {}

  const Sizes& sizes() const { return sizes_; }
  Layer& layer(int64_t index) { return layers_[static_cast<size_t>(index)]; }

  bool assign_ends(const uint16_t* embedding, const uint16_t* head, const float* norm, const float* cos, const float* sin) {
    embedding_ = embedding;
    norm_.assign(norm, norm + sizes_.hidden_size);
    attention_.set_rotary(cos, sin);
    return head_.assign(head, sizes_.vocab_size, sizes_.hidden_size);
  }

  // seconds: of linears, of attention.
  void run(const Step& step, uint32_t* keys, uint32_t* values, float* logits, double* seconds) {
    linear_s_ = seconds;
    attention_s_ = seconds + 1;
    reserve_buffers(step.num_rows);
    const vs::Cache cache{attention_.shape(), keys, values};
    RowSets rows = split_rows(step);
    std::vector<AttentionTask> tasks = tasks_of_segments(step);
    embed(step);
    for (int64_t index = 0; index < sizes_.num_layers; ++index) {
      project(layer(index), rows);
      write_cache(step, cache, index);
      if (index + 1 == sizes_.num_layers) {
        // nothing reads the other rows of the last block
        rows = wanted_rows(step);
        tasks = tasks_of_wanted_rows(step);
      }
      attend_all(tasks, cache, index);
      finish_block(layer(index), rows);
    }
    write_logits(step, rows, logits);
  }

 private:
  void reserve_buffers(int64_t rows) {
    x_ = x_buffer_.get<float>(rows * sizes_.hidden_size);
    normed_ = normed_buffer_.get<float>(rows * sizes_.hidden_size);
    projected_ = projected_buffer_.get<float>(rows * projected_width());
    attended_ = attended_buffer_.get<float>(rows * attention_.heads().query_width());
    activated_ = activated_buffer_.get<float>(rows * sizes_.intermediate_size);
  }

  // Long prompts (or chunks) in fixed point, everything else in f32: the choice depends on a row's own segment only.
  RowSets split_rows(const Step& step) const {
    RowSets rows;
    for (int64_t s = 0; s < step.num_segments; ++s) {
      const Segment& segment = step.segments[s];
      const bool is_fixed = vs::HAS_FIXED_POINT && sizes_.min_fixed_rows > 0 && segment.num_rows >= sizes_.min_fixed_rows;
      auto& ids = is_fixed ? rows.fixed : rows.exact;
      for (int64_t r = 0; r < segment.num_rows; ++r) ids.push_back(static_cast<int32_t>(segment.start_row + r));
    }
    return rows;
  }

  RowSets wanted_rows(const Step& step) const {
    RowSets rows;
    for (int64_t i = 0; i < step.num_logits; ++i) rows.exact.push_back(static_cast<int32_t>(step.logits_rows[i]));
    return rows;
  }

  std::vector<AttentionTask> tasks_of_segments(const Step& step) const {
    std::vector<AttentionTask> tasks;
    for (int64_t s = 0; s < step.num_segments; ++s) attention_.add_tasks(step.segments[s], tasks);
    return tasks;
  }

  std::vector<AttentionTask> tasks_of_wanted_rows(const Step& step) const {
    std::vector<AttentionTask> tasks;
    int64_t s = 0;
    for (int64_t i = 0; i < step.num_logits; ++i) {
      const int64_t row = step.logits_rows[i];
      while (row >= step.segments[s].start_row + step.segments[s].num_rows) ++s;
      const Segment& segment = step.segments[s];
      attention_.add_tasks({segment.slot, row, 1, segment.start_position + row - segment.start_row}, tasks);
    }
    return tasks;
  }

  void embed(const Step& step) {
    for (int64_t r = 0; r < step.num_rows; ++r) {
      const uint16_t* row = embedding_ + step.token_ids[r] * sizes_.hidden_size;
      for (int64_t i = 0; i < sizes_.hidden_size; ++i) x_[r * sizes_.hidden_size + i] = vs::bf16_to_float(row[i]);
    }
  }

  void norm_rows(const RowSets& rows, const std::vector<float>& weight) {
    const int64_t size = sizes_.hidden_size;
    for (const auto* ids : {&rows.exact, &rows.fixed})
      for (int32_t row : *ids)
        vs::rms_norm(x_ + row * size, weight.data(), size, static_cast<float>(sizes_.rms_norm_eps), normed_ + row * size);
  }

  void project(const Layer& layer, const RowSets& rows) {
    norm_rows(rows, layer.input_norm);
    Timer timer(linear_s_);
    product_.pack(normed_, rows, sizes_.hidden_size);
    write_product(layer.projection, rows, projected_);
  }

  void write_product(const Matrix& matrix, const RowSets& rows, float* out) {
    product_.run(matrix, rows,
                 [=, &matrix](const int32_t* ids, int64_t count, const float* tile, int64_t stride, int64_t column, int64_t columns) {
                   for (int64_t r = 0; r < count; ++r)
                     std::memcpy(out + ids[r] * matrix.columns + column, tile + r * stride, static_cast<size_t>(columns) * 4);
                 });
  }

  // x += rows of `input` @ matrix
  void add_product(const Matrix& matrix, const RowSets& rows, const float* input) {
    product_.pack(input, rows, matrix.depth);
    product_.run(matrix, rows,
                 [this](const int32_t* ids, int64_t count, const float* tile, int64_t stride, int64_t column, int64_t columns) {
                   for (int64_t r = 0; r < count; ++r) {
                     float* target = x_ + ids[r] * sizes_.hidden_size + column;
                     for (int64_t c = 0; c < columns; ++c) target[c] += tile[r * stride + c];
                   }
                 });
  }

  void write_cache(const Step& step, const vs::Cache& cache, int64_t layer) {
    Timer timer(attention_s_);
    const int64_t width = projected_width(), query_width = attention_.heads().query_width();
    float *key = projected_ + query_width, *value = key + attention_.heads().kv_width();
    for (int64_t s = 0; s < step.num_segments; ++s)
      attention_.write(step.segments[s], layer, {projected_, width}, {key, width}, {value, width}, cache);
  }

  void attend_all(const std::vector<AttentionTask>& tasks, const vs::Cache& cache, int64_t layer) {
    Timer timer(attention_s_);
    attention_.run(tasks, layer, {projected_, projected_width()}, cache, {attended_, attention_.heads().query_width()});
  }

  // Output projection and MLP of the rows.
  void finish_block(const Layer& layer, const RowSets& rows) {
    {
      Timer timer(linear_s_);
      add_product(layer.output, rows, attended_);
    }
    norm_rows(rows, layer.mlp_norm);
    Timer timer(linear_s_);
    product_.pack(normed_, rows, sizes_.hidden_size);
    product_.run(layer.gate_up, rows,
                 [this](const int32_t* ids, int64_t count, const float* tile, int64_t stride, int64_t column, int64_t columns) {
                   for (int64_t c = 0; c < columns; c += 2 * vs::PANEL_COLUMNS)
                     for (int64_t r = 0; r < count; ++r) {
                       const float* gate = tile + r * stride + c;
                       vs::gated(gate, gate + vs::PANEL_COLUMNS, activated_ + ids[r] * sizes_.intermediate_size + (column + c) / 2);
                     }
                 });
    add_product(layer.down, rows, activated_);
  }

  void write_logits(const Step& step, const RowSets& rows, float* logits) {
    norm_rows(rows, norm_);
    Timer timer(linear_s_);
    RowSets wanted;
    for (int64_t i = 0; i < step.num_logits; ++i) {
      const int64_t row = step.logits_rows[i];
      // rows ascend and i <= row: nothing that is still needed is overwritten
      std::memmove(normed_ + i * sizes_.hidden_size, normed_ + row * sizes_.hidden_size, static_cast<size_t>(sizes_.hidden_size) * 4);
      wanted.exact.push_back(static_cast<int32_t>(i));
    }
    product_.pack(normed_, wanted, sizes_.hidden_size);
    write_product(head_, wanted, logits);
  }

  int64_t projected_width() const { return attention_.heads().query_width() + 2 * attention_.heads().kv_width(); }

  Sizes sizes_;
  std::vector<Layer> layers_;
  Matrix head_;
  const uint16_t* embedding_ = nullptr;
  std::vector<float> norm_;
  vs::Product product_;
  vs::Attention attention_;
  vs::Scratch x_buffer_, normed_buffer_, projected_buffer_, attended_buffer_, activated_buffer_;
  float *x_ = nullptr, *normed_ = nullptr, *projected_ = nullptr, *attended_ = nullptr, *activated_ = nullptr;
  double *linear_s_ = nullptr, *attention_s_ = nullptr;
};

}  // namespace

extern "C" {

void* forward_create(const Sizes* sizes) { return new Decoder(*sizes); }

void forward_destroy(void* handle) { delete static_cast<Decoder*>(handle); }

// Weights bf16, row-major; norms f32. Returns 0 when the memory is not to be had.
int forward_set_layer(void* handle, int64_t index, const uint16_t* projection, const uint16_t* output, const uint16_t* gate_up,
                      const uint16_t* down, const float* input_norm, const float* mlp_norm) {
  auto& self = *static_cast<Decoder*>(handle);
  const Sizes& sizes = self.sizes();
  Layer& layer = self.layer(index);
  const int64_t hidden = sizes.hidden_size, width = sizes.num_heads * sizes.head_dim;
  layer.input_norm.assign(input_norm, input_norm + hidden);
  layer.mlp_norm.assign(mlp_norm, mlp_norm + hidden);
  return layer.projection.assign(projection, width + 2 * sizes.num_kv_heads * sizes.head_dim, hidden) &&
         layer.output.assign(output, hidden, width) && layer.gate_up.assign(gate_up, 2 * sizes.intermediate_size, hidden) &&
         layer.down.assign(down, hidden, sizes.intermediate_size);
}

// embedding: bf16 [vocab_size, hidden_size], kept by reference. cos, sin: f32 [capacity, head_dim / 2].
int forward_set_ends(void* handle, const uint16_t* embedding, const uint16_t* head, const float* norm, const float* cos, const float* sin) {
  return static_cast<Decoder*>(handle)->assign_ends(embedding, head, norm, cos, sin);
}

// segments: num_segments x (slot, start_row, num_rows, start_position), in order of rows. logits: f32 [num_logits, vocab_size].
void forward_run(void* handle, const int64_t* token_ids, int64_t num_rows, const int64_t* segments,
                 int64_t num_segments, const int64_t* logits_rows, int64_t num_logits, uint32_t* keys, uint32_t* values,
                 float* logits, double* seconds) {
  const Step step{token_ids, num_rows, reinterpret_cast<const Segment*>(segments), num_segments, logits_rows, num_logits};
  static_cast<Decoder*>(handle)->run(step, keys, values, logits, seconds);
}
}
