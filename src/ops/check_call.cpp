#include "ops/check_call.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>

#include "util/check.h"

namespace fem {

std::string Names::output(size_t index) const {
  return index < outputs.size() ? outputs[index] : outputs.back() + " " + std::to_string(index);
}

Names names_in(const char* schema) {
  const c10::FunctionSchema parsed = torch::schema(schema);
  Names names{parsed.name().substr(parsed.name().find("::") + 1), {}, {}};
  for (const c10::Argument& input : parsed.arguments()) names.inputs.push_back(input.name());
  for (const c10::Argument& output : parsed.returns()) names.outputs.push_back(output.name());
  return names;
}

c10::FunctionSchema gradient_schema(const char* schema, size_t learned) {
  const c10::FunctionSchema forward = torch::schema(schema);
  const auto is_list = [](const c10::Argument& x) { return x.type()->kind() == c10::TypeKind::ListType; };
  std::string text = forward.name() + "_backward(", gradients;
  const auto outputs = [&](const std::string& prefix) {
    for (const c10::Argument& output : forward.returns())
      text += (is_list(output) ? "Tensor[] " : "Tensor? ") + prefix + output.name() + ", ";
  };
  outputs("grad_");
  for (const c10::Argument& input : forward.arguments()) text += input.type()->str() + " " + input.name() + ", ";
  outputs("");
  text += "bool[" + std::to_string(learned) + "] wanted) -> ";
  for (size_t i = 0; i < learned; ++i)
    gradients += (i ? ", " : "") + std::string(is_list(forward.arguments()[i]) ? "Tensor[]" : "Tensor");
  return torch::schema((text + (learned == 1 ? gradients : "(" + gradients + ")")).c_str());
}

void announce_plain() {
  TORCH_WARN_ONCE(
      "fem has kernels for the CPU only: on other devices its reads run torch's attention and batched products, its "
      "other operators their plain definitions. They give the same numbers with more time and memory, and have been "
      "tested on the CPU only");
}

void check_input(const Names& names, size_t index, const at::Tensor& x, const at::Tensor& first) {
  FEM_CHECK(x.defined(), names.op, ": expected ", names.inputs[index], ", got an undefined tensor");
  FEM_CHECK(x.layout() == at::kStrided, names.op, ": expected a dense ", names.inputs[index], ", got ", x.layout());
  FEM_CHECK(x.device() == first.device(), names.op, ": expected ", names.inputs[index], " on ", first.device(),
            " like ", names.inputs[0], ", got it on ", x.device());
}

namespace {

bool fits(const at::Tensor& x, const Spec& spec, at::Device device) {
  return x.layout() == at::kStrided && x.sym_sizes() == c10::SymIntArrayRef(spec.shape) && x.device() == device;
}

}  // namespace

void check_gradients(const Names& names, const TensorVector& grads, const std::vector<Spec>& specs, at::Device device) {
  FEM_CHECK(grads.size() == specs.size(), names.op, "_backward: expected ", specs.size(), " gradients, got ",
            grads.size());
  for (size_t i = 0; i < grads.size(); ++i)
    FEM_CHECK(!grads[i].defined() || (fits(grads[i], specs[i], device) && at::isFloatingType(grads[i].scalar_type())),
              names.op, "_backward: expected grad_", names.output(i), " of floating numbers ",
              c10::SymIntArrayRef(specs[i].shape), " on ", device, " like ", names.output(i), ", got ",
              grads[i].scalar_type(), " ", shape_of(grads[i]), " on ", grads[i].device());
}

void check_outputs(const Names& names, const TensorVector& out, const std::vector<Spec>& specs,
                   at::ArrayRef<size_t> kept, at::Device device) {
  for (const size_t index : kept)
    FEM_CHECK(out.at(index).defined(), names.op, "_backward: expected ", names.output(index), ", the output of ",
              names.op, ", got none");
  FEM_CHECK(out.empty() || out.size() == specs.size(), names.op, "_backward: expected ", specs.size(),
            " outputs or none, got ", out.size());
  for (size_t i = 0; i < out.size(); ++i)
    FEM_CHECK(!out[i].defined() || (fits(out[i], specs[i], device) && out[i].scalar_type() == specs[i].dtype), names.op,
              "_backward: expected ", names.output(i), " as ", specs[i].dtype, " ", c10::SymIntArrayRef(specs[i].shape),
              " on ", device, ", as the output of ", names.op, ", got ", out[i].scalar_type(), " ", shape_of(out[i]),
              " on ", out[i].device());
}

at::Tensor finished_output(const at::Tensor& x, const Spec& spec, const TensorVector& inputs) {
  if (!x.defined()) {
    const auto any = std::find_if(inputs.begin(), inputs.end(), [](const at::Tensor& y) { return y.defined(); });
    return at::zeros_symint(spec.shape, any->options().dtype(spec.dtype));
  }
  // The view: contiguous() leaves the strides of dimensions of size 1 as they are.
  const at::Tensor y = x.to(spec.dtype).contiguous().view_symint(spec.shape);
  const auto is_part_of = [&](const at::Tensor& input) {
    return input.defined() && input.has_storage() && y.has_storage() && y.is_alias_of(input);
  };
  return std::any_of(inputs.begin(), inputs.end(), is_part_of) ? y.clone() : y;
}

}  // namespace fem
