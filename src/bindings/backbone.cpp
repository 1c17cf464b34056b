// The backbone as operators, as the layer is in mixer.cpp: torch.ops.fem.backbone and its company.
#include "models/backbone.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <nlohmann/json.hpp>

#include "bindings/language_model.h"
#include "bindings/library.h"
#include "bindings/parameters.h"
#include "bindings/state.h"
#include "fem/language_model.h"
#include "io/json.h"
#include "io/language_model_config.h"
#include "models/model_folder.h"
#include "ops/operator.h"
#include "util/check.h"

namespace fem {
namespace {

struct BackboneConfig {
  BackboneOptions options;
  std::vector<ParameterSpec> parameters;
};

BackboneConfig parsed_backbone(std::string_view config) {
  const BackboneOptions options = backbone_options_from_json(parse_json(config, "backbone options"));
  return {options, backbone_parameters(options)};
}

const BackboneConfig& checked_backbone(std::string_view config, at::TensorList parameters) {
  const BackboneConfig& backbone = parsed_once<parsed_backbone>(config);
  check_parameters("backbone", backbone.parameters, parameters);
  return backbone;
}

at::Tensor run_backbone(const at::Tensor& x, at::TensorList parameters, std::string_view config,
                        const BoundBackbone::Call& call) {
  const BackboneConfig& backbone = checked_backbone(config, parameters);
  return BoundBackbone(backbone.options, parameters.vec())(x, call);
}

at::Tensor backbone_whole(const at::Tensor& x, at::TensorList parameters, std::string_view config,
                          const OptionalTensor& mask, const OptionalTensor& cu_seqlens, bool training) {
  return run_backbone(x, parameters, config, {.batch = {mask, cu_seqlens}, .training = training});
}

using StateHandles = c10::List<c10::intrusive_ptr<StateHandle>>;

at::Tensor backbone_with_states(const at::Tensor& x, at::TensorList parameters, std::string_view config,
                                const StateHandles& states, const OptionalTensor& mask, bool training) {
  BackboneState state;
  for (const c10::intrusive_ptr<StateHandle>& handle : states) state.layers.push_back(handle->state);
  FEM_CHECK(!states.empty(), "backbone: expected a state for every layer, got none; start from new ones");
  const at::Tensor y =
      run_backbone(x, parameters, config, {.batch = {mask, std::nullopt}, .state = &state, .training = training});
  for (size_t i = 0; i < states.size(); ++i) states.get(i)->state = std::move(state.layers[i]);
  return y;
}

NamesAndShapes backbone_names(std::string_view config) {
  return names_and_shapes(parsed_once<parsed_backbone>(config).parameters);
}

void initialize_backbone(at::TensorList parameters, std::string_view config) {
  initialize_parameters(checked_backbone(config, parameters).parameters, parameters);
}

struct LanguageModelConfig {
  LanguageModelOptions options;
  std::vector<ParameterSpec> parameters;
};

LanguageModelOptions checked_options(std::string_view config) {
  const LanguageModelOptions options = language_model_options_from_json(parse_json(config, "language model options"));
  check(options);
  return options;
}

LanguageModelConfig parsed_language_model(std::string_view config) {
  const LanguageModelOptions options = checked_options(config);
  return {options, language_model_parameters(options)};
}

// Every field, checked.
std::string language_model_config(std::string_view config) { return to_json(checked_options(config)).dump(); }

NamesAndShapes language_model_names(std::string_view config) {
  return names_and_shapes(parsed_once<parsed_language_model>(config).parameters);
}

// The same of the text of config.json.
std::string config_of_folder(std::string_view text) {
  const LanguageModelOptions options = options_of_model_config(parse_json(text, "language model options"));
  check(options);
  return to_json(options).dump();
}

std::tuple<c10::Dict<std::string, at::Tensor>, std::string> load_folder(std::string_view folder) {
  const LanguageModelFile file = read_language_model(folder);
  c10::Dict<std::string, at::Tensor> parameters;
  for (const auto& [name, tensor] : file.parameters) parameters.insert(name, tensor);
  return {parameters, to_json(file.options).dump()};
}

}  // namespace

std::shared_ptr<const BoundLanguageModel> bound_language_model(std::string_view config, at::TensorList parameters) {
  const LanguageModelConfig& model = parsed_once<parsed_language_model>(config);
  check_parameters("language model", model.parameters, parameters);
  return std::make_shared<BoundLanguageModel>(model.options, parameters.vec());
}

void register_backbone(torch::Library& m) {
  m.def(
      "backbone(Tensor x, Tensor[] parameters, str config, Tensor? mask=None, Tensor? cu_seqlens=None, "
      "bool training=False) -> Tensor",
      backbone_whole);
  m.def(
      "backbone_with_states(Tensor x, Tensor[] parameters, str config, "
      "__torch__.torch.classes.fem.MixerState[] states, Tensor? mask=None, bool training=False) -> Tensor",
      backbone_with_states);
  m.def("backbone_parameters(str config) -> (str[] names, Tensor[] shapes)", backbone_names);
  m.def("initialize_backbone(Tensor(a!)[] parameters, str config) -> ()", initialize_backbone);
  m.def("language_model_config(str config) -> str", language_model_config);
  m.def("language_model_parameters(str config) -> (str[] names, Tensor[] shapes)", language_model_names);
  m.def("model_folder_config(str text) -> str", config_of_folder);
  m.def("load_language_model(str folder) -> (Dict(str, Tensor) parameters, str config)", load_folder);
}

}  // namespace fem
