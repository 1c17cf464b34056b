// The lines of C++ in the README, as a program.
#include <fem/fem.h>
#include <torch/torch.h>

int main() {
  const torch::Tensor q = torch::randn({1, 64, 8, 32}), k = torch::randn({1, 64, 8, 32});  // [B, T, H, *]
  const torch::Tensor v = torch::randn({1, 64, 8, 16}), beta = torch::ones({8, 16});

  fem::MixerOptions options{.n_embd = 512, .n_head = 8};  // the authors' names and defaults
  fem::FreeEnergyMixer mixer(options);                    // a torch::nn module, the authors' parameter names
  torch::Tensor x = torch::randn({2, 128, 512});
  torch::Tensor y = mixer(x);  // train: y.sum().backward()

  fem::MixerState state;  // stream: any split gives what one call gives
  for (int64_t t = 0; t < 128; ++t) torch::Tensor yt = mixer->forward(x.slice(1, t, t + 1), state);
  fem::MixerState branch = state;  // a cheap snapshot: roll back, fork, reorder, save

  fem::SoftmaxRead read = fem::softmax_read(q, k, v, beta, {.window = 256});  // the read alone
  options.prior_type = fem::PriorType::kGla;  // or kLinear, kRnnSoftmax, kRnnDecay, kMamba: linear time

  y.sum().backward();
  return y.sizes() == x.sizes() && branch.tokens == 128 && read.mean.sizes() == v.sizes() ? 0 : 1;
}
