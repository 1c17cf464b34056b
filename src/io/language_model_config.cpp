#include "io/language_model_config.h"

#include "io/backbone_model_config.h"
#include "io/mixer_config.h"
#include "io/options_json.h"

namespace fem {
namespace {

using nlohmann::json;

constexpr const char* kType = "fem_language_model";

json mixer_table(const MixerOptions& options) {
  json out = to_json(options);
  for (const std::string_view name : kFromTheModel) out.erase(std::string(name));
  return out;
}

void read_mixer_table(const std::string& whose, const json& in, BackboneOptions& options) {
  if (in.contains("mixer")) {
    const json& mixer = in["mixer"];
    for (const std::string_view name : kFromTheModel)
      FEM_CHECK(!mixer.is_object() || !mixer.contains(std::string(name)), whose, ": mixer.", name,
                " follows the model's; set ", name, " there");
    options.mixer = mixer_options_from_json(mixer);
  }
  options.mixer.n_embd = options.n_embd;
  options.mixer.n_head = options.n_head;
}

}  // namespace

json to_json(const LanguageModelOptions& options) {
  json out = json::object();
  visit_language_model_options(
      options, [&](const char* name, const auto& value, const char*) { write_option(out[name], value); });
  out["mixer"] = mixer_table(options.mixer);
  return out;
}

json to_json(const BackboneOptions& options) {
  json out = json::object();
  visit_backbone_options(options,
                         [&](const char* name, const auto& value, const char*) { write_option(out[name], value); });
  out["mixer"] = mixer_table(options.mixer);
  return out;
}

LanguageModelOptions language_model_options_from_json(const json& in) {
  const std::string whose = "language model options";
  LanguageModelOptions options;
  OptionsReader reader(whose, in);
  visit_language_model_options(options, reader);
  reader.skip("mixer");
  reader.finish();
  read_mixer_table(whose, in, options);
  return options;
}

json model_config(const LanguageModelOptions& options) {
  json config = to_json(options);
  config["model_type"] = kType;
  return config;
}

LanguageModelOptions options_of_model_config(json config) {
  return language_model_options_from_json(
      fields_of_config(std::move(config), kType, {"vocab_size", "n_embd", "n_head", "n_layer", "mlp_width"}));
}

BackboneOptions backbone_options_from_json(const json& in) {
  const std::string whose = "backbone options";
  BackboneOptions options;
  OptionsReader reader(whose, in);
  visit_backbone_options(options, reader);
  reader.skip("mixer");
  reader.finish();
  read_mixer_table(whose, in, options);
  return options;
}

}  // namespace fem
