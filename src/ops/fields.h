// Structs whose fields can be walked through: the inputs and outputs of operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

// Names the fields of a struct, all of them and in their order.
#define FEM_FIELDS(...)                           \
  auto fields() { return std::tie(__VA_ARGS__); } \
  auto fields() const { return std::tie(__VA_ARGS__); }

namespace fem {

using OptionalTensor = std::optional<at::Tensor>;
using TensorVector = std::vector<at::Tensor>;

inline OptionalTensor if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}
inline at::Tensor or_undefined(const OptionalTensor& tensor) { return tensor.value_or(at::Tensor()); }

template <typename Struct>
using FieldsOf = decltype(std::declval<Struct&>().fields());

template <typename Struct>
constexpr size_t kFieldCount = std::tuple_size_v<FieldsOf<Struct>>;

template <typename Struct, size_t index>
using Field = std::remove_cvref_t<std::tuple_element_t<index, FieldsOf<Struct>>>;

// Calls visit(field) for the fields first <= i < last, in order.
template <size_t first, size_t last, typename Struct, typename Visit>
void for_fields(Struct& s, Visit&& visit) {
  const auto fields = s.fields();
  [&]<size_t... i>(std::index_sequence<i...>) {
    (visit(std::get<first + i>(fields)), ...);
  }(std::make_index_sequence<last - first>{});
}
template <typename Struct, typename Visit>
void for_fields(Struct& s, Visit&& visit) {
  for_fields<0, kFieldCount<Struct>>(s, std::forward<Visit>(visit));
}

template <typename Field>
constexpr bool are_tensors = std::is_same_v<Field, TensorVector>;
template <typename Field>
constexpr bool is_tensor = std::is_same_v<Field, at::Tensor> || std::is_same_v<Field, OptionalTensor>;

// Calls visit(tensor) for every tensor of a field that is there; a number has none.
template <typename Field, typename Visit>
void for_tensors(Field& field, Visit&& visit) {
  using F = std::remove_const_t<Field>;
  if constexpr (std::is_same_v<F, at::Tensor>) {
    visit(field);
  } else if constexpr (std::is_same_v<F, OptionalTensor>) {
    if (field) visit(*field);
  } else if constexpr (are_tensors<F>) {
    for (auto& x : field) visit(x);
  }
}

// The tensors of the fields first <= i < last; undefined where there is none.
template <size_t first, size_t last, typename Struct>
TensorVector tensors_of(const Struct& s) {
  TensorVector tensors;
  for_fields<first, last>(s, [&]<typename F>(const F& field) {
    if constexpr (std::is_same_v<F, OptionalTensor>)
      tensors.push_back(or_undefined(field));
    else
      for_tensors(field, [&](const at::Tensor& x) { tensors.push_back(x); });
  });
  return tensors;
}
template <typename Struct>
TensorVector tensors_of(const Struct& s) {
  return tensors_of<0, kFieldCount<Struct>>(s);
}

}  // namespace fem
