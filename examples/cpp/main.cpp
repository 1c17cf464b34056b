// A mixer on its own: a whole sequence at once, then the same sequence token by token.
#include <fem/fem.h>
#include <torch/torch.h>

#include <iostream>

int main() {
  torch::NoGradGuard no_grad;
  fem::MixerOptions options;
  options.n_embd = 512;
  options.n_head = 8;
  fem::FreeEnergyMixer mixer(options);

  const torch::Tensor x = torch::randn({2, 128, 512});
  const torch::Tensor whole = mixer(x);

  fem::MixerState state;
  double difference = 0;
  for (int64_t t = 0; t < 128; ++t) {
    const torch::Tensor y = mixer->forward(x.slice(1, t, t + 1), state);
    difference = std::max(difference, (y - whole.slice(1, t, t + 1)).abs().max().item<double>());
  }
  std::cout << "output " << whole.sizes() << ", token by token differs by " << difference << '\n';
  return difference < 1e-5 ? 0 : 1;
}
