// From tensors to the softmax_read kernels: views, memory and the division of work among threads.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <map>

#include "cpu/partition.h"
#include "ops/exponents.h"
#include "ops/jobs.h"
#include "ops/kernel_tensors.h"
#include "ops/softmax_read/cpu/kernels.h"
#include "ops/softmax_read/cpu/matrix_unit.h"
#include "ops/softmax_read/softmax_read.h"
#include "ops/softmax_read/visibility.h"

namespace fem {
namespace {

using namespace softmax_kernels;

constexpr int64_t kFewQueries = 4;  // up to here the tiles would be mostly padding
// Few queries' keys are cut into parts, which threads share: by their number alone, so that the sums, and every bit of
// what is decoded, are the same whoever takes them.
constexpr int64_t kPartKeys = 256, kMostParts = 64;

OutputRows output_rows_of(const at::Tensor& x) { return {x.data_ptr(), x.stride(0), x.stride(1), x.stride(2)}; }

// Tensors in the form the kernels read, kept alive beside the arguments that point into them.
struct KernelInputs {
  at::Tensor query, key, value, beta, bias, slopes, key_mask;
  Intervals keys_of_query;
  bool causal;

  explicit KernelInputs(const SoftmaxReadOp::Inputs& in)
      : query(unit_stride(in.query)),
        key(unit_stride(in.key)),
        value(unit_stride(in.value)),
        beta(as_float(in.beta)),
        bias(as_float(in.bias)),
        slopes(as_float(in.slopes)),
        key_mask(contiguous(in.key_mask)),
        keys_of_query(visible_intervals(query.size(1), key.size(1), in.causal, in.window, in.cu_seqlens)),
        causal(in.causal) {}

  void fill(Arguments& a, double scale) const {
    a.bfloat16 = query.scalar_type() == at::kBFloat16;
    // The matrix unit's kernels know no bias, and the unit no products of width 0.
    const bool fits = !bias.defined() && !slopes.defined() && value.size(3) > 0;
    a.unit = a.bfloat16 && fits ? matrix_unit() : nullptr;
    a.batch = query.size(0);
    a.heads = query.size(2);
    a.queries = query.size(1);
    a.keys = key.size(1);
    a.key_width = query.size(3);
    a.value_width = value.size(3);
    a.scale = static_cast<float>(scale);
    a.query = rows_of(query);
    a.key = rows_of(key);
    a.value = rows_of(value);
    a.beta = data_of<float>(beta);
    a.bias = {data_of<float>(bias), bias.defined() && bias.size(0) > 1 ? a.queries * a.keys : 0, data_of<float>(slopes),
              causal ? a.keys - a.queries : 0};
    a.key_begin = keys_of_query.begin.data();
    a.key_end = keys_of_query.end.data();
    a.key_mask = data_of<bool>(key_mask);
  }
};

// How many pairs each block of queries (or keys) of a head has to work through.
std::vector<double> block_costs(const Intervals& visible, int64_t block) {
  std::vector<double> costs((visible.begin.size() + block - 1) / block, static_cast<double>(block));
  for (size_t t = 0; t < visible.begin.size(); ++t) costs[t / block] += visible.end[t] - visible.begin[t];
  return costs;
}

// Memory for what the kernels gather of a head, and where in it they put what.
struct GatheredLayout {
  int64_t rows, query_columns, gradient_columns, queries;

  explicit GatheredLayout(const Backward& a)
      : rows(a.unit ? bf16::query_rows()(a) : a.queries),
        query_columns((a.unit ? bf16::padded_key_width() : padded_key_width())(a)),
        gradient_columns((a.unit ? bf16::gradient_row_width() : gradient_row_width())(a)),
        queries(a.queries) {}

  at::Tensor memory() const { return at::empty({rows * (query_columns + gradient_columns) + queries}, at::kFloat); }
  GatheredRows in(const at::Tensor& memory) const {
    float* query = memory.data_ptr<float>();
    float* gradients = query + rows * query_columns;
    return {query, gradients, gradients + rows * gradient_columns};
  }
};

// The offsets o of what the matrix unit mixes, kept alive beside the arguments; undefined where there are none.
at::Tensor offsets_of(Arguments& a) {
  if (!a.unit || !a.beta) return {};
  const at::Tensor offsets = at::empty({a.batch, a.heads, a.value_width}, at::kFloat);
  a.offset = offsets.data_ptr<float>();
  at::parallel_for(0, a.batch * a.heads, 1,
                   [&, run = bf16::choose_offsets()](int64_t begin, int64_t end) { run(a, begin, end); });
  return offsets;
}

// A head whose blocks of keys several parts have.
struct DividedHead {
  at::Tensor gathered;           // once, for all of them
  std::vector<at::Tensor> sums;  // of dquery, by part
};

}  // namespace

void SoftmaxReadOp::kernel(const Inputs& in, Outputs& out) {
  const KernelInputs inputs(in);
  Forward a{};
  inputs.fill(a, in.scale_of_scores());
  a.mean = out.mean.data_ptr();
  a.free_energy = in.beta ? out.free_energy.data_ptr<float>() : nullptr;
  a.log_normalizer = out.log_normalizer.data_ptr<float>();
  const int64_t heads = a.batch * a.heads;
  if (heads == 0 || a.queries == 0) return;

  if (a.queries <= kFewQueries) {
    const int64_t parts = std::clamp<int64_t>(a.keys / kPartKeys, 1, kMostParts), items = a.batch * parts;
    const at::Tensor largest = at::empty({items * a.queries * a.heads}, at::kFloat);
    const at::Tensor sums = at::empty({items * a.queries * a.heads * step_floats()(a)}, at::kFloat);
    a.largest = largest.data_ptr<float>();
    float* memory = sums.data_ptr<float>();
    at::parallel_for(0, items, 1, [&, run = step()](int64_t begin, int64_t end) { run(a, parts, begin, end, memory); });
    check_exponents(largest, "softmax_read");
    finish_step()(a, parts, memory);
    return;
  }

  const at::Tensor offsets = offsets_of(a);
  const Blocks blocks = (a.unit ? bf16::forward_blocks() : forward_blocks())(a);
  const int64_t packed = heads * ((a.keys + blocks.keys - 1) / blocks.keys);
  const int64_t block_floats = (a.unit ? bf16::mixed_block_floats() : mixed_block_floats())(a);
  const at::Tensor mixed = at::empty({packed, block_floats}, at::kFloat);
  const at::Tensor largest = at::empty({packed}, at::kFloat);
  const at::Tensor keys_packed = at::empty({a.unit ? 0 : heads, a.keys, a.key_width}, at::kFloat);
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
}

namespace {

// Of one row of the batch and one head, or of all that add nothing to a gradient in common.
void backward_into(const SoftmaxGradients& to, const SoftmaxReadOp::Outputs& grads, SoftmaxReadOp::Inputs given,
                   const SoftmaxReadOp::Outputs& out) {
  KernelInputs in(given);
  const bool with_beta = given.beta.has_value();
  const double scale = given.scale_of_scores();
  const at::Tensor dmean = unit_stride(grads.mean.to(in.query.scalar_type())), means = unit_stride(out.mean),
                   normalizers = out.log_normalizer.contiguous();
  at::Tensor energies, dfree;
  if (with_beta) energies = unit_stride(out.free_energy), dfree = unit_stride(grads.free_energy.to(at::kFloat));

  Backward a{};
  in.fill(a, scale);
  a.grad_bias = to.bias.defined() ? to.bias.data_ptr<float>() : nullptr;
  const Intervals queries_of_key = transposed(in.keys_of_query, a.keys);
  a.query_begin = queries_of_key.begin.data();
  a.query_end = queries_of_key.end.data();
  a.mean = rows_of(means);
  a.grad_mean = rows_of(dmean);
  if (with_beta) a.free_energy = rows_of(energies), a.grad_free_energy = rows_of(dfree);
  a.log_normalizer = normalizers.const_data_ptr<float>();
  a.grad_query = output_rows_of(to.query);
  a.grad_key = output_rows_of(to.key);
  a.grad_value = output_rows_of(to.value);

  const int64_t heads = a.batch * a.heads, parts = at::get_num_threads();
  if (heads == 0 || a.keys == 0 || a.queries == 0) {
    for (const at::Tensor& gradient : {to.query, to.key, to.value, to.beta})
      if (gradient.defined()) gradient.zero_();
    return;
  }

  const at::Tensor offsets = offsets_of(a);
  // A part takes a run of key blocks. Where a head is divided among parts, each sums dquery in memory of its own and
  // the sums are added in order: the result depends on the number of threads, never on their timing.
  const Blocks blocks = (a.unit ? bf16::backward_blocks() : backward_blocks())(a);
  const auto gather = a.unit ? bf16::gather_rows() : gather_rows();
  const auto run = a.unit ? bf16::backward() : backward();
  const auto write = a.unit ? bf16::write_grad_query() : write_grad_query();
  const int64_t key_blocks = (a.keys + blocks.keys - 1) / blocks.keys;
  const auto borders = cpu::equal_cost_borders(block_costs(queries_of_key, blocks.keys), heads, parts);
  const GatheredLayout layout(a);
  std::map<int64_t, DividedHead> divided;
  for (const int64_t border : borders)
    if (border % key_blocks != 0) divided[border / key_blocks].sums.resize(parts);

  for (auto& [head, shared] : divided) {
    shared.gathered = layout.memory();
    const int64_t steps = (layout.rows + kGatherStep - 1) / kGatherStep;
    at::parallel_for(0, steps, 1, [&, item = head, to = layout.in(shared.gathered)](int64_t begin, int64_t end) {
      gather(a, item, begin * kGatherStep, std::min(end * kGatherStep, layout.rows), to);
    });
  }
  // Nobody reads the query any more: inside the layer this was its last holder.
  if (static_cast<int64_t>(divided.size()) == heads) given.query.reset(), in.query.reset();

  const at::Tensor grad_beta = at::zeros({parts, with_beta ? a.heads : 0, a.value_width}, at::kFloat);
  at::parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      if (borders[part] == borders[part + 1]) continue;
      const at::Tensor tiles = at::empty({blocks.scratch}, at::kFloat);
      at::Tensor own, sums;  // own: gathered of a whole head
      for (int64_t head = borders[part] / key_blocks; head * key_blocks < borders[part + 1]; ++head) {
        const int64_t begin = std::max<int64_t>(borders[part] - head * key_blocks, 0);
        const int64_t end = std::min(borders[part + 1] - head * key_blocks, key_blocks);
        const auto shared = divided.find(head);
        const bool whole = shared == divided.end();
        if (!whole) own.reset();
        if (whole && !own.defined()) own = layout.memory();
        if (!sums.defined()) sums = at::empty({layout.rows, layout.query_columns}, at::kFloat);
        sums.zero_();
        const HeadScratch h{
            layout.in(whole ? own : shared->second.gathered), sums.data_ptr<float>(),
            with_beta ? grad_beta.data_ptr<float>() + (part * a.heads + head % a.heads) * a.value_width : nullptr,
            tiles.data_ptr<float>()};
        if (whole) gather(a, head, 0, layout.rows, h);
        if (with_beta && begin == 0) grad_beta_of_queries()(a, head, h.grad_beta);
        run(a, head, begin, end, h);
        if (whole) {
          write(a, head, 0, a.queries, &h.grad_query, 1);
        } else {
          shared->second.sums[part] = std::exchange(sums, at::Tensor());
        }
      }
    }
  });
  for (const auto& [head, shared] : divided) {
    std::vector<float*> sums;
    for (const at::Tensor& share : shared.sums)
      if (share.defined()) sums.push_back(share.data_ptr<float>());
    at::parallel_for(0, a.queries, 256, [&, item = head](int64_t begin, int64_t end) {
      write(a, item, begin, end, sums.data(), static_cast<int64_t>(sums.size()));
    });
  }
  if (with_beta) to.beta.copy_(grad_beta.sum(0));
}

}  // namespace

// The gradient of a bias is a sum over the batch, and perhaps over the heads: those come one after the other.
void softmax_read_backward_into(const SoftmaxGradients& to, const SoftmaxReadOp::Outputs& grads,
                                SoftmaxReadOp::Inputs in, const SoftmaxReadOp::Outputs& out) {
  if (!to.bias.defined()) return backward_into(to, grads, std::move(in), out);
  const int64_t batch = in.query.size(0), heads = in.query.size(2), at_once = to.bias.size(0) == 1 ? 1 : heads;
  to.bias.zero_();
  at::Tensor dbeta = in.beta ? at::zeros(in.beta->sizes(), at::kFloat) : at::Tensor();
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; h += at_once) {
      const auto cut = [&](const at::Tensor& x) {
        return x.defined() && x.dim() > 2 ? x.narrow(0, b, 1).narrow(2, h, at_once) : x;
      };
      const auto cut_heads = [&](const OptionalTensor& x) { return x ? OptionalTensor(x->narrow(0, h, at_once)) : x; };
      SoftmaxReadOp::Inputs part = in;
      part.query = cut(in.query), part.key = cut(in.key), part.value = cut(in.value);
      part.beta = cut_heads(in.beta), part.slopes = cut_heads(in.slopes);
      if (in.key_mask) part.key_mask = in.key_mask->narrow(0, b, 1);
      const at::Tensor own_beta = dbeta.defined() ? at::empty({at_once, dbeta.size(1)}, at::kFloat) : dbeta;
      backward_into({cut(to.query), cut(to.key), cut(to.value), own_beta, to.bias},
                    {cut(grads.mean), cut(grads.free_energy), cut(grads.log_normalizer)}, std::move(part),
                    {cut(out.mean), cut(out.free_energy), cut(out.log_normalizer)});
      if (dbeta.defined()) dbeta.narrow(0, h, at_once).add_(own_beta);
    }
  if (dbeta.defined()) to.beta.copy_(dbeta);
}

SoftmaxReadOp::Inputs SoftmaxReadOp::gradient_kernel(const BackwardOf<SoftmaxReadOp>& b) {
  const SoftmaxGradients to{like(b.in.query), like(b.in.key), like(b.in.value), or_undefined(like(b.in.beta)),
                            b.in.bias && b.wanted[4] ? at::empty(b.in.bias->sizes(), at::kFloat) : at::Tensor()};
  softmax_read_backward_into(to, b.grads, b.in, b.out);
  return {to.query, to.key, to.value, if_defined(to.beta), if_defined(to.bias), {}, {}, false, {}, {}, {}};
}

}  // namespace fem
