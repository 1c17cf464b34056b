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
#include "io/language_model_config.h"
#include "ops/operator.h"
#include "util/check.h"

namespace fem {
namespace {

nlohmann::json backbone_json(const char* whose, std::string_view config) {
  auto json = nlohmann::json::parse(config, nullptr, /*allow_exceptions=*/false);
  FEM_CHECK(!json.is_discarded(), whose, ": expected a JSON object, got ", config);
  return json;
}

struct BackboneConfig {
  BackboneOptions options;
  std::vector<ParameterSpec> parameters;
};

BackboneConfig parsed_backbone(std::string_view config) {
  const BackboneOptions options = backbone_options_from_json(backbone_json("backbone options", config));
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

LanguageModelConfig parsed_language_model(std::string_view config) {
  const LanguageModelOptions options =
      language_model_options_from_json(backbone_json("language model options", config));
  return {options, language_model_parameters(options)};
}

// Every field, checked.
std::string language_model_config(std::string_view config) {
  return to_json(parsed_language_model(config).options).dump();
}

NamesAndShapes language_model_names(std::string_view config) {
  return names_and_shapes(parsed_once<parsed_language_model>(config).parameters);
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
}

}  // namespace fem
