// What the frame checks of every operator before the operator's own check: tensors are there, dense and on one device,
// and a gradient operator is given gradients and outputs of the right shapes.
#pragma once

#include <string>

#include "ops/operator.h"

namespace fem {

// As a schema spells them.
struct Names {
  std::string op;
  std::vector<std::string> inputs, outputs;
  std::string output(size_t index) const;  // of several in one list: with its number
};
Names names_in(const char* schema);

// "NAME_backward(grads..., inputs..., outputs..., wanted) -> (gradients...)" of the first inputs.
c10::FunctionSchema gradient_schema(const char* schema, size_t learned);

// Says once in the log that plain ATen runs in place of kernels.
void announce_plain();

// first: the first input, whose device is everybody's.
void check_input(const Names& names, size_t index, const at::Tensor& x, const at::Tensor& first);
void check_gradients(const Names& names, const TensorVector& grads, const std::vector<Spec>& specs, at::Device device);
// kept: the indices of those that must be there. Others may be: one on another device would choose who computes.
void check_outputs(const Names& names, const TensorVector& out, const std::vector<Spec>& specs,
                   at::ArrayRef<size_t> kept, at::Device device);

// contiguous, of the dtype and no input; zeros where there is none.
at::Tensor finished_output(const at::Tensor& x, const Spec& spec, const TensorVector& inputs);

template <typename Op>
constexpr auto kept_outputs() {
  if constexpr (requires { Op::kKeptOutputs; })
    return Op::kKeptOutputs;
  else
    return std::array<size_t, 0>{};
}

// Its device and dtype are the operator's.
template <typename Struct>
const at::Tensor& first_tensor(const Struct& s) {
  return std::get<0>(s.fields());
}

// Outputs with make(spec) for every tensor; a list holds all there are.
template <typename Outputs, typename Make>
Outputs outputs_of(const std::vector<Spec>& specs, Make&& make) {
  Outputs out;
  auto next = specs.begin();
  for_fields(out, [&](auto& field) {
    if constexpr (are_tensors<std::remove_cvref_t<decltype(field)>>)
      while (next != specs.end()) field.push_back(make(*next++));
    else
      field = make(*next++);
  });
  return out;
}

}  // namespace fem
