// Parameters before they are tensors: declared, drawn, registered.
#pragma once

#include <ATen/core/Generator.h>

#include <optional>
#include <string>
#include <vector>

#include "fem/mixer.h"
#include "io/safetensors_header.h"

namespace fem {

constexpr double kLinearDeviation = 0.02;  // of initial weights

// "name.weight" [out, in], normal, which decays, and "name.bias" [out], zero, if there is a bias.
void declare_linear(std::vector<ParameterSpec>& specs, const std::string& name, int64_t in, int64_t out, bool bias);

// What a parameter starts as; torch's default generator unless one is given.
at::Tensor initial_value(const ParameterSpec& spec, std::optional<at::Generator> generator = std::nullopt);

// Refuses a file unless its tensors are these parameters and nothing else. source: who asks for them, in words.
void check_stored(const SafetensorsHeader& header, const std::vector<ParameterSpec>& specs, const std::string& source);

// Registers "tdc.fwd.ln.weight" as parameter "weight" of module "ln" of module "fwd" of module "tdc" of root.
at::Tensor& register_dotted(torch::nn::Module& root, const std::string& name, at::Tensor parameter);

// Registers all of them as they start and returns them in their order.
std::vector<at::Tensor> register_parameters(torch::nn::Module& root, const std::vector<ParameterSpec>& specs);

}  // namespace fem
