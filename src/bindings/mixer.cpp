// The layer as operators, for languages that hold the parameters themselves: torch.ops.fem.mix and its company.
#include "fem/mixer.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <nlohmann/json.hpp>

#include "bindings/library.h"
#include "bindings/parameters.h"
#include "bindings/state.h"
#include "fem/inspect.h"
#include "fem/io/safetensors.h"
#include "fem/letters.h"
#include "io/json.h"
#include "io/mixer_config.h"
#include "mixer/file.h"
#include "mixer/parameters.h"
#include "nn/parameters.h"
#include "ops/operator.h"
#include "util/check.h"

namespace fem {
namespace {

struct MixerConfig {
  MixerOptions options;
  std::vector<ParameterSpec> parameters;
};

MixerConfig parsed_mixer(std::string_view config) {
  const MixerOptions options = mixer_options_from_json(parse_json(config, "mixer options"));
  sizes_of(options);  // checks
  return {options, mixer_parameters(options)};
}

const MixerOptions& options_of(std::string_view config) { return parsed_once<parsed_mixer>(config).options; }

const std::vector<ParameterSpec>& checked_specs(std::string_view config, at::TensorList parameters) {
  const std::vector<ParameterSpec>& specs = parsed_once<parsed_mixer>(config).parameters;
  check_parameters("mixer", specs, parameters);
  return specs;
}

MixerWeights bind(std::string_view config, at::TensorList parameters) {
  checked_specs(config, parameters);
  MixerWeights weights;
  auto next = parameters.begin();
  visit_parameters(options_of(config), weights, [&](const ParameterSpec&, at::Tensor& slot) { slot = *next++; });
  return weights;
}

at::Tensor mix_whole(const at::Tensor& x, at::TensorList parameters, std::string_view config,
                     const OptionalTensor& mask, const OptionalTensor& cu_seqlens, bool training) {
  return mix(x, bind(config, parameters), options_of(config), {mask, cu_seqlens}, nullptr, training);
}

at::Tensor mix_with_state(const at::Tensor& x, at::TensorList parameters, std::string_view config,
                          const c10::intrusive_ptr<StateHandle>& state, const OptionalTensor& mask, bool training) {
  return mix(x, bind(config, parameters), options_of(config), {mask, std::nullopt}, &state->state, training);
}

c10::Dict<std::string, at::Tensor> inspect_mixer(const at::Tensor& x, at::TensorList parameters,
                                                 std::string_view config, at::IntArrayRef positions,
                                                 const OptionalTensor& mask, const OptionalTensor& cu_seqlens) {
  const Inspection looked =
      inspect(x, bind(config, parameters), options_of(config), positions.vec(), {mask, cu_seqlens});
  c10::Dict<std::string, at::Tensor> fields;
  visit_inspection(looked, [&](const char* name, const at::Tensor& field) {
    if (field.defined()) fields.insert(name, field);
  });
  return fields;
}

std::string mixer_config(std::string_view config) { return to_json(options_of(config)).dump(); }

NamesAndShapes parameters_of(std::string_view config) {
  return names_and_shapes(parsed_once<parsed_mixer>(config).parameters);
}

std::tuple<std::string, int64_t, int64_t, std::string> letters_of(std::string_view config, std::string_view letters) {
  const LetterChoice choice = with_letters(options_of(config), letters);
  return {to_json(choice.options).dump(), choice.parameters, choice.full_parameters, choice.words()};
}

void initialize(at::TensorList parameters, std::string_view config) {
  initialize_parameters(checked_specs(config, parameters), parameters);
}

void save(std::string_view path, at::TensorList parameters, std::string_view config) {
  checked_specs(config, parameters);
  write_mixer_file(path, {options_of(config), parameters.vec()});
}

c10::Dict<std::string, at::Tensor> tensors_in(std::string_view path) {
  c10::Dict<std::string, at::Tensor> tensors;
  for (const auto& [name, tensor] : load_safetensors(path).tensors) tensors.insert(name, tensor);
  return tensors;
}

void save_tensors(std::string_view path, const c10::Dict<std::string, at::Tensor>& tensors,
                  const c10::Dict<std::string, std::string>& metadata) {
  Safetensors content;
  for (const auto& entry : tensors) content.tensors.emplace(entry.key(), entry.value());
  for (const auto& entry : metadata) content.metadata.emplace(entry.key(), entry.value());
  save_safetensors(path, content);
}

std::tuple<std::vector<at::Tensor>, std::string> load(std::string_view path) {
  MixerFile file = read_mixer_file(path);
  return {std::move(file.parameters), to_json(file.options).dump()};
}

}  // namespace

void register_mixer(torch::Library& m) {
  m.def(
      "mix(Tensor x, Tensor[] parameters, str config, Tensor? mask=None, Tensor? cu_seqlens=None, "
      "bool training=False) -> Tensor",
      mix_whole);
  m.def(
      "mix_with_state(Tensor x, Tensor[] parameters, str config, __torch__.torch.classes.fem.MixerState state, "
      "Tensor? mask=None, bool training=False) -> Tensor",
      mix_with_state);
  m.def(
      "inspect_mixer(Tensor x, Tensor[] parameters, str config, int[] positions, Tensor? mask=None, "
      "Tensor? cu_seqlens=None) -> Dict(str, Tensor)",
      inspect_mixer);
  m.def("mixer_config(str config) -> str", mixer_config);
  m.def("mixer_parameters(str config) -> (str[] names, Tensor[] shapes)", parameters_of);
  m.def("mixer_letters(str config, str letters) -> (str config, int parameters, int full_parameters, str words)",
        letters_of);
  m.def("initialize_mixer(Tensor(a!)[] parameters, str config) -> ()", initialize);
  m.def("save_mixer(str path, Tensor[] parameters, str config) -> ()", save);
  m.def("load_safetensors(str path) -> Dict(str, Tensor)", tensors_in);
  m.def("save_safetensors(str path, Dict(str, Tensor) tensors, Dict(str, str) metadata) -> ()", save_tensors);
  m.def("load_mixer(str path) -> (Tensor[] parameters, str config)", load);
}

}  // namespace fem
