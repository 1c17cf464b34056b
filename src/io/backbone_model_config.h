// The JSON of models whose options are the backbone's and some of their own, which a visitor names.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>

#include "io/language_model_config.h"
#include "io/options_json.h"

namespace fem {

template <typename Options, typename Visit>
nlohmann::json backbone_model_to_json(const Options& options, Visit visit_own) {
  nlohmann::json out = to_json(static_cast<const BackboneOptions&>(options));
  visit_own(options, [&](const char* name, const auto& value, const char*) { write_option(out[name], value); });
  return out;
}

// whose: "forecaster options", for the sentences.
template <typename Options, typename Visit>
Options backbone_model_from_json(const nlohmann::json& in, const char* whose, Visit visit_own) {
  Options options;
  nlohmann::json own = nlohmann::json::object(), rest = in;
  visit_own(options, [&](const char* name, const auto&, const char*) {
    if (!in.is_object() || !in.contains(name)) return;
    own[name] = in[name];
    rest.erase(name);
  });
  OptionsReader reader(whose, own);
  visit_own(options, reader);
  static_cast<BackboneOptions&>(options) = backbone_options_from_json(rest);
  return options;
}

// config.json of a model of that type without the type; none of the fields absent.
inline nlohmann::json fields_of_config(nlohmann::json config, const char* type,
                                       std::initializer_list<const char*> fields) {
  FEM_CHECK(config.is_object() && config.value("model_type", nlohmann::json()) == type,
            "expected a JSON object with \"model_type\": \"", type, "\"; it is another model's or damaged");
  config.erase("model_type");
  for (const char* name : fields) FEM_CHECK(config.contains(name), "expected the field ", name, ", which is missing");
  return config;
}

}  // namespace fem
