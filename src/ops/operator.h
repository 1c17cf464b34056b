// What every registered operator needs.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <tuple>

namespace fem {

using OptionalTensor = std::optional<at::Tensor>;
using Tensors2 = std::tuple<at::Tensor, at::Tensor>;
using Tensors3 = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Tensors4 = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Tensors5 = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Tensors6 = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

inline OptionalTensor if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
}

// Says once in the log that definitions run in place of kernels.
void announce_definition();

// A definition as the kernel of every device that has none of its own.
template <auto definition>
struct Announced;
template <typename Result, typename... Arguments, Result (*definition)(Arguments...)>
struct Announced<definition> {
  static Result call(Arguments... arguments) {
    announce_definition();
    return definition(arguments...);
  }
};
template <auto definition>
constexpr auto announced = Announced<definition>::call;

template <typename Signature>
auto find_operator(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Signature>();
}

}  // namespace fem
