#include "mixer/file.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "fem/io/mixer_file.h"
#include "fem/io/safetensors.h"
#include "io/mixer_config.h"
#include "util/check.h"

namespace fem {
namespace {

const std::string kOptions = "fem.mixer";

}  // namespace

void write_mixer_file(const std::filesystem::path& path, const MixerFile& file) {
  const std::vector<ParameterSpec> specs = mixer_parameters(file.options);
  Safetensors content;
  for (size_t i = 0; i < specs.size(); ++i)
    content.tensors[specs[i].name] = file.parameters[i].detach().to(at::kCPU).contiguous();
  content.metadata[kOptions] = to_json(file.options).dump();
  save_safetensors(path, content);
}

MixerFile read_mixer_file(const std::filesystem::path& path) {
  Safetensors content = load_safetensors(path);
  FEM_CHECK(content.metadata.count(kOptions), "load_mixer: ", path, " holds tensors but no mixer options (metadata \"",
            kOptions,
            "\"); weights of another program need their configuration: load_safetensors, or fem.load_reference "
            "in Python");
  const auto json = nlohmann::json::parse(content.metadata[kOptions], nullptr, /*allow_exceptions=*/false);
  FEM_CHECK(!json.is_discarded(), "load_mixer: the mixer options in ", path, " are not JSON");

  MixerFile file{mixer_options_from_json(json), {}};
  for (const ParameterSpec& spec : mixer_parameters(file.options)) {
    const auto found = content.tensors.find(spec.name);
    FEM_CHECK(found != content.tensors.end(), "load_mixer: ", path, " has no ", spec.name,
              ", which its own options ask for; the file is damaged");
    FEM_CHECK(found->second.sizes() == spec.shape, "load_mixer: expected ", spec.name, " of shape ",
              at::IntArrayRef(spec.shape), " in ", path, ", got ", shape_of(found->second));
    file.parameters.push_back(std::move(found->second));
    content.tensors.erase(found);
  }
  FEM_CHECK(content.tensors.empty(), "load_mixer: ", path, " holds ", content.tensors.begin()->first,
            ", which its own options do not ask for; the file is damaged");
  return file;
}

void save_mixer(const std::filesystem::path& path, const FreeEnergyMixer& mixer) {
  const auto named = mixer->named_parameters();
  MixerFile file{mixer->options, {}};
  for (const ParameterSpec& spec : mixer_parameters(mixer->options)) file.parameters.push_back(named[spec.name]);
  write_mixer_file(path, file);
}

FreeEnergyMixer load_mixer(const std::filesystem::path& path) {
  const MixerFile file = read_mixer_file(path);
  FreeEnergyMixer mixer(file.options);
  auto named = mixer->named_parameters();
  const std::vector<ParameterSpec> specs = mixer_parameters(file.options);
  for (size_t i = 0; i < specs.size(); ++i) named[specs[i].name].set_data(file.parameters[i]);
  return mixer;
}

}  // namespace fem
