#include <nlohmann/json.hpp>

#include "fem/language_model.h"
#include "fem/text/tokenizer.h"
#include "io/json.h"
#include "io/language_model_config.h"
#include "io/mixer_config.h"
#include "io/recipe.h"
#include "io/toml.h"
#include "readers.h"
#include "tasks/table.h"
#include "train/grid.h"

namespace fem::fuzz {
namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void json(const std::string& bytes) {
  const nlohmann::json value = parse_json(bytes, "fuzz");
  require(parse_json(value.dump(), "fuzz") == value);
  require(json_if_whole<nlohmann::ordered_json>(bytes).has_value());
}

void toml(const std::string& bytes) {
  const nlohmann::json value = parse_toml(bytes, "fuzz");
  require(parse_json(value.dump(), "fuzz") == value);
}

// What passes the check has shapes whose sizes can be multiplied and summed.
void model_config(const std::string& bytes) {
  LanguageModelOptions options = options_of_model_config(parse_json(bytes, "fuzz"));
  check(options);
  require(to_json(language_model_options_from_json(to_json(options))) == to_json(options));
  options.n_layer = 1;
  const int64_t one = parameter_count(language_model_parameters(options));
  require(one > 0 && one < INT64_MAX / kMostLayers);
}

void mixer_config(const std::string& bytes) {
  const MixerOptions options = mixer_options_from_json(parse_json(bytes, "fuzz"));
  const MixerSizes sizes = sizes_of(options);
  require(sizes.value > 0 && sizes.value == sizes.head_value * options.n_head);
  require(parameter_count(mixer_parameters(options)) > 0);
}

void tokenizer_json(const std::string& bytes) { load_tokenizer(file_of(bytes, "tokenizer.json").parent_path()); }

void recipe(const std::string& bytes) {
  nlohmann::json recipe = load_recipe(file_of(bytes, "recipe.toml"));
  const size_t end = bytes.find('\n');
  if (bytes.starts_with("#--set ")) set_value(recipe, bytes.substr(7, end == std::string::npos ? end : end - 7));
  recipe_from_json(recipe);
}

void grid(const std::string& bytes) {
  file_of("[train]\nsteps = 10\n", "base.toml");
  const Grid grid = load_grid(file_of(bytes, "grid.toml"));
  for (size_t cell = 0; cell < grid.cells.size() && cell < 4; ++cell) run_of(grid, cell, 0, grid.seeds[0]).steps();
}

}  // namespace

const std::vector<Reader>& configuration_readers() {
  static const std::vector<Reader> readers{
      {"json", json},     {"toml", toml}, {"model_config", model_config},    {"mixer_config", mixer_config},
      {"recipe", recipe}, {"grid", grid}, {"tokenizer_json", tokenizer_json}};
  return readers;
}

}  // namespace fem::fuzz
