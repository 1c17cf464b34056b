// A mixer in C++, for comparison: output and gradients of y.square().sum() for a mixer and an input from files.
// usage: run_mixer MIXER.safetensors INPUT.safetensors OUTPUT.safetensors [SEED]
// With a seed the mixer starts afresh from it, as a new module does. The mixer is saved again beside the output.
#include <ATen/ATen.h>
#include <fem/fem.h>

#include <filesystem>
#include <iostream>

namespace {

void run(const std::filesystem::path& mixer_path, const std::filesystem::path& input_path,
         const std::filesystem::path& output_path, const char* seed) {
  fem::FreeEnergyMixer mixer = fem::load_mixer(mixer_path);
  if (seed) {
    at::manual_seed(std::stoull(seed));
    mixer = fem::FreeEnergyMixer(mixer->options);
  }
  const auto input = fem::load_safetensors(input_path).tensors;
  at::Tensor x = input.at("x").clone().requires_grad_();
  fem::Batch batch;
  if (input.count("mask")) batch.mask = input.at("mask");

  mixer->eval();
  const at::Tensor y = mixer->forward(x, batch);
  y.square().sum().backward();

  fem::Safetensors output;
  output.tensors = {{"y", y.detach().contiguous()}, {"grad.x", x.grad().contiguous()}};
  for (const auto& parameter : mixer->named_parameters())
    if (parameter->grad().defined()) output.tensors["grad." + parameter.key()] = parameter->grad().contiguous();
  fem::save_safetensors(output_path, output);
  fem::save_mixer(output_path.parent_path() / "mixer.safetensors", mixer);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4 || argc > 5) {
    std::cerr << "usage: run_mixer MIXER INPUT OUTPUT [SEED]\n";
    return 2;
  }
  try {
    run(argv[1], argv[2], argv[3], argc == 5 ? argv[4] : nullptr);
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  return 0;
}
