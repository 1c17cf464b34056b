#include "mixer/file.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "fem/io/mixer_file.h"
#include "io/json.h"
#include "io/mixer_config.h"
#include "io/safetensors_header.h"
#include "nn/parameters.h"
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
  MixerFile file;
  std::vector<ParameterSpec> specs;
  Safetensors content = load_safetensors(path, "load_mixer", [&](const SafetensorsHeader& header) {
    const auto options = header.metadata.find(kOptions);
    FEM_CHECK(options != header.metadata.end(), "it holds tensors but no mixer options (metadata \"", kOptions,
              "\"); weights of another program need their configuration: load_safetensors, or fem.load_reference in "
              "Python");
    file.options = mixer_options_from_json(parse_json(options->second, "its mixer options"));
    specs = mixer_parameters(file.options);
    check_stored(header, specs, "its own options; the file is damaged");
  });
  for (const ParameterSpec& spec : specs) file.parameters.push_back(std::move(content.tensors.at(spec.name)));
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
