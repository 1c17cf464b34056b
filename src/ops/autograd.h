// An operator in the autograd graph: what is kept for backward, and how its gradient operator is called with it.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include "ops/check_call.h"
#include "ops/differentiate.h"
#include "ops/operator.h"
#include "ops/remake.h"

namespace fem {

template <typename Op>
constexpr bool kRemakes = requires { Op::kRemakesInputs; };

// The fields of inputs, as an autograd node keeps them: tensors, and beside them numbers and the lengths of lists.
struct KeptFields {
  TensorVector tensors;
  std::vector<c10::IValue> numbers;

  template <typename Inputs>
  explicit KeptFields(const Inputs& in) : tensors(tensors_of(in)) {
    for_fields(in, [&]<typename F>(const F& field) {
      if constexpr (are_tensors<F>)
        numbers.emplace_back(static_cast<int64_t>(field.size()));
      else if constexpr (!is_tensor<F>)
        numbers.emplace_back(field);
    });
  }
};
template <typename Inputs>
Inputs restored(const torch::autograd::variable_list& tensors, at::ArrayRef<c10::IValue> numbers) {
  Inputs in;
  auto tensor = tensors.begin();
  auto number = numbers.begin();
  for_fields(in, [&]<typename F>(F& field) {
    if constexpr (std::is_same_v<F, OptionalTensor>)
      field = if_defined(*tensor++);
    else if constexpr (std::is_same_v<F, at::Tensor>)
      field = *tensor++;
    else if constexpr (are_tensors<F>)
      for (int64_t left = (*number++).toInt(); left > 0; --left) field.push_back(*tensor++);
    else
      field = (*number++).template to<F>();
  });
  return in;
}

template <typename Op>
struct Differentiable : torch::autograd::Function<Differentiable<Op>> {
  using Inputs = typename Op::Inputs;
  using Outputs = typename Op::Outputs;
  using Context = torch::autograd::AutogradContext;
  static constexpr bool is_traceable = true;

  // present: the tensors of the learned fields that are there, for torch to find. Each has an edge of the node.
  static TensorVector forward(Context* ctx, const Inputs& in, at::TensorList present) {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    const TensorVector out = tensors_of(call<Op>(in));
    KeptFields kept(kept_inputs(in));
    std::vector<int64_t> edges;  // of every learned tensor: 0 if it is absent, counted from 1, negative if made again
    const TensorVector learned = tensors_of<0, Op::kLearned>(in);
    for (size_t i = 0, edge = 0; i < learned.size(); ++i) {
      edges.push_back(learned[i].defined() ? static_cast<int64_t>(++edge) : 0);
      if constexpr (kRemakes<Op>)
        if (learned[i].defined() && is_remade(learned[i])) {
          kept.tensors[i].reset();  // learned fields come first
          edges.back() *= -1;
        }
    }
    for (const size_t index : kept_outputs<Op>()) kept.tensors.push_back(out[index]);
    ctx->save_for_backward(std::move(kept.tensors));
    c10::impl::GenericList numbers(c10::AnyType::get());
    for (const c10::IValue& number : kept.numbers) numbers.push_back(number);
    ctx->saved_data["numbers"] = numbers;
    ctx->saved_data["edges"] = edges;
    ctx->set_materialize_grads(false);
    if constexpr (requires { Op::kConstantOutputs; })
      ctx->mark_non_differentiable({out.end() - Op::kConstantOutputs, out.end()});
    return out;
  }

  static TensorVector backward(Context* ctx, const TensorVector& grads) {
    BackwardOf<Op> b = kept_in(ctx);
    auto grad = grads.begin();
    for_fields(b.grads, [&]<typename F>(F& field) {
      if constexpr (are_tensors<F>)
        field.assign(grad, grads.end());
      else
        field = *grad++;
    });
    const std::vector<int64_t> edges = ctx->saved_data.at("edges").toIntVector();
    const auto needed = [&](int64_t edge) { return edge != 0 && ctx->needs_input_grad(std::abs(edge) - 1); };
    auto edge = edges.begin();
    size_t index = 0;
    for_fields<0, Op::kLearned>(b.in, [&](const auto& field) {
      bool& wanted = b.wanted[index++] = false;
      for (size_t left = slots(field); left > 0; --left) wanted |= needed(*edge++);
    });

    const TensorVector all = tensors_of<0, Op::kLearned>(gradient_of(b, makers_of(edges)));
    TensorVector gradients(1);  // of in itself: none
    for (size_t i = 0; i < edges.size(); ++i)
      if (edges[i] != 0) gradients.push_back(needed(edges[i]) ? all[i] : at::Tensor());
    return gradients;
  }

  // What a node keeps, with inputs that are made again undefined.
  static BackwardOf<Op> kept_in(const Context* ctx) {
    const TensorVector saved = ctx->get_saved_variables();
    BackwardOf<Op> b;
    b.in = restored<Inputs>(saved, ctx->saved_data.at("numbers").toListRef());
    TensorVector out(kFieldCount<Outputs>);
    constexpr auto kept = kept_outputs<Op>();
    for (size_t i = 0; i < kept.size(); ++i) out[kept[i]] = saved[saved.size() - kept.size() + i];
    auto next = out.begin();
    for_fields(b.out, [&]<typename F>(F& field) {
      if constexpr (!are_tensors<F>) field = *next++;
    });
    return b;
  }

 private:
  static Inputs kept_inputs(Inputs in) {
    if constexpr (requires { Op::keep(in); }) Op::keep(in);
    return in;
  }

  static size_t slots(const TensorVector& field) { return field.size(); }
  template <typename Field>
  static size_t slots(const Field&) {
    return 1;
  }

  // For every learned tensor the node that makes it again, or null.
  static std::vector<torch::autograd::Node*> makers_of(const std::vector<int64_t>& edges) {
    std::vector<torch::autograd::Node*> makers(edges.size(), nullptr);
    if constexpr (kRemakes<Op>)
      for (size_t i = 0; i < edges.size(); ++i)
        if (edges[i] < 0) makers[i] = torch::autograd::get_current_node()->next_edge(-edges[i] - 1).function.get();
    return makers;
  }

  static Inputs gradient_of(BackwardOf<Op>& b, const std::vector<torch::autograd::Node*>& makers) {
    if constexpr (requires { Op::gradient_in_parts(b, makers); })
      if (auto gradients = Op::gradient_in_parts(b, makers)) return *gradients;
    if constexpr (kRemakes<Op>) {
      auto maker = makers.begin();
      for_fields<0, Op::kLearned>(b.in, [&]<typename F>(F& field) {
        if constexpr (are_tensors<F>)
          maker += static_cast<int64_t>(field.size());
        else if (torch::autograd::Node* node = *maker++)
          field = remake(*node);
      });
    }
    return call_gradient<Op>(b);
  }
};

template <typename Op>
typename Op::Outputs differentiable_call(const typename Op::Inputs& in) {
  TensorVector present = tensors_of<0, Op::kLearned>(in);
  std::erase_if(present, [](const at::Tensor& x) { return !x.defined(); });
  const TensorVector out = Differentiable<Op>::apply(in, at::TensorList(present));
  size_t next = 0;
  typename Op::Outputs outputs;
  for_fields(outputs, [&]<typename F>(F& field) {
    if constexpr (are_tensors<F>)
      field = out;
    else
      field = out[next++];
  });
  return outputs;
}

// The gradient by differentiating the definition.
template <typename Op>
typename Op::Inputs gradient_of_definition(const BackwardOf<Op>& b) {
  const auto with = [&](const TensorVector& learned) {
    typename Op::Inputs in = b.in;
    auto next = learned.begin();
    for_fields<0, Op::kLearned>(in, [&]<typename F>(F& field) {
      if constexpr (are_tensors<F>)
        for (at::Tensor& x : field) x = *next++;
      else if constexpr (std::is_same_v<F, OptionalTensor>)
        field = if_defined(*next++);
      else
        field = *next++;
    });
    return in;
  };
  return with(gradient_of([&](const TensorVector& learned) { return tensors_of(Op::definition(with(learned))); },
                          tensors_of<0, Op::kLearned>(b.in), tensors_of(b.grads)));
}

}  // namespace fem
