// From tensors to the softmax_read kernels: views, memory and the division of work among threads.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "cpu/partition.h"
#include "ops/exponents.h"
#include "ops/jobs.h"
#include "ops/softmax_read/cpu/kernels.h"
#include "ops/softmax_read/cpu/matrix_unit.h"
#include "ops/softmax_read/softmax_read.h"
#include "ops/softmax_read/visibility.h"

namespace fem {
namespace {

using namespace softmax_kernels;

constexpr int64_t kFewQueries = 4;  // up to here the tiles would be mostly padding
constexpr int64_t kFewKeys = 256;   // of a row that several threads share, each has more

at::Tensor unit_stride(const at::Tensor& x) { return x.stride(-1) == 1 || x.size(-1) == 1 ? x : x.contiguous(); }

Rows rows_of(const at::Tensor& x) { return {x.const_data_ptr(), x.stride(0), x.stride(1), x.stride(2)}; }

// Tensors in the form the kernels read, kept alive beside the arguments that point into them.
struct Inputs {
  at::Tensor query, key, value, beta, key_mask;
  Intervals keys_of_query;

  Inputs(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const OptionalTensor& beta,
         bool causal, std::optional<int64_t> window, const OptionalTensor& key_mask, const OptionalTensor& cu_seqlens)
      : query(unit_stride(query)),
        key(unit_stride(key)),
        value(unit_stride(value)),
        beta(beta ? beta->to(at::kFloat).contiguous() : at::Tensor()),
        key_mask(key_mask ? key_mask->contiguous() : at::Tensor()),
        keys_of_query(visible_intervals(query.size(1), key.size(1), causal, window, cu_seqlens)) {}

  void fill(Arguments& a, std::optional<double> scale) const {
    a.bfloat16 = query.scalar_type() == at::kBFloat16;
    a.unit = a.bfloat16 ? matrix_unit() : nullptr;
    a.batch = query.size(0);
    a.heads = query.size(2);
    a.queries = query.size(1);
    a.keys = key.size(1);
    a.key_width = query.size(3);
    a.value_width = value.size(3);
    a.scale = static_cast<float>(scale.value_or(1 / std::sqrt(static_cast<double>(a.key_width))));
    a.query = rows_of(query);
    a.key = rows_of(key);
    a.value = rows_of(value);
    a.beta = beta.defined() ? beta.const_data_ptr<float>() : nullptr;
    a.key_begin = keys_of_query.begin.data();
    a.key_end = keys_of_query.end.data();
    a.key_mask = key_mask.defined() ? key_mask.const_data_ptr<bool>() : nullptr;
  }
};

// How many pairs each block of queries (or keys) of a head has to work through.
std::vector<double> block_costs(const Intervals& visible, int64_t block) {
  std::vector<double> costs((visible.begin.size() + block - 1) / block, static_cast<double>(block));
  for (size_t t = 0; t < visible.begin.size(); ++t) costs[t / block] += visible.end[t] - visible.begin[t];
  return costs;
}

}  // namespace

Tensors3 softmax_read_cpu(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const OptionalTensor& beta, std::optional<double> scale, bool causal,
                          std::optional<int64_t> window, const OptionalTensor& key_mask,
                          const OptionalTensor& cu_seqlens) {
  const Inputs in(query, key, value, beta, causal, window, key_mask, cu_seqlens);
  const auto float_options = query.options().dtype(at::kFloat);
  const std::vector<int64_t> shape{query.size(0), query.size(1), query.size(2), value.size(3)};
  const at::Tensor mean = at::empty(shape, query.options());
  const at::Tensor free_energy = beta ? at::empty(shape, query.options()) : at::empty({0}, query.options());
  const at::Tensor log_normalizer = at::empty({shape[0], shape[1], shape[2]}, float_options);

  Forward a{};
  in.fill(a, scale);
  a.mean = mean.data_ptr();
  a.free_energy = beta ? free_energy.data_ptr() : nullptr;
  a.log_normalizer = log_normalizer.data_ptr<float>();
  const int64_t heads = a.batch * a.heads, parts = at::get_num_threads();
  if (heads == 0 || a.queries == 0) return {mean, free_energy, log_normalizer};

  if (a.queries <= kFewQueries) {
    const int64_t splits = std::clamp<int64_t>(a.keys / kFewKeys, 1, (parts + a.batch - 1) / a.batch);
    const int64_t items = a.batch * splits;
    const at::Tensor largest = at::empty({items * a.queries * a.heads}, float_options);
    const at::Tensor sums = at::empty({items * a.queries * a.heads * step_floats()(a)}, float_options);
    a.largest = largest.data_ptr<float>();
    float* memory = sums.data_ptr<float>();
    at::parallel_for(0, items, 1,
                     [&, run = step()](int64_t begin, int64_t end) { run(a, splits, begin, end, memory); });
    check_exponents(largest, "softmax_read");
    finish_step()(a, splits, memory);
    return {mean, free_energy, log_normalizer};
  }

  const Blocks blocks = (a.unit ? bf16::forward_blocks() : forward_blocks())(a);
  const int64_t packed = heads * ((a.keys + blocks.keys - 1) / blocks.keys);
  const int64_t block_floats = (a.unit ? bf16::mixed_block_floats() : mixed_block_floats())(a);
  const at::Tensor mixed = at::empty({packed, block_floats}, float_options);
  const at::Tensor largest = at::empty({packed}, float_options);
  const at::Tensor keys_packed = at::empty({a.unit ? 0 : heads, a.keys, a.key_width}, float_options);
  a.keys_packed = keys_packed.data_ptr<float>();
  a.mixed = mixed.data_ptr<float>();
  a.largest = largest.data_ptr<float>();
  at::parallel_for(0, packed, 1, [&, run = a.unit ? bf16::pack_keys() : pack_keys()](int64_t begin, int64_t end) {
    run(a, begin, end);
  });
  check_exponents(largest, "softmax_read");

  // Of a causal read the last queries see most keys: they come first.
  const int64_t query_blocks = (a.queries + blocks.queries - 1) / blocks.queries;
  run_jobs(heads * query_blocks, blocks.scratch,
           [&, run = a.unit ? bf16::forward() : forward()](int64_t job, float* memory) {
             const int64_t item = job % heads * query_blocks + query_blocks - 1 - job / heads;
             run(a, item, item + 1, memory);
           });
  return {mean, free_energy, log_normalizer};
}

Tensors4 softmax_read_backward_cpu(const at::Tensor& grad_mean, const at::Tensor& grad_free_energy,
                                   const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                                   const OptionalTensor& beta, const at::Tensor& mean, const at::Tensor& free_energy,
                                   const at::Tensor& log_normalizer, std::optional<double> scale, bool causal,
                                   std::optional<int64_t> window, const OptionalTensor& key_mask,
                                   const OptionalTensor& cu_seqlens) {
  const Inputs in(query, key, value, beta, causal, window, key_mask, cu_seqlens);
  const auto float_options = query.options().dtype(at::kFloat);
  const at::Tensor grad_query = at::empty(query.sizes(), query.options());
  const at::Tensor grad_key = at::empty(key.sizes(), query.options());
  const at::Tensor grad_value = at::empty(value.sizes(), query.options());
  const auto like = [&](const at::Tensor& x) { return unit_stride(x.to(query.scalar_type())); };
  const at::Tensor dmean = like(grad_mean), dfree = beta ? like(grad_free_energy) : dmean;

  Backward a{};
  in.fill(a, scale);
  const Intervals queries_of_key = transposed(in.keys_of_query, a.keys);
  a.query_begin = queries_of_key.begin.data();
  a.query_end = queries_of_key.end.data();
  a.mean = rows_of(mean);
  a.free_energy = rows_of(beta ? free_energy : mean);
  a.grad_mean = rows_of(dmean);
  a.grad_free_energy = rows_of(dfree);
  a.log_normalizer = log_normalizer.const_data_ptr<float>();
  a.grad_key = grad_key.data_ptr();
  a.grad_value = grad_value.data_ptr();

  const int64_t heads = a.batch * a.heads, parts = at::get_num_threads();
  const at::Tensor grad_beta = at::zeros({parts, beta ? a.heads : 0, a.value_width}, float_options);
  const auto result = [&]() -> Tensors4 {
    return {grad_query, grad_key, grad_value,
            beta ? grad_beta.sum(0).to(beta->scalar_type()) : at::empty({0}, query.options())};
  };
  if (heads == 0 || a.keys == 0 || a.queries == 0) {
    grad_query.zero_(), grad_key.zero_(), grad_value.zero_();
    return result();
  }

  // A part takes a run of key blocks. Where a head is divided among parts, each sums dquery in memory of its own and
  // the sums are added in order: the result depends on the number of threads, never on their timing.
  const Blocks blocks = (a.unit ? bf16::backward_blocks() : backward_blocks())(a);
  const auto gather = a.unit ? bf16::gather_rows() : gather_rows();
  const auto run = a.unit ? bf16::backward() : backward();
  const auto write = a.unit ? bf16::write_grad_query() : write_grad_query();
  const int64_t key_blocks = (a.keys + blocks.keys - 1) / blocks.keys;
  const auto borders = cpu::equal_cost_borders(block_costs(queries_of_key, blocks.keys), heads, parts);
  const int64_t rows = a.unit ? bf16::query_rows()(a) : a.queries;
  const int64_t query_columns = (a.unit ? bf16::padded_key_width() : padded_key_width())(a);
  const int64_t row_width = (a.unit ? bf16::gradient_row_width() : gradient_row_width())(a);
  std::vector<std::vector<at::Tensor>> shares(heads);  // dquery sums of divided heads
  const auto divided = [&](int64_t head) {
    return std::any_of(borders.begin(), borders.end(),
                       [&](int64_t border) { return border > head * key_blocks && border < (head + 1) * key_blocks; });
  };
  for (int64_t head = 0; head < heads; ++head)
    if (divided(head)) shares[head].resize(parts);

  at::parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      if (borders[part] == borders[part + 1]) continue;
      const at::Tensor queries = at::empty({rows, query_columns}, float_options);
      const at::Tensor gradients = at::empty({rows, row_width}, float_options);
      const at::Tensor correction = at::empty({a.queries}, float_options);
      const at::Tensor tiles = at::empty({blocks.scratch}, float_options);
      at::Tensor sums;
      for (int64_t head = borders[part] / key_blocks; head * key_blocks < borders[part + 1]; ++head) {
        const int64_t begin = std::max<int64_t>(borders[part] - head * key_blocks, 0);
        const int64_t end = std::min(borders[part + 1] - head * key_blocks, key_blocks);
        if (!sums.defined() || !shares[head].empty()) sums = at::empty({rows, query_columns}, float_options);
        sums.zero_();
        HeadScratch h{queries.data_ptr<float>(),
                      gradients.data_ptr<float>(),
                      correction.data_ptr<float>(),
                      sums.data_ptr<float>(),
                      beta ? grad_beta.data_ptr<float>() + (part * a.heads + head % a.heads) * a.value_width : nullptr,
                      tiles.data_ptr<float>()};
        gather(a, head, h, /*with_grad_beta=*/begin == 0 && beta.has_value());
        run(a, head, begin, end, h);
        if (shares[head].empty()) {
          write(a, head, 0, a.queries, &h.grad_query, 1, grad_query.data_ptr());
        } else {
          shares[head][part] = std::exchange(sums, at::Tensor());
        }
      }
    }
  });
  for (int64_t head = 0; head < heads; ++head) {
    std::vector<float*> sums;
    for (const at::Tensor& share : shares[head])
      if (share.defined()) sums.push_back(share.data_ptr<float>());
    if (sums.empty()) continue;
    at::parallel_for(0, a.queries, 256, [&](int64_t begin, int64_t end) {
      write(a, head, begin, end, sums.data(), static_cast<int64_t>(sums.size()), grad_query.data_ptr());
    });
  }
  return result();
}

}  // namespace fem
