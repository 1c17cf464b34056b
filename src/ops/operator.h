// What an operator is, and the frame around it. An operator is a struct:
//
//   struct SwigluOp {
//     static constexpr const char* kSchema = "swiglu(Tensor gate, Tensor up) -> Tensor y";
//     struct Inputs { at::Tensor gate, up; FEM_FIELDS(gate, up) };   // as the schema lists them
//     struct Outputs { at::Tensor y; FEM_FIELDS(y) };
//     static constexpr size_t kLearned = 2;                          // so many inputs, the first, have gradients
//     static void check(const Inputs&);                              // a sentence for what does not fit
//     static std::vector<Spec> outputs(const Inputs&);               // shapes and dtypes, of symbolic sizes, too
//     static Outputs definition(const Inputs&);                      // plain ATen, differentiable
//     static void kernel(const Inputs&, Outputs&);                   // CPU: float32 and bfloat16, into what is there
//     static Inputs gradient_kernel(const BackwardOf<SwigluOp>&);    // both may be left out
//   };
//   FEM_REGISTER_OPERATOR(SwigluOp)                                    // in one source file, which includes register.h
//
// It registers fem::swiglu and fem::swiglu_backward(grad_y?, gate, up, y?, wanted) -> (Tensor, Tensor), for the CPU,
// other devices, shapes alone and autograd, and checks both alike. call<SwigluOp>({gate, up}) goes through the
// dispatcher. Optional members:
//   gradient(const BackwardOf<Op>&)      plain ATen, differentiable; else the definition is differentiated
//   elsewhere(...), gradient_elsewhere(...)   other devices; else the definition and the gradient
//   has_kernel(const Inputs&)          else: all but float64 has
//   kKeptOutputs                       the outputs that backward needs, by their index; else none
//   keep(Inputs&)                      puts something that is kept anyway where backward does not need the numbers
//   kConstantOutputs                   so many outputs, the last, have no gradient
//   kTakesMissingGradients             else gradients of outputs that nobody used come as zeros
//   kRemakesInputs                     inputs whose makers can make them again are not kept (remake.h)
//   kAnnounced = false                 other devices lose nothing
//   kCalled = "..."                    the function by which users know it: its name in errors
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <array>
#include <string>

#include "ops/signatures.h"

namespace fem {

// "swiglu" of "swiglu(Tensor gate, ...".
template <typename Op>
std::string name_of() {
  const std::string schema = Op::kSchema;
  return schema.substr(0, schema.find('('));
}

template <typename Signature>
auto find_operator(const std::string& name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), "").typed<Signature>();
}

// Through the dispatcher.
template <typename Op>
typename Op::Outputs call(const typename Op::Inputs& in) {
  static const auto op = find_operator<typename Signatures<Op>::Forward>("fem::" + name_of<Op>());
  typename Op::Outputs out;
  take<kFieldCount<typename Op::Outputs>>(
      out, std::apply([](const auto&... field) { return op.call(field...); }, in.fields()));
  return out;
}
template <typename Op>
typename Op::Inputs call_gradient(const BackwardOf<Op>& b) {
  static const auto op = find_operator<typename Signatures<Op>::Gradient>("fem::" + name_of<Op>() + "_backward");
  const auto run = [&](const auto&... field) { return op.call(field..., b.wanted); };
  typename Op::Inputs gradients;
  take<Op::kLearned>(gradients,
                     std::apply(run, std::tuple_cat(outputs_passed(b.grads), b.in.fields(), outputs_passed(b.out))));
  return gradients;
}

}  // namespace fem
