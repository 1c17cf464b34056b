// tests/golden/energy.txt: blocks of "name rows columns" and as many lines of numbers, in float64.
#pragma once

#include <ATen/ATen.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "models/token_mixer.h"

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

// The token mixer attention of two heads on rows x [T, D], as the goldens have it: x W, no biases, no positions.
inline at::Tensor golden_attention(const std::map<std::string, at::Tensor>& of, const MixerInput& in) {
  BackboneOptions options{.n_embd = in.x.size(1), .n_head = 2, .block_mixer = BlockMixer::kAttention};
  options.mixer = {.n_embd = options.n_embd, .n_head = options.n_head, .bias = false, .use_rope = false};
  std::vector<at::Tensor> weights;
  for (const char* name : {"Wq", "Wk", "Wv", "Wo"}) weights.push_back(of.at(name).t().contiguous());
  const auto row = [](const at::Tensor& x) { return x.defined() ? x.unsqueeze(0) : x; };
  const Mix mix = token_mixer_of(options.block_mixer).bind(options, 0, weights);
  return mix({row(in.x), row(in.query)}, {}, nullptr, false).squeeze(0);
}

}  // namespace fem::testing
