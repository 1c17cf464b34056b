// fem::project: schema, checks and the choice between kernels and definition.
#include "ops/project/project.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "util/check.h"

namespace fem {
namespace {

void check(const at::Tensor& x, at::TensorList weights, at::TensorList biases) {
  FEM_CHECK(x.dim() >= 2, "project: expected x of shape [..., tokens, D], got ", shape_of(x));
  FEM_CHECK(!weights.empty(), "project: expected at least one weight");
  FEM_CHECK(biases.empty() || biases.size() == weights.size(), "project: expected one bias for each of ",
            weights.size(), " weights, or none, got ", biases.size());
  const auto like_x = [&](const char* name, const at::Tensor& tensor) {
    FEM_CHECK(tensor.scalar_type() == x.scalar_type() && tensor.device() == x.device(), "project: expected ", name,
              " as ", x.scalar_type(), " on ", x.device(), " like x, got ", tensor.scalar_type(), " on ",
              tensor.device());
  };
  for (size_t i = 0; i < weights.size(); ++i) {
    FEM_CHECK(weights[i].dim() == 2 && weights[i].sym_size(1) == x.sym_size(-1), "project: expected weight ", i,
              " of shape [N, D=", x.sym_size(-1), "] to match x ", shape_of(x), ", got ", shape_of(weights[i]));
    like_x("every weight", weights[i]);
    if (biases.empty()) continue;
    FEM_CHECK(biases[i].dim() == 1 && biases[i].sym_size(0) == weights[i].sym_size(0), "project: expected bias ", i,
              " of shape [N] to match its weight ", shape_of(weights[i]), ", got ", shape_of(biases[i]));
    like_x("every bias", biases[i]);
  }
}

TensorVector project_checked(const at::Tensor& x, at::TensorList weights, at::TensorList biases) {
  check(x, weights, biases);
  return project_by_definition(x, weights, biases);
}

// bfloat16 is left to torch where the processor computes in it, and every other dtype always.
bool has_kernels(const at::Tensor& x) {
#ifdef __x86_64__
  static const bool native_bfloat16 = __builtin_cpu_supports("avx512bf16");
#else
  constexpr bool native_bfloat16 = false;
#endif
  return x.scalar_type() == at::kFloat || (x.scalar_type() == at::kBFloat16 && !native_bfloat16);
}

TensorVector project_on_cpu(const at::Tensor& x, at::TensorList weights, at::TensorList biases) {
  check(x, weights, biases);
  return (has_kernels(x) ? project_cpu : project_by_definition)(x, weights, biases);
}

TensorVector project_shapes(const at::Tensor& x, at::TensorList weights, at::TensorList biases) {
  check(x, weights, biases);
  TensorVector y;
  for (const at::Tensor& weight : weights) {
    auto shape = x.sym_sizes().vec();
    shape.back() = weight.sym_size(0);
    y.push_back(at::empty_symint(shape, x.options()));
  }
  return y;
}

ProjectGradients gradient_on_cpu(at::TensorList grads, const at::Tensor& x, at::TensorList weights, bool input,
                                 bool biased) {
  return (has_kernels(x) ? project_backward_cpu : project_gradient)(grads, x, weights, input, biased);
}

ProjectGradients gradient_shapes(at::TensorList, const at::Tensor& x, at::TensorList weights, bool input, bool biased) {
  const auto like = [&](c10::SymIntArrayRef shape) { return at::empty_symint(shape, x.options()); };
  ProjectGradients d;
  std::get<0>(d) = input ? like(x.sym_sizes()) : at::empty({0}, x.options());
  for (const at::Tensor& weight : weights) {
    std::get<1>(d).push_back(like(weight.sym_sizes()));
    if (biased) std::get<2>(d).push_back(like({weight.sym_size(0)}));
  }
  return d;
}

}  // namespace

TensorVector call_project(const at::Tensor& x, at::TensorList weights, at::TensorList biases) {
  static const auto op = find_operator<ProjectOp>("fem::project");
  return op.call(x, weights, biases);
}

ProjectGradients call_project_backward(at::TensorList grads, const at::Tensor& x, at::TensorList weights, bool input,
                                       bool biased) {
  static const auto op = find_operator<ProjectBackwardOp>("fem::project_backward");
  return op.call(grads, x, weights, input, biased);
}

TensorVector project(const at::Tensor& x, at::TensorList weights, at::TensorList biases) {
  return call_project(x, weights, biases);
}

TORCH_LIBRARY_FRAGMENT(fem, m) {
  m.def("project(Tensor x, Tensor[] weights, Tensor[] biases) -> Tensor[]");
  m.def(
      "project_backward(Tensor[] grads, Tensor x, Tensor[] weights, bool input, bool biased) "
      "-> (Tensor, Tensor[], Tensor[])");
}
TORCH_LIBRARY_IMPL(fem, CPU, m) {
  m.impl("project", project_on_cpu);
  m.impl("project_backward", gradient_on_cpu);
}
TORCH_LIBRARY_IMPL(fem, Meta, m) {
  m.impl("project", project_shapes);
  m.impl("project_backward", gradient_shapes);
}
TORCH_LIBRARY_IMPL(fem, CompositeExplicitAutograd, m) {  // torch's own products: nothing to announce
  m.impl("project", project_checked);
  m.impl("project_backward", project_gradient);
}
// torch's loop over a batch takes no lists of tensors; its own linear has a batched form.
TORCH_LIBRARY_IMPL(fem, FuncTorchBatched, m) { m.impl("project", project_by_definition); }

}  // namespace fem
