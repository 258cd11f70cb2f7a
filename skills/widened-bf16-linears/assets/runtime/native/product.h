// A stored weight matrix and the loop over its panels, shared by the linear seam and the native forward pass.
#pragma once

#include <vector>

#include "fixed.h"

namespace vs {

struct Matrix {
  int64_t columns = 0, depth = 0;
  uint32_t* panels = nullptr;
  std::vector<float> scales;

  Matrix() = default;
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  ~Matrix() { release(panels, num_bytes()); }

  size_t num_bytes() const { return static_cast<size_t>(num_panels(columns) * panel_words(depth)) * 4; }

  // weights: bf16 [columns, depth]. False when the memory is not to be had.
  bool assign(const uint16_t* weights, int64_t new_columns, int64_t new_depth) {
    columns = new_columns;
    depth = new_depth;
    panels = static_cast<uint32_t*>(reserve(num_bytes()));
    if (!panels) return false;
    pack_panels(weights, columns, depth, panels);
    if (can_be_fixed()) {
      scales.resize(static_cast<size_t>(num_panels(columns) * PANEL_COLUMNS));
      column_scales(panels, columns, depth, scales.data());
    }
    return true;
  }

  bool can_be_fixed() const { return HAS_FIXED_POINT && depth % 2 == 0 && depth <= MAX_FIXED_DEPTH; }
};

// Which rows of a step are multiplied how. `exact` rows: f32. `fixed` rows: 16-bit fixed point.
struct RowSets {
  std::vector<int32_t> exact, fixed;
  int64_t num_exact() const { return static_cast<int64_t>(exact.size()); }
  int64_t num_fixed() const { return static_cast<int64_t>(fixed.size()); }
};

// Scratch of one thread of a product.
struct Workspace {
  Scratch tile, integers;
};

class Product {
 public:
  explicit Product(int num_threads) : workspaces_(static_cast<size_t>(std::max(1, num_threads))) {}

  int num_threads() const { return static_cast<int>(workspaces_.size()); }

  // x: [*, depth]. Packs the rows of the sets for the products that follow.
  void pack(const float* x, const RowSets& rows, int64_t depth) {
    packed_ = exact_.get<float>(rows.num_exact() * depth);
    pack_rows(x, rows.exact.data(), rows.num_exact(), depth, packed_);
    if (rows.num_fixed() == 0) return;
    fixed_rows_.stride = fixed_stride(depth);
    fixed_rows_.pairs = pairs_.get<int32_t>(rows.num_fixed() * fixed_rows_.stride);
    fixed_rows_.scales = scales_.get<float>(rows.num_fixed() * num_groups(depth));
    pack_fixed_rows(x, rows.fixed.data(), rows.num_fixed(), depth, fixed_rows_);
  }

  // Calls take(row ids, number of rows, tile, tile stride, first column, number of columns) for every tile of
  // packed rows @ matrix; columns come in groups of 64 (the last may be shorter), or of 128 for one or two rows.
  template <class Take>
  void run(const Matrix& matrix, const RowSets& rows, const Take& take) {
    const int64_t panels = num_panels(matrix.columns);
    const int64_t group = rows.num_exact() <= 2 && rows.num_fixed() == 0 ? 4 : 2;
    const int64_t groups = (panels + group - 1) / group;
    const int threads = num_threads();
    (void)threads;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
#endif
    for (int64_t g = 0; g < groups; ++g)
      run_group(matrix, rows, g * group, static_cast<int>(std::min(group, panels - g * group)), take);
  }

 private:
  Workspace& workspace();

  template <class Take>
  void run_group(const Matrix& matrix, const RowSets& rows, int64_t panel, int count, const Take& take) {
    Workspace& own = workspace();
    const int64_t stride = count * PANEL_COLUMNS, column = panel * PANEL_COLUMNS;
    const int64_t columns = std::min(stride, matrix.columns - column);
    const uint32_t* panels = matrix.panels + panel * panel_words(matrix.depth);
    float* tile = own.tile.get<float>(std::max(rows.num_exact(), rows.num_fixed()) * stride);
    if (rows.num_exact()) {
      multiply_group(packed_, rows.num_exact(), panels, matrix.depth, count, tile, stride);
      take(rows.exact.data(), rows.num_exact(), tile, stride, column, columns);
    }
    if (rows.num_fixed()) {
      int32_t* integers = own.integers.get<int32_t>(panel_words(matrix.depth));
      multiply_fixed_group(fixed_rows_, rows.num_fixed(), panels, matrix.depth, count, matrix.scales.data() + column, tile,
                           stride, integers);
      take(rows.fixed.data(), rows.num_fixed(), tile, stride, column, columns);
    }
  }

  std::vector<Workspace> workspaces_;
  Scratch exact_, pairs_, scales_;
  float* packed_ = nullptr;
  FixedRows fixed_rows_{};
};

}  // namespace vs

#ifdef _OPENMP
#include <omp.h>
inline vs::Workspace& vs::Product::workspace() { return workspaces_[static_cast<size_t>(omp_get_thread_num())]; }
#else
inline vs::Workspace& vs::Product::workspace() { return workspaces_[0]; }
#endif
