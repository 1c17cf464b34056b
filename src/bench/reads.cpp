#include "bench/reads.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "fem/ops/channel_read.h"
#include "fem/ops/linear_read.h"
#include "fem/ops/softmax_read.h"
#include "fem/ops/ssm_read.h"

namespace fem::bench {
namespace {

using torch::autograd::variable_list;

constexpr double kBeta = 1.95;   // where the layer's beta starts
constexpr double kDecay = 0.01;  // a memory of a hundred tokens
constexpr int64_t kRank = 16;    // ssm_rank's default

// What a projection leaves: [B, T, H, width], a view of [B, T, H * width].
at::Tensor projected(const Shape& s, int64_t width) {
  return at::randn({s.batch, s.length, s.heads * width}).view({s.batch, s.length, s.heads, width});
}

variable_list outputs_of(const Read& read) { return {read.mean, read.free_energy}; }

variable_list random_like(const variable_list& tensors) {
  variable_list random;
  for (const at::Tensor& t : tensors) random.push_back(at::randn_like(t));
  return random;
}

template <typename Run>
ReadUnderTest differentiable(const variable_list& inputs, Run run) {
  for (const at::Tensor& input : inputs) input.set_requires_grad(true);
  return {inputs, [inputs, run] { return run(inputs); }};
}

}  // namespace

Head read_head(const Shape& s) { return {s.dim / s.heads, s.dim / s.heads / 2}; }

ReadUnderTest read_of(PriorType prior, const Shape& s) {
  const auto [key, value] = read_head(s);
  const at::Tensor v = projected(s, value), beta = at::full({s.heads, value}, kBeta);
  const auto key_like = [&] { return projected(s, read_head(s).key); };
  const auto feature = [&] { return at::relu(key_like()) + 1e-6; };
  const auto positive = [&](at::IntArrayRef shape) { return at::rand(shape) + 0.1; };
  switch (prior) {
    case PriorType::kSoftmax:
      return differentiable({key_like(), key_like(), v, beta}, [](const variable_list& in) {
        return outputs_of(softmax_read(in[0], in[1], in[2], in[3]));
      });
    case PriorType::kLinear:
      return differentiable({feature(), feature(), v, beta}, [](const variable_list& in) {
        return outputs_of(linear_read(in[0], in[1], in[2], in[3]));
      });
    case PriorType::kGla:
      return differentiable(
          {feature(), feature(), v, beta, at::full({s.batch, s.length, s.heads}, -kDecay)},
          [](const variable_list& in) { return outputs_of(linear_read(in[0], in[1], in[2], in[3], in[4])); });
    case PriorType::kRnnSoftmax:
      return differentiable({projected(s, value), v, beta},
                            [](const variable_list& in) { return outputs_of(aft_read(in[0], in[1], in[2])); });
    case PriorType::kRnnDecay:
      return differentiable({at::full_like(v, -kDecay), v, beta},
                            [](const variable_list& in) { return outputs_of(decay_read(in[1], in[2], in[0])); });
    case PriorType::kMamba:
      break;
  }
  return differentiable(
      {v, beta, at::full_like(v, 0.03), -positive({s.heads, value, kRank}), positive({s.batch, s.length, kRank}),
       positive({s.batch, s.length, kRank}), positive({s.heads, value})},
      [](const variable_list& in) { return outputs_of(ssm_read(in[0], in[1], {in[2], in[3], in[4], in[5], in[6]})); });
}

ReadUnderTest attention_of(const Shape& s) {
  const auto heads = [&] { return projected(s, s.dim / s.heads); };
  return differentiable({heads(), heads(), heads()}, [](const variable_list& in) -> variable_list {
    const auto first = [&](int i) { return in[i].transpose(1, 2); };
    return {
        at::scaled_dot_product_attention(first(0), first(1), first(2), {}, 0.0, /*is_causal=*/true).transpose(1, 2)};
  });
}

Work forward_of(const ReadUnderTest& side) {
  return [side] {
    const at::NoGradGuard no_grad;
    side.read();
  };
}

Work backward_of(const ReadUnderTest& side) {
  const variable_list outputs = side.read();
  return [side, outputs, gradients = random_like(outputs)] {
    torch::autograd::grad(outputs, side.inputs, gradients, /*retain_graph=*/true);
  };
}

Work both_of(const ReadUnderTest& side) {
  return [side, gradients = random_like(side.read())] { torch::autograd::grad(side.read(), side.inputs, gradients); };
}

}  // namespace fem::bench
