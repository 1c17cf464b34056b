// From tensors to the project kernels.
#include <ATen/ATen.h>

#include "ops/jobs.h"
#include "ops/project/cpu/kernels.h"
#include "ops/project/project.h"

namespace fem {
namespace {

using namespace project_kernels;

constexpr int64_t kTile = 12;       // rows of the largest register tile, and a multiple of the others'
constexpr int64_t kPieceRows = 48;  // of a weight, when few tokens go through it

int64_t blocks_of(int64_t rows, int64_t block) { return (rows + block - 1) / block; }

// Enough blocks that threads end together, of whole tiles.
int64_t block_rows(int64_t rows) {
  const int64_t share = blocks_of(rows, 4 * at::get_num_threads());
  return std::min(kBlockRows, blocks_of(share, kTile) * kTile);
}

// Tensors in the form the kernels read, kept alive beside the arguments that point into them.
struct Call {
  at::Tensor x;
  TensorVector weights, memory;
  std::vector<Layer> layers;
  Project a{};

  Call(const at::Tensor& x, const TensorVector& weights) : x(x.contiguous()) {
    for (const at::Tensor& weight : weights) {
      this->weights.push_back(weight.contiguous());
      Layer layer{};
      layer.weight = this->weights.back().const_data_ptr();
      layer.width = weight.size(0);
      layers.push_back(layer);
    }
    a.bfloat16 = x.scalar_type() == at::kBFloat16;
    a.depth = x.size(-1);
    a.rows = x.numel() / std::max<int64_t>(a.depth, 1);
    a.block_rows = block_rows(a.rows);
    a.x = this->x.const_data_ptr();
    a.layers = layers.data();
    a.count = static_cast<int64_t>(layers.size());
  }

  float* take(int64_t floats) {
    memory.push_back(at::empty({floats}, at::kFloat));
    return memory.back().data_ptr<float>();
  }
  const void* hold(const at::Tensor& tensor) {
    memory.push_back(tensor.contiguous());
    return memory.back().const_data_ptr();
  }

  template <typename Floats, typename Pack>
  void pack_weights(Floats floats, Pack pack) {
    for (Layer& layer : layers) layer.panels = take(floats(a, layer));
    run_jobs(a.count * kPackParts, 0,
             [&](int64_t job, float*) { pack(a, layers[job / kPackParts], job % kPackParts); });
  }

  // Rows [0, width) of every weight in pieces of nearly equal size, at least so many a layer; and its columns.
  std::vector<Piece> pieces(int64_t most_rows, int64_t least_pieces, int64_t columns) const {
    std::vector<Piece> pieces;
    for (int64_t i = 0; i < a.count; ++i) {
      const int64_t width = layers[i].width;
      const int64_t count = std::max((width + most_rows - 1) / most_rows, std::min(least_pieces, width));
      for (int64_t p = 0; p < count; ++p)
        for (int64_t column = 0; column < a.depth; column += columns)
          pieces.push_back(
              {i, width * p / count, width * (p + 1) / count, column, std::min(column + columns, a.depth)});
    }
    return pieces;
  }
};

}  // namespace

void ProjectOp::kernel(const Inputs& in, Outputs& out) {
  Call call(in.x, in.weights);
  for (size_t i = 0; i < in.weights.size(); ++i) {
    call.layers[i].y = out.y[i].data_ptr();
    if (!in.biases.empty()) call.layers[i].bias = call.hold(in.biases[i]);
  }
  const Project& a = call.a;
  if (a.rows == 0) return;
  if (a.rows <= kFewRows) {
    const std::vector<Piece> pieces = call.pieces(kPieceRows, 1, a.depth);
    run_jobs(static_cast<int64_t>(pieces.size()), a.bfloat16 ? kFewRows * a.depth : 0,
             [&, run = forward_few()](int64_t job, float* memory) { run(a, pieces[job], memory); });
  } else if (a.rows <= kSomeRows) {
    const std::vector<Piece> pieces = call.pieces(kPieceRows, 1, a.depth);
    float* panels = call.take(column_panels()(a));
    pack_columns()(a, panels);
    run_jobs(static_cast<int64_t>(pieces.size()), kPieceRows * (2 * kSomeRows + a.depth),
             [&, run = forward_some()](int64_t job, float* memory) { run(a, pieces[job], panels, memory); });
  } else {
    call.pack_weights(weight_panels(), pack_weight());
    run_jobs(blocks_of(a.rows, a.block_rows), scratch_floats()(a),
             [&, run = forward()](int64_t block, float* memory) { run(a, block, memory); });
  }
}

ProjectOp::Inputs ProjectOp::gradient_kernel(const BackwardOf<ProjectOp>& b) {
  const at::Tensor& x = b.in.x;
  Call call(x, b.in.weights);
  const Project& a = call.a;
  if (a.rows == 0) return gradient(b);
  Inputs d;
  for (size_t i = 0; i < b.in.weights.size(); ++i) {
    Layer& layer = call.layers[i];
    layer.y = const_cast<void*>(call.hold(b.grads.y[i].to(x.scalar_type())));
    d.weights.push_back(at::empty(b.in.weights[i].sizes(), x.options()));
    layer.grad_weight = d.weights.back().data_ptr();
    if (b.in.biases.empty()) continue;
    d.biases.push_back(at::empty({layer.width}, x.options()));
    layer.grad_bias = d.biases.back().data_ptr();
  }
  const int64_t scratch = scratch_floats()(a);
  if (b.wanted[0]) {
    d.x = at::empty(x.sizes(), x.options());
    call.pack_weights(transposed_weight_panels(), pack_weight_transposed());
    run_jobs(blocks_of(a.rows, a.block_rows), scratch,
             [&, run = backward_input()](int64_t block, float* memory) { run(a, block, d.x.data_ptr(), memory); });
  }
  float* panels = call.take(input_panels()(a));
  run_jobs(blocks_of(a.rows, kInputRows), 0, [&, run = pack_input()](int64_t block, float*) { run(a, block, panels); });
  const std::vector<Piece> pieces = call.pieces(kBlockRows, 2, kBlockColumns);
  run_jobs(static_cast<int64_t>(pieces.size()), scratch,
           [&, run = backward_weight()](int64_t job, float* memory) { run(a, pieces[job], panels, memory); });
  return d;
}

}  // namespace fem
