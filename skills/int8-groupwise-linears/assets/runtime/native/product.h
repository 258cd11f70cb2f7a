// The stored matrix and the loop over its panels with 8-bit weights: the same interface as the bf16 one that it replaces.
#pragma once

#include <vector>

#include "int8.h"
#ifdef _OPENMP
#include <omp.h>
#endif

namespace vs {

// There is one kind of product here; rows that callers set apart as `fixed` are computed like all others.
constexpr bool HAS_FIXED_POINT = true;

struct Matrix {
  int64_t columns = 0, depth = 0;
  uint32_t* panels = nullptr;

  Matrix() = default;
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  ~Matrix() { release(panels, num_bytes()); }

  int64_t panel_size() const { return groups_of(depth) * GROUP_WORDS; }
  size_t num_bytes() const { return static_cast<size_t>(num_panels(columns) * panel_size()) * 4; }

  // weights: bf16 [columns, depth]. False when the memory is not to be had.
  bool assign(const uint16_t* weights, int64_t new_columns, int64_t new_depth) {
    columns = new_columns;
    depth = new_depth;
    panels = static_cast<uint32_t*>(reserve(num_bytes()));
    if (!panels) return false;
    pack_int8(weights, columns, depth, panels);
    return true;
  }

  bool can_be_fixed() const { return true; }
};

struct RowSets {
  std::vector<int32_t> exact, fixed;
  int64_t num_exact() const { return static_cast<int64_t>(exact.size()); }
  int64_t num_fixed() const { return static_cast<int64_t>(fixed.size()); }
};

class Product {
 public:
  explicit Product(int num_threads) : tiles_(static_cast<size_t>(std::max(1, num_threads))) {}

  int num_threads() const { return static_cast<int>(tiles_.size()); }

  // x: [*, depth]. Packs the rows of the sets for the products that follow.
  void pack(const float* x, const RowSets& rows, int64_t depth) {
    ids_ = rows.exact;
    ids_.insert(ids_.end(), rows.fixed.begin(), rows.fixed.end());
    const int64_t count = static_cast<int64_t>(ids_.size());
    packed_.pairs = pairs_.get<int32_t>(count * groups_of(depth) * PAIRS);
    packed_.scales = scales_.get<float>(count * groups_of(depth));
    pack_activations(x, ids_.data(), count, depth, packed_);
  }

  // Calls take(row ids, number of rows, tile, tile stride, first column, number of columns) for every tile of 64 columns
  // (the last may be shorter).
  template <class Take>
  void run(const Matrix& matrix, const RowSets&, const Take& take) {
    const int64_t panels = num_panels(matrix.columns), groups = (panels + 1) / 2;
    const int threads = num_threads();
    (void)threads;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
#endif
    for (int64_t g = 0; g < groups; ++g) run_tile(matrix, g * 2, std::min<int64_t>(2, panels - g * 2), take);
  }

 private:
  template <class Take>
  void run_tile(const Matrix& matrix, int64_t panel, int64_t count, const Take& take) {
    const int64_t rows = static_cast<int64_t>(ids_.size()), stride = count * PANEL_COLUMNS;
    const int64_t column = panel * PANEL_COLUMNS, groups = groups_of(matrix.depth), size = matrix.panel_size();
    float* tile = own_tile().get<float>(rows * stride);
    const Blocks blocks(rows);
    for (int64_t p = 0; p < count; ++p) {
      const uint32_t* words = matrix.panels + (panel + p) * size;
      for (int64_t b = 0; b < blocks.count; ++b) {
        const int64_t first = blocks.first_of(b);
        // one block: a fixed distance ahead; several: each pass fetches its share of the next panel
        const bool is_single = blocks.count == 1;
        const char* ahead = reinterpret_cast<const char*>(words) +
                            (is_single ? 2 * PREFETCH_BYTES : size * 4 + b * (size * 4 / blocks.count));
        multiply_int8_rows(blocks.rows_of(b), packed_.pairs + first * groups * PAIRS, packed_.scales + first * groups, groups,
                           words, tile + first * stride + p * PANEL_COLUMNS, stride, ahead,
                           is_single ? 68 : std::max<int64_t>(1, 68 / blocks.count));
      }
    }
    take(ids_.data(), rows, tile, stride, column, std::min(stride, matrix.columns - column));
  }

  Scratch& own_tile() {
#ifdef _OPENMP
    return tiles_[static_cast<size_t>(omp_get_thread_num())];
#else
    return tiles_[0];
#endif
  }

  std::vector<Scratch> tiles_;
  std::vector<int32_t> ids_;
  Scratch pairs_, scales_;
  Int8Rows packed_{};
};

}  // namespace vs
