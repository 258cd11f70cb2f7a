// flags: -ffp-contract=off
// One step of a Llama decoder, from token ids to logits, over bf16 panels and an f16 cache. See runtime/model.py.

#include <chrono>
#include <cstring>
#include <vector>

#include "attention.h"
#include "fixed.h"
#include "product.h"
#include "vectors.h"

namespace {

struct Shape {
    int32_t vocab, hidden, intermediate, num_layers, num_heads, num_kv_heads, head_dim, num_positions;
    float eps;
};

struct Layer {
    const float *input_norm, *mlp_norm;
    const uint16_t *qkv, *output, *gate_up, *down;
    const float *qkv_units, *output_units, *gate_up_units, *down_units;
    uint16_t *keys, *values;
};

struct Segment {
    int32_t slot, start_row, num_rows, start_position;
};

struct Step {
    const int64_t *token_ids;
    const int32_t *logits_rows;
    const Segment *segments;
    float *logits;
    int32_t num_rows, num_logits, num_segments, logits_stride;
};

struct Model {
    Shape shape;
    const uint16_t *embedding, *head;
    const float *norm, *cos, *sin;
    const Layer *layers;
};

int padded(int columns) { return (columns + kPanelColumns - 1) / kPanelColumns * kPanelColumns; }

Weight weight_of(const uint16_t *panels, const float *units, int num_in, int num_out) {
    return {panels, num_in, padded(num_out) / kPanelColumns, units};
}

// Rows that are multiplied alike. A segment of several rows is (part of) a prompt and goes in fixed point, single rows
// in f32: the choice is the segment's own, so that neighbours change nothing.
struct Range {
    int start, count;
    bool is_fixed;
};

// Grows to the largest step and stays; one per engine thread.
struct Scratch {
    std::vector<float> x, normed, qkv, attended, activated, tile, scores;
    std::vector<Range> ranges;
    FixedRows fixed;
};

double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Forward {
  public:
    Forward(const Model &model, const Step &step, Scratch &scratch)
        : m(model), s(step), t(scratch), num_rows(step.num_rows) {
        const Shape &shape = m.shape;
        query_size = shape.num_heads * shape.head_dim;
        kv_size = shape.num_kv_heads * shape.head_dim;
        qkv_stride = padded(query_size + 2 * kv_size);
        mlp_stride = padded(shape.intermediate);
        t.x.resize(size_t(num_rows) * shape.hidden);
        t.normed.resize(size_t(num_rows) * shape.hidden);
        t.qkv.resize(size_t(num_rows) * qkv_stride);
        t.attended.resize(size_t(num_rows) * query_size);
        t.activated.resize(size_t(num_rows) * mlp_stride);
        t.tile.resize(size_t(std::max(chunk_rows(shape.hidden), fixed_chunk_rows(shape.hidden))) * 2 * kPanelColumns);
        t.scores.resize(size_t(kMaxQueries) * shape.num_positions);
        t.ranges.clear();
        for (int i = 0; i < s.num_segments; i++) {
            const Segment &segment = s.segments[i];
            const bool is_fixed = segment.num_rows > 1;
            if (t.ranges.empty() || t.ranges.back().is_fixed != is_fixed)
                t.ranges.push_back({segment.start_row, 0, is_fixed});
            t.ranges.back().count += segment.num_rows;
        }
    }

    void run(double *linear_s, double *attention_s) {
        embed();
        double started = now_s();
        for (int index = 0; index < m.shape.num_layers; index++) {
            const Layer &layer = m.layers[index];
            norm_rows(layer.input_norm);
            multiply_ranges<false>(
                weight_of(layer.qkv, layer.qkv_units, m.shape.hidden, query_size + 2 * kv_size), t.normed.data(),
                m.shape.hidden, t.qkv.data(), qkv_stride);
            const double multiplied = now_s();
            for (int i = 0; i < s.num_segments; i++) attend_segment(layer, s.segments[i]);
            const double attended = now_s();
            *attention_s += attended - multiplied;
            // only the rows whose logits are wanted have a use for the last layer's output
            if (index == m.shape.num_layers - 1) keep_wanted_rows();
            multiply_ranges<true>(weight_of(layer.output, layer.output_units, query_size, m.shape.hidden),
                                  t.attended.data(), query_size, t.x.data(), m.shape.hidden);
            norm_rows(layer.mlp_norm);
            for (const Range &range : t.ranges) gate_up_range(layer, range);
            multiply_ranges<true>(weight_of(layer.down, layer.down_units, m.shape.intermediate, m.shape.hidden),
                                  t.activated.data(), mlp_stride, t.x.data(), m.shape.hidden);
            const double ended = now_s();
            *linear_s += multiplied - started + ended - attended;
            started = ended;
        }
        norm_rows(m.norm);
        const Weight head = weight_of(m.head, nullptr, m.shape.hidden, m.shape.vocab);
        multiply<false>(head, num_rows, t.normed.data(), m.shape.hidden, s.logits, s.logits_stride);
        *linear_s += now_s() - started;
    }

  private:
    void embed() {
        for (int row = 0; row < num_rows; row++) {
            const uint16_t *from = m.embedding + size_t(s.token_ids[row]) * m.shape.hidden;
            float *to = t.x.data() + size_t(row) * m.shape.hidden;
            for (int i = 0; i < m.shape.hidden; i++) {
                const uint32_t bits = uint32_t(from[i]) << 16;
                std::memcpy(to + i, &bits, sizeof bits);
            }
        }
    }

    void norm_rows(const float *weight) {
        for (int row = 0; row < num_rows; row++)
            rms_norm(t.x.data() + size_t(row) * m.shape.hidden, weight, m.shape.eps, m.shape.hidden,
                     t.normed.data() + size_t(row) * m.shape.hidden);
    }

    template <bool Add>
    void multiply_ranges(const Weight &w, const float *x, size_t x_stride, float *y, size_t y_stride) {
        for (const Range &range : t.ranges) {
            const float *from = x + range.start * x_stride;
            float *to = y + range.start * y_stride;
            if (range.is_fixed)
                multiply_fixed<Add>(w, range.count, from, x_stride, t.fixed, to, y_stride);
            else
                multiply<Add>(w, range.count, from, x_stride, to, y_stride);
        }
    }

    // Gate and up alternate panel by panel, so that 16 columns of both are activated while they are in the cache.
    void gate_up_range(const Layer &layer, const Range &range) {
        const int hidden = m.shape.hidden, stride = 2 * kPanelColumns;
        const Weight w = weight_of(layer.gate_up, layer.gate_up_units, hidden, 2 * mlp_stride);
        const float *normed = t.normed.data() + size_t(range.start) * hidden;
        if (range.is_fixed) quantise_rows(normed, hidden, range.count, hidden, t.fixed);
        const int limit = range.is_fixed ? fixed_chunk_rows(hidden) : chunk_rows(hidden);
        for (int first = 0; first < range.count; first += limit) {
            const int count = std::min(limit, range.count - first);
            for (int column = 0; column < mlp_stride; column += kPanelColumns) {
                const int panel = column / kPanelColumns * 2;
                if (range.is_fixed)
                    multiply_fixed_panels<false>(w, panel, 2, first, count, t.fixed, t.tile.data(), stride);
                else
                    multiply_panels<false>(w, panel, 2, count, normed + size_t(first) * hidden, hidden, t.tile.data(),
                                           stride);
                activate(range.start + first, count, column);
            }
        }
    }

    void activate(int first_row, int count, int column) {
        for (int row = 0; row < count; row++) {
            const float *tile = t.tile.data() + row * 2 * kPanelColumns;
            float *out = t.activated.data() + size_t(first_row + row) * mlp_stride + column;
            for (int i = 0; i < kPanelColumns; i += 8)
                _mm256_storeu_ps(out + i,
                                 swiglu(_mm256_loadu_ps(tile + i), _mm256_loadu_ps(tile + kPanelColumns + i)));
        }
    }

    // All keys and values of the segment are written before its first row attends.
    void attend_segment(const Layer &layer, const Segment &segment) {
        const Shape &shape = m.shape;
        const Cache cache{layer.keys, layer.values, shape.num_kv_heads, shape.num_positions, shape.head_dim};
        const float scale = 1.0f / std::sqrt(float(shape.head_dim));
        for (int row = 0; row < segment.num_rows; row++) {
            const int position = segment.start_position + row;
            float *values = t.qkv.data() + size_t(segment.start_row + row) * qkv_stride;
            const float *cos = m.cos + size_t(position) * shape.head_dim / 2;
            const float *sin = m.sin + size_t(position) * shape.head_dim / 2;
            for (int head = 0; head < shape.num_heads + shape.num_kv_heads; head++)
                rotate(values + head * shape.head_dim, cos, sin, shape.head_dim, head < shape.num_heads ? scale : 1.0f);
            for (int head = 0; head < shape.num_kv_heads; head++)
                write_cache(cache, segment.slot, head, position, values + query_size + head * shape.head_dim,
                            values + query_size + kv_size + head * shape.head_dim);
        }
        for (int head = 0; head < shape.num_kv_heads; head++) attend_head(cache, segment, head);
    }

    // The query heads of a KV head, row after row, in blocks that share the loads of keys and values.
    void attend_head(const Cache &cache, const Segment &segment, int kv_head) {
        const int num_groups = m.shape.num_heads / m.shape.num_kv_heads, size = m.shape.head_dim;
        const int total = segment.num_rows * num_groups;
        // blocks of whole rows keep a row's operations the same wherever a prompt is cut
        const int limit = num_groups <= kMaxQueries ? kMaxQueries / num_groups * num_groups : kMaxQueries;
        for (int first = 0; first < total; first += limit) {
            const int count = std::min(limit, total - first);
            const float *queries[kMaxQueries];
            float *out[kMaxQueries];
            int visible[kMaxQueries];
            for (int i = 0; i < count; i++) {
                const int row = (first + i) / num_groups, head = kv_head * num_groups + (first + i) % num_groups;
                queries[i] = t.qkv.data() + size_t(segment.start_row + row) * qkv_stride + head * size;
                out[i] = t.attended.data() + size_t(segment.start_row + row) * query_size + head * size;
                visible[i] = segment.start_position + row + 1;
            }
            attend(count, cache, segment.slot, kv_head, queries, visible, out, t.scores.data());
        }
    }

    void keep_wanted_rows() {
        for (int i = 0; i < s.num_logits; i++) {
            const size_t row = s.logits_rows[i];  // ascending, so nothing is overwritten before it is moved
            std::memmove(&t.x[size_t(i) * m.shape.hidden], &t.x[row * m.shape.hidden], m.shape.hidden * sizeof(float));
            std::memmove(&t.attended[size_t(i) * query_size], &t.attended[row * query_size],
                         query_size * sizeof(float));
        }
        num_rows = s.num_logits;
        t.ranges.assign(1, {0, num_rows, false});
    }

    const Model &m;
    const Step &s;
    Scratch &t;
    int num_rows, query_size, kv_size, qkv_stride, mlp_stride;
};

}  // namespace

// `seconds` gets the time in linears and in attention.
extern "C" void llama_forward(const Model *model, const Step *step, double *seconds) {
    thread_local Scratch scratch;
    seconds[0] = seconds[1] = 0.0;
    Forward(*model, *step, scratch).run(seconds, seconds + 1);
}

// y = x W^T of one matrix in fixed point, and below in f32, for `linear.py`.
extern "C" void llama_multiply_fixed(const uint16_t *panels, const float *units, int depth, int num_panels,
                                     int num_rows, const float *x, float *y) {
    FixedRows rows;
    multiply_fixed<false>({panels, depth, num_panels, units}, num_rows, x, depth, rows, y,
                          size_t(num_panels) * kPanelColumns);
}

extern "C" void llama_multiply(const uint16_t *panels, int depth, int num_panels, int num_rows, const float *x,
                               float *y) {
    multiply<false>({panels, depth, num_panels}, num_rows, x, depth, y, size_t(num_panels) * kPanelColumns);
}
