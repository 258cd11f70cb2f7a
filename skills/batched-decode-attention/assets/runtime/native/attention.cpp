// flags: -fopenmp -Wno-maybe-uninitialized
// C interface of the attention seam.
#include "attention.h"

extern "C" {

// cos, sin: f32 [capacity, head_dim / 2]
void* attention_create(int64_t num_heads, int64_t num_kv_heads, int64_t head_dim, int64_t num_slots, int64_t capacity,
                       int64_t num_threads, const float* cos, const float* sin) {
  auto* attention = new vs::Attention({num_heads, num_kv_heads, head_dim}, {num_slots, num_kv_heads, capacity, head_dim}, num_threads);
  attention->set_rotary(cos, sin);
  return attention;
}

void attention_destroy(void* handle) { delete static_cast<vs::Attention*>(handle); }

// segments: num_segments x (slot, start_row, num_rows, start_position). query, key: f32 rows, rotated in place.
void attention_run(void* handle, int64_t layer, const int64_t* segments, int64_t num_segments, float* query, float* key,
                   float* value, uint32_t* keys, uint32_t* values, float* attended) {
  auto& self = *static_cast<vs::Attention*>(handle);
  const vs::Cache cache{self.shape(), keys, values};
  const int64_t width = self.heads().query_width(), kv_width = self.heads().kv_width();
  const auto* all = reinterpret_cast<const vs::Segment*>(segments);
  std::vector<vs::AttentionTask> tasks;
  for (int64_t s = 0; s < num_segments; ++s) {
    self.write(all[s], layer, {query, width}, {key, kv_width}, {value, kv_width}, cache);
    self.add_tasks(all[s], tasks);
  }
  self.run(tasks, layer, {query, width}, cache, {attended, width});
}
}
