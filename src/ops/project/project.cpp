#include "ops/project/project.h"

#include "ops/checks.h"
#include "ops/register.h"
#include "util/check.h"

namespace fem {

void ProjectOp::check(const Inputs& in) {
  const auto& [x, weights, biases] = in;
  FEM_CHECK(x.dim() >= 2, "project: expected x of shape [..., tokens, D], got ", shape_of(x));
  FEM_CHECK(at::isFloatingType(x.scalar_type()), "project: expected floating x, got ", x.scalar_type());
  FEM_CHECK(!weights.empty(), "project: expected at least one weight");
  FEM_CHECK(biases.empty() || biases.size() == weights.size(), "project: expected one bias for each of ",
            weights.size(), " weights, or none, got ", biases.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    const std::string number = std::to_string(i);
    check_like("project", ("weight " + number).c_str(), weights[i], "x", x, {kAnySize, x.sym_size(-1)});
    if (!biases.empty())
      check_like("project", ("bias " + number).c_str(), biases[i], "its weight", weights[i], {weights[i].sym_size(0)});
  }
}

std::vector<Spec> ProjectOp::outputs(const Inputs& in) {
  std::vector<Spec> specs;
  for (const at::Tensor& weight : in.weights) {
    specs.push_back({in.x.sym_sizes().vec(), in.x.scalar_type()});
    specs.back().shape.back() = weight.sym_size(0);
  }
  return specs;
}

// bfloat16 is left to torch where the processor computes in it, and every other dtype always.
bool ProjectOp::has_kernel(const Inputs& in) {
#ifdef __x86_64__
  static const bool native_bfloat16 = __builtin_cpu_supports("avx512bf16");
#else
  constexpr bool native_bfloat16 = false;
#endif
  const auto dtype = in.x.scalar_type();
  return in.x.sym_size(-1) > 0 && (dtype == at::kFloat || (dtype == at::kBFloat16 && !native_bfloat16));
}

ProjectOp::Outputs ProjectOp::definition(const Inputs& in) {
  Outputs out;
  for (size_t i = 0; i < in.weights.size(); ++i)
    out.y.push_back(at::linear(in.x, in.weights[i], in.biases.empty() ? OptionalTensor() : in.biases[i]));
  return out;
}

// Written out: torch's bfloat16 products are the fastest there are, in backward, too.
ProjectOp::Inputs ProjectOp::gradient(const BackwardOf<ProjectOp>& b) {
  Inputs d;
  const at::Tensor rows = b.in.x.flatten(0, -2);
  for (size_t i = 0; i < b.in.weights.size(); ++i) {
    const at::Tensor dy = b.grads.y[i].to(b.in.x.scalar_type()), of_rows = dy.flatten(0, -2);
    if (b.wanted[0]) {
      const at::Tensor dx = at::matmul(dy, b.in.weights[i]);
      d.x = d.x.defined() ? d.x + dx : dx;
    }
    d.weights.push_back(at::mm(of_rows.t(), rows));
    if (!b.in.biases.empty()) d.biases.push_back(of_rows.sum(0));
  }
  return d;
}

std::vector<at::Tensor> project(const at::Tensor& x, at::TensorList weights, at::TensorList biases) {
  return call<ProjectOp>({x, weights.vec(), biases.vec()}).y;
}

FEM_REGISTER_OPERATOR(ProjectOp)

// torch's loop over a batch takes no lists of tensors; its own linear has a batched form.
TORCH_LIBRARY_IMPL(fem, FuncTorchBatched, m) {
  m.impl("project", Signatures<ProjectOp>::forward<Frame<ProjectOp>::by_definition>);
}

}  // namespace fem
