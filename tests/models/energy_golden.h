// tests/golden/energy.txt: blocks of "name rows columns" and as many lines of numbers, in float64.
#pragma once

#include <ATen/ATen.h>

#include <fstream>
#include <map>
#include <string>

namespace fem::testing {

inline std::map<std::string, at::Tensor> energy_goldens() {
  std::ifstream file(std::string(FEM_GOLDEN_DIR) + "/energy.txt");
  std::map<std::string, at::Tensor> blocks;
  std::string name;
  for (int64_t rows, columns; file >> name >> rows >> columns;) {
    at::Tensor block = at::empty({rows, columns}, at::kDouble);
    for (int64_t i = 0; i < block.numel(); ++i) file >> block.data_ptr<double>()[i];
    blocks[name] = block;
  }
  return blocks;
}

// Causal attention of two heads on rows x [T, D], as the goldens have it: x W, no biases, no positions.
inline at::Tensor golden_attention(const std::map<std::string, at::Tensor>& of, const at::Tensor& x) {
  const auto heads = [&](const char* weight) {
    return at::matmul(x, of.at(weight)).unflatten(1, {2, -1}).transpose(0, 1).unsqueeze(0);
  };
  const at::Tensor read = at::scaled_dot_product_attention(heads("Wq"), heads("Wk"), heads("Wv"), {}, 0.0, true);
  return at::matmul(read.squeeze(0).transpose(0, 1).flatten(1), of.at("Wo"));
}

}  // namespace fem::testing
