#include "io/language_model_config.h"

#include "io/mixer_config.h"
#include "io/options_json.h"

namespace fem {

using nlohmann::json;

json to_json(const LanguageModelOptions& options) {
  json out = json::object();
  visit_language_model_options(
      options, [&](const char* name, const auto& value, const char*) { write_option(out[name], value); });
  out["mixer"] = to_json(options.mixer);
  for (const char* name : {"n_embd", "n_head"}) out["mixer"].erase(name);
  return out;
}

LanguageModelOptions language_model_options_from_json(const json& in) {
  LanguageModelOptions options;
  OptionsReader reader("language model options", in);
  visit_language_model_options(options, reader);
  reader.skip("mixer");
  reader.finish();
  if (in.contains("mixer")) {
    const json& mixer = in["mixer"];
    for (const char* name : {"n_embd", "n_head"})
      FEM_CHECK(!mixer.is_object() || !mixer.contains(name), "language model options: mixer.", name,
                " follows the model's; set ", name, " there");
    options.mixer = mixer_options_from_json(mixer);
  }
  options.mixer.n_embd = options.n_embd;
  options.mixer.n_head = options.n_head;
  return options;
}

}  // namespace fem
