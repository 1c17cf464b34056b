// The frame of an operator (operator.h): checks, the choice of who computes, autograd, registration.
#pragma once

#include <ATen/ATen.h>
#include <torch/library.h>

#include "ops/autograd.h"
#include "ops/check_call.h"
#include "ops/differentiate.h"
#include "ops/operator.h"
#include "ops/transforms.h"

namespace fem {

template <typename Op>
class Frame {
  using Inputs = typename Op::Inputs;
  using Outputs = typename Op::Outputs;
  static constexpr bool kHasKernels = requires(const Inputs& in, Outputs& out) { Op::kernel(in, out); };

 public:
  static const Names& names() {
    static const Names all = [] {
      Names found = names_in(Op::kSchema);
      if constexpr (requires { Op::kCalled; }) found.op = Op::kCalled;
      return found;
    }();
    return all;
  }

  static void check(const Inputs& in) {
    size_t index = 0;
    for_fields(in, [&](const auto& field) {
      for_tensors(field, [&](const at::Tensor& x) { check_input(names(), index, x, first_tensor(in)); });
      ++index;
    });
    Op::check(in);
  }

  static void check(const BackwardOf<Op>& b) {
    check(b.in);
    const std::vector<Spec> specs = Op::outputs(b.in);
    const at::Device device = first_tensor(b.in).device();
    check_gradients(names(), tensors_of(b.grads), specs, device);
    constexpr auto kept = kept_outputs<Op>();
    check_outputs(names(), tensors_of(b.out), specs, {kept.data(), kept.size()}, device);
  }

  static Outputs on_cpu(const Inputs& in) {
    check(in);
    if constexpr (kHasKernels) {
      if (has_kernel(in)) {
        Outputs out = empty_outputs(in);
        Op::kernel(in, out);
        return out;
      }
    }
    return finished(in, Op::definition(in));
  }
  static Outputs elsewhere(const Inputs& in) {
    check(in);
    if constexpr (!requires { Op::kAnnounced; }) announce_plain();
    if constexpr (requires { Op::elsewhere(in); })
      return finished(in, Op::elsewhere(in));
    else
      return finished(in, Op::definition(in));
  }
  static Outputs shapes(const Inputs& in) {
    check(in);
    return empty_outputs(in);
  }
  static Outputs by_definition(const Inputs& in) {
    check(in);
    return finished(in, Op::definition(in));
  }
  static Outputs with_autograd(const Inputs& in) {
    if (under_transform()) return by_definition(in);
    if (without_gradients()) {
      const at::AutoDispatchBelowADInplaceOrView below_autograd;
      return call<Op>(in);
    }
    return differentiable_call<Op>(in);
  }

  static Inputs gradient_on_cpu(const BackwardOf<Op>& given) {
    const BackwardOf<Op> b = complete(given);
    if constexpr (kHasKernels)
      if (has_kernel(b.in)) return finished(b, Op::gradient_kernel(b));
    return finished(b, gradient(b));
  }
  static Inputs gradient_elsewhere(const BackwardOf<Op>& given) {
    const BackwardOf<Op> b = complete(given);
    if constexpr (!requires { Op::kAnnounced; }) announce_plain();
    if constexpr (requires { Op::gradient_elsewhere(b); })
      return finished(b, Op::gradient_elsewhere(b));
    else
      return finished(b, gradient(b));
  }
  static Inputs gradient_shapes(const BackwardOf<Op>& b) {
    check(b);
    return finished(b, b.in, [](const at::Tensor&, const at::Tensor& input) {
      return at::empty_symint(input.sym_sizes(), input.options());
    });
  }
  // Second derivatives: plain ATen, which autograd differentiates by itself.
  static Inputs gradient_with_autograd(const BackwardOf<Op>& b) {
    if (at::GradMode::is_enabled()) {
      const BackwardOf<Op> all = complete(b);
      return finished(all, gradient(all));
    }
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return call_gradient<Op>(b);
  }

  static void define(torch::Library& library) {
    library.def(Op::kSchema);
    library.def(gradient_schema(Op::kSchema, Op::kLearned));
  }
  template <Outputs (*forward)(const Inputs&), Inputs (*backward)(const BackwardOf<Op>&)>
  static void implement(torch::Library& library) {
    library.impl(name_of<Op>().c_str(), Signatures<Op>::template forward<forward>);
    library.impl((name_of<Op>() + "_backward").c_str(), Signatures<Op>::template gradient<backward>);
  }

 private:
  static bool has_kernel(const Inputs& in) {
    if constexpr (requires { Op::has_kernel(in); })
      return Op::has_kernel(in);
    else
      return first_tensor(in).scalar_type() != at::kDouble;
  }

  static Outputs empty_outputs(const Inputs& in) {
    const at::TensorOptions options = first_tensor(in).options();
    return outputs_of<Outputs>(
        Op::outputs(in), [&](const Spec& spec) { return at::empty_symint(spec.shape, options.dtype(spec.dtype)); });
  }

  // As the operator returns it: what is not there holds zeros, rows are contiguous, nothing is an input.
  static Outputs finished(const Inputs& in, Outputs out) {
    const std::vector<Spec> specs = Op::outputs(in);
    const TensorVector inputs = tensors_of(in);
    auto spec = specs.begin();
    for_fields(
        out, [&](auto& field) { for_tensors(field, [&](at::Tensor& x) { x = finished_output(x, *spec++, inputs); }); });
    return out;
  }

  static BackwardOf<Op> complete(BackwardOf<Op> b) {
    check(b);
    size_t index = 0;
    for_fields<0, Op::kLearned>(b.in, [&]<typename F>(const F& field) {
      if constexpr (std::is_same_v<F, OptionalTensor>) b.wanted[index] &= field.has_value();
      ++index;
    });
    if constexpr (!requires { Op::kTakesMissingGradients; }) {
      const std::vector<Spec> specs = Op::outputs(b.in);
      const at::TensorOptions options = first_tensor(b.in).options();
      const TensorVector given = tensors_of(b.grads);
      size_t next = 0;
      b.grads = outputs_of<Outputs>(specs, [&](const Spec& spec) {
        const at::Tensor& x = given[next++];
        return x.defined() ? x : at::zeros_symint(spec.shape, options.dtype(spec.dtype));
      });
    }
    return b;
  }

  static Inputs gradient(const BackwardOf<Op>& b) {
    if constexpr (requires { Op::gradient(b); })
      return Op::gradient(b);
    else
      return gradient_of_definition<Op>(b);
  }

  // Wanted gradients of inputs that are there; others without elements.
  template <typename Finish>
  static Inputs finished(const BackwardOf<Op>& b, const Inputs& gradients, Finish&& finish) {
    const auto one = [&](const at::Tensor& gradient, const at::Tensor& input, bool wanted) {
      return wanted && input.defined() ? finish(gradient, input) : at::empty({0}, first_tensor(b.in).options());
    };
    Inputs result;
    const auto to = result.fields();
    const auto from = gradients.fields(), in = b.in.fields();
    const auto field = [&]<size_t i>() {
      if constexpr (are_tensors<Field<Inputs, i>>)
        for (size_t k = 0; k < std::get<i>(in).size(); ++k)
          std::get<i>(to).push_back(one(std::get<i>(from).at(k), std::get<i>(in)[k], b.wanted[i]));
      else
        std::get<i>(to) = one(returned_field(std::get<i>(from)), returned_field(std::get<i>(in)), b.wanted[i]);
    };
    [&]<size_t... i>(std::index_sequence<i...>) {
      (field.template operator()<i>(), ...);
    }(std::make_index_sequence<Op::kLearned>{});
    return result;
  }
  static Inputs finished(const BackwardOf<Op>& b, const Inputs& gradients) {
    TensorVector given = tensors_of(b.grads);
    for (const TensorVector& more : {tensors_of(b.in), tensors_of(b.out)})
      given.insert(given.end(), more.begin(), more.end());
    return finished(b, gradients, [&](const at::Tensor& gradient, const at::Tensor& input) {
      return finished_output(gradient, {input.sym_sizes().vec(), input.scalar_type()}, given);
    });
  }
};

}  // namespace fem

#define FEM_REGISTER_OPERATOR(Op)                                                                              \
  TORCH_LIBRARY_FRAGMENT(fem, m) { ::fem::Frame<Op>::define(m); }                                              \
  TORCH_LIBRARY_IMPL(fem, CPU, m) {                                                                            \
    ::fem::Frame<Op>::implement<::fem::Frame<Op>::on_cpu, ::fem::Frame<Op>::gradient_on_cpu>(m);               \
  }                                                                                                            \
  TORCH_LIBRARY_IMPL(fem, Meta, m) {                                                                           \
    ::fem::Frame<Op>::implement<::fem::Frame<Op>::shapes, ::fem::Frame<Op>::gradient_shapes>(m);               \
  }                                                                                                            \
  TORCH_LIBRARY_IMPL(fem, CompositeExplicitAutograd, m) {                                                      \
    ::fem::Frame<Op>::implement<::fem::Frame<Op>::elsewhere, ::fem::Frame<Op>::gradient_elsewhere>(m);         \
  }                                                                                                            \
  TORCH_LIBRARY_IMPL(fem, Autograd, m) {                                                                       \
    ::fem::Frame<Op>::implement<::fem::Frame<Op>::with_autograd, ::fem::Frame<Op>::gradient_with_autograd>(m); \
  }
