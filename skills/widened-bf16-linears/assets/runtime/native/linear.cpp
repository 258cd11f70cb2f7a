// flags: -fopenmp -Wno-maybe-uninitialized
// C interface of the linear seam.
#include "product.h"

namespace {

struct Linear {
  vs::Matrix matrix;
  vs::Product product;
  vs::RowSets rows;
  explicit Linear(int num_threads) : product(num_threads) {}
};

}  // namespace

extern "C" {

// weights: bf16 [columns, depth]. Null when the memory is not to be had.
void* linear_create(const uint16_t* weights, int64_t columns, int64_t depth, int num_threads) {
  auto* linear = new Linear(num_threads);
  if (linear->matrix.assign(weights, columns, depth)) return linear;
  delete linear;
  return nullptr;
}

void linear_destroy(void* handle) { delete static_cast<Linear*>(handle); }

// x: f32 [num_rows, depth] -> y: f32 [num_rows, columns]. From `min_fixed_rows` rows on in fixed point; 0 = never.
void linear_apply(void* handle, const float* x, int64_t num_rows, int64_t min_fixed_rows, float* y) {
  auto& self = *static_cast<Linear*>(handle);
  const bool is_fixed = min_fixed_rows > 0 && num_rows >= min_fixed_rows && self.matrix.can_be_fixed();
  auto& used = is_fixed ? self.rows.fixed : self.rows.exact;
  (is_fixed ? self.rows.exact : self.rows.fixed).clear();
  used.resize(static_cast<size_t>(num_rows));
  for (int64_t r = 0; r < num_rows; ++r) used[static_cast<size_t>(r)] = static_cast<int32_t>(r);
  const int64_t width = self.matrix.columns;
  self.product.pack(x, self.rows, self.matrix.depth);
  self.product.run(self.matrix, self.rows,
                   [&](const int32_t* ids, int64_t count, const float* tile, int64_t stride, int64_t column, int64_t columns) {
                     for (int64_t r = 0; r < count; ++r)
                       std::memcpy(y + ids[r] * width + column, tile + r * stride, static_cast<size_t>(columns) * 4);
                   });
}
}
