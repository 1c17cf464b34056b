// torch has no gradient check in C++; this is one.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace fem::testing {

using Function = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

// Compares autograd's gradients of a random projection of function's outputs with central differences, for every
// element of every input (float64). An input whose gradient is zero throughout fails: it proves nothing.
// second_order also checks the gradients of those gradients.
::testing::AssertionResult gradients_match(const Function& function, const std::vector<at::Tensor>& inputs,
                                           bool second_order = false);

}  // namespace fem::testing
