#include "tasks/parameter_file.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "fem/io/safetensors.h"
#include "io/atomic_file.h"
#include "util/check.h"

namespace fem {
namespace {

constexpr const char* kParameterFile = "model.safetensors";

}  // namespace

void save_parameters(const std::filesystem::path& folder, const NamedParameters& parameters,
                     const nlohmann::json& recipe) {
  std::filesystem::create_directories(folder);
  Safetensors content;
  for (const auto& [name, tensor] : parameters) content.tensors[name] = tensor.detach();
  save_safetensors(folder / kParameterFile, content);
  write_atomically(folder / "config.json", [&](std::ostream& file) { file << recipe.dump(2) << "\n"; });
}

void load_parameters(const std::filesystem::path& folder, const char* who, const NamedParameters& parameters) {
  const at::NoGradGuard no_grad;
  const Safetensors content = load_safetensors(folder / kParameterFile);
  for (const auto& [name, parameter] : parameters) {
    const auto found = content.tensors.find(name);
    FEM_CHECK(found != content.tensors.end() && found->second.sizes() == parameter.sizes(), who,
              ": expected a tensor '", name, "' of shape ", shape_of(parameter), " in ",
              (folder / kParameterFile).string(), "; remove that checkpoint");
    at::Tensor(parameter).copy_(found->second);
  }
}

}  // namespace fem
