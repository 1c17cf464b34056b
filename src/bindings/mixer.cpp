// The layer as operators, for languages that hold the parameters themselves: torch.ops.fem.mix and its company.
// A configuration travels as the JSON text of its fields, parameters as a list in the order of mixer_parameters.
#include "fem/mixer.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <nlohmann/json.hpp>
#include <unordered_map>

#include "bindings/state.h"
#include "fem/io/safetensors.h"
#include "fem/letters.h"
#include "io/mixer_config.h"
#include "mixer/file.h"
#include "mixer/parameters.h"
#include "nn/parameters.h"
#include "ops/operator.h"
#include "util/check.h"

namespace fem {
namespace {

MixerOptions parsed(std::string_view config) {
  const auto json = nlohmann::json::parse(config, nullptr, /*allow_exceptions=*/false);
  FEM_CHECK(!json.is_discarded(), "mixer options: expected a JSON object, got ", config);
  const MixerOptions options = mixer_options_from_json(json);
  sizes_of(options);  // checks
  return options;
}

// Parsed once per thread and text, so that a call of the layer does not.
const MixerOptions& options_of(std::string_view config) {
  static thread_local std::unordered_map<std::string, MixerOptions> known;
  const std::string text(config);
  const auto found = known.find(text);
  return found != known.end() ? found->second : known.emplace(text, parsed(config)).first->second;
}

MixerWeights bind(const MixerOptions& options, at::TensorList parameters) {
  MixerWeights weights;
  size_t used = 0;
  visit_parameters(options, weights, [&](const ParameterSpec& spec, at::Tensor& slot) {
    FEM_CHECK(used < parameters.size(), "mixer: expected ", spec.name, " after ", used, " parameters, got no more");
    const at::Tensor& parameter = parameters[used++];
    FEM_CHECK(parameter.sizes() == spec.shape, "mixer: expected ", spec.name, " of shape ", at::IntArrayRef(spec.shape),
              ", got ", shape_of(parameter));
    slot = parameter;
  });
  FEM_CHECK(used == parameters.size(), "mixer: expected ", used, " parameters, got ", parameters.size());
  return weights;
}

at::Tensor mix_whole(const at::Tensor& x, at::TensorList parameters, std::string_view config,
                     const OptionalTensor& mask, const OptionalTensor& cu_seqlens, bool training) {
  const MixerOptions& options = options_of(config);
  return mix(x, bind(options, parameters), options, {mask, cu_seqlens}, nullptr, training);
}

at::Tensor mix_with_state(const at::Tensor& x, at::TensorList parameters, std::string_view config,
                          const c10::intrusive_ptr<StateHandle>& state, const OptionalTensor& mask, bool training) {
  const MixerOptions& options = options_of(config);
  return mix(x, bind(options, parameters), options, {mask, std::nullopt}, &state->state, training);
}

std::string mixer_config(std::string_view config) { return to_json(options_of(config)).dump(); }

std::tuple<std::vector<std::string>, std::vector<at::Tensor>> parameters_of(std::string_view config) {
  std::vector<std::string> names;
  std::vector<at::Tensor> shapes;
  for (const ParameterSpec& spec : mixer_parameters(options_of(config))) {
    names.push_back(spec.name);
    shapes.push_back(at::empty(spec.shape, at::kMeta));
  }
  return {std::move(names), std::move(shapes)};
}

std::tuple<std::string, int64_t, int64_t, std::string> letters_of(std::string_view config, std::string_view letters) {
  const LetterChoice choice = with_letters(options_of(config), letters);
  return {to_json(choice.options).dump(), choice.parameters, choice.full_parameters, choice.words()};
}

// One after the other from torch's default generator, as the C++ module does: one seed gives both the same weights.
void initialize(at::TensorList parameters, std::string_view config) {
  const at::NoGradGuard no_gradients;
  const MixerOptions& options = options_of(config);
  bind(options, parameters);  // checks
  size_t next = 0;
  for (const ParameterSpec& spec : mixer_parameters(options)) {
    const at::Tensor& parameter = parameters[next++];
    if (!parameter.is_meta()) parameter.copy_(initial_value(spec));
  }
}

void save(std::string_view path, at::TensorList parameters, std::string_view config) {
  const MixerOptions& options = options_of(config);
  bind(options, parameters);  // checks
  write_mixer_file(path, {options, parameters.vec()});
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

TORCH_LIBRARY_FRAGMENT(fem, m) {
  register_state(m);
  m.def(
      "mix(Tensor x, Tensor[] parameters, str config, Tensor? mask=None, Tensor? cu_seqlens=None, "
      "bool training=False) -> Tensor",
      mix_whole);
  m.def(
      "mix_with_state(Tensor x, Tensor[] parameters, str config, __torch__.torch.classes.fem.MixerState state, "
      "Tensor? mask=None, bool training=False) -> Tensor",
      mix_with_state);
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
