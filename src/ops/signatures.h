// Between the structs of an operator and the lists of arguments that torch's dispatcher knows.
#pragma once

#include <array>

#include "ops/fields.h"

namespace fem {

// An output before it is there.
struct Spec {
  std::vector<c10::SymInt> shape;
  at::ScalarType dtype;
};

// What a gradient is computed from. What is not kept or not there is undefined; gradients of inputs are returned as
// Inputs, of which the fields that are not learned mean nothing.
template <typename Op>
struct BackwardOf {
  typename Op::Outputs grads;
  typename Op::Inputs in;
  typename Op::Outputs out;
  std::array<bool, Op::kLearned> wanted;  // which gradients are
};

// A field as the dispatcher passes it; of outputs, a gradient operator may be given none.
template <typename Field>
struct Passed {
  using Input = Field;
};
template <>
struct Passed<at::Tensor> {
  using Input = const at::Tensor&;
  using Output = const OptionalTensor&;
};
template <>
struct Passed<OptionalTensor> {
  using Input = const OptionalTensor&;
};
template <>
struct Passed<TensorVector> {
  using Input = at::TensorList;
  using Output = at::TensorList;
};

// The first count fields as the dispatcher returns them: one value, or a tuple.
template <typename Struct, size_t count>
struct ReturnedBy {
  template <size_t i>
  using Element = std::conditional_t<are_tensors<Field<Struct, i>>, TensorVector, at::Tensor>;
  template <size_t... i>
  static auto type(std::index_sequence<i...>) -> std::tuple<Element<i>...>;
  using Tuple = decltype(type(std::make_index_sequence<count>{}));
  using Type = std::conditional_t<count == 1, std::tuple_element_t<0, Tuple>, Tuple>;
};
template <typename Struct, size_t count>
using Returned = typename ReturnedBy<Struct, count>::Type;

template <typename Op>
using ReturnedForward = Returned<typename Op::Outputs, kFieldCount<typename Op::Outputs>>;
template <typename Op>
using ReturnedGradient = Returned<typename Op::Inputs, Op::kLearned>;

// Values as the dispatcher passes them, into the fields of a struct, and back.
inline void set(at::Tensor& field, const at::Tensor& value) { field = value; }
inline void set(at::Tensor& field, const OptionalTensor& value) { field = or_undefined(value); }
inline void set(TensorVector& field, at::TensorList value) { field = value.vec(); }
template <typename Field>
void set(Field& field, const Field& value) {
  field = value;
}
template <typename Struct, typename... Values>
void put(Struct& s, const Values&... values) {
  std::apply([&](auto&... field) { (set(field, values), ...); }, s.fields());
}
inline at::Tensor returned_field(const at::Tensor& field) { return field; }
inline at::Tensor returned_field(const OptionalTensor& field) { return or_undefined(field); }
inline TensorVector returned_field(const TensorVector& field) { return field; }
template <size_t count, typename Struct>
Returned<Struct, count> returned(const Struct& s) {
  const auto fields = s.fields();
  return [&]<size_t... i>(std::index_sequence<i...>) {
    return Returned<Struct, count>{returned_field(std::get<i>(fields))...};
  }(std::make_index_sequence<count>{});
}
// What an operator returned, in the first fields of a struct.
template <size_t count, typename Struct, typename Result>
void take(Struct& s, const Result& result) {
  auto fields = s.fields();
  if constexpr (count == 1)
    std::get<0>(fields) = result;
  else
    [&]<size_t... i>(std::index_sequence<i...>) {
      ((std::get<i>(fields) = std::get<i>(result)), ...);
    }(std::make_index_sequence<count>{});
}

// The signatures of both operators, and functions of structs in that form.
template <typename Op, typename In = FieldsOf<typename Op::Inputs>, typename Out = FieldsOf<typename Op::Outputs>>
struct Signatures;
template <typename Op, typename... I, typename... O>
struct Signatures<Op, std::tuple<I&...>, std::tuple<O&...>> {
  using Wanted = std::array<bool, Op::kLearned>;
  using Forward = ReturnedForward<Op>(typename Passed<I>::Input...);
  using Gradient = ReturnedGradient<Op>(typename Passed<O>::Output..., typename Passed<I>::Input...,
                                        typename Passed<O>::Output..., Wanted);

  template <typename Op::Outputs (*run)(const typename Op::Inputs&)>
  static ReturnedForward<Op> forward(typename Passed<I>::Input... in) {
    typename Op::Inputs inputs;
    put(inputs, in...);
    return returned<kFieldCount<typename Op::Outputs>>(run(inputs));
  }
  template <typename Op::Inputs (*run)(const BackwardOf<Op>&)>
  static ReturnedGradient<Op> gradient(typename Passed<O>::Output... grads, typename Passed<I>::Input... in,
                                       typename Passed<O>::Output... out, Wanted wanted) {
    BackwardOf<Op> backward;
    put(backward.grads, grads...);
    put(backward.in, in...);
    put(backward.out, out...);
    backward.wanted = wanted;
    return returned<Op::kLearned>(run(backward));
  }
};

// Outputs as a gradient operator is given them.
template <typename Outputs>
auto outputs_passed(const Outputs& out) {
  const auto passed = []<typename F>(const F& field) {
    if constexpr (are_tensors<F>)
      return field;
    else
      return if_defined(field);
  };
  return std::apply([&](const auto&... field) { return std::make_tuple(passed(field)...); }, out.fields());
}

}  // namespace fem
