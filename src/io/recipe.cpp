#include "io/recipe.h"

#include <cstring>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "io/toml.h"
#include "util/check.h"
#include "util/nearest.h"
#include "util/shared_files.h"

namespace fem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kDeepest = 8;
constexpr const char* kSuffix = ".toml";
constexpr const char* kUnnamedFolder = "lm";  // of the recipes that are called without their folder

// Also false of what can be no file's name, such as one that is too long.
bool is_file(const fs::path& path) {
  std::error_code none;
  return fs::is_regular_file(path, none);
}

json load(const fs::path& path, int depth) {
  FEM_CHECK(depth < kDeepest, "recipe: ", path.string(), " starts from itself or from more than ", kDeepest,
            " others by base = ...");
  FEM_CHECK(is_file(path), "recipe: expected a TOML file, but there is none at ", path.string());
  json own = read_toml(path, "recipe");
  if (!own.contains("base")) return own;
  FEM_CHECK(own["base"].is_string(), "recipe: ", path.string(), ": expected base to be the name of a recipe, got ",
            own["base"].dump());
  json whole = load(find_recipe(own["base"].get<std::string>(), path.parent_path()), depth + 1);
  own.erase("base");
  whole.merge_patch(own);
  return whole;
}

json value_of(const std::string& text) {
  try {
    return parse_toml("value = " + text, "--set").at("value");
  } catch (const c10::Error&) {
    return text;
  }
}

}  // namespace

json load_recipe(const fs::path& path) { return load(path, 0); }

std::vector<std::string> shipped_recipes() {
  std::set<std::string> names;
  const fs::path configs = shared_files() / "configs";
  const auto through_links = fs::directory_options::follow_directory_symlink;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(configs, through_links)) {
    if (entry.path().extension() != kSuffix) continue;
    const fs::path folder = entry.path().parent_path().filename();
    names.insert(folder == kUnnamedFolder ? entry.path().stem().string() : (folder / entry.path().stem()).string());
  }
  return {names.begin(), names.end()};
}

fs::path find_recipe(const std::string& name, const fs::path& relative_to) {
  const bool is_named_file = name.ends_with(kSuffix);
  if (is_named_file && is_file(relative_to / name)) return relative_to / name;
  const std::string shipped = is_named_file ? name.substr(0, name.size() - std::strlen(kSuffix)) : name;
  const fs::path configs = shared_files() / "configs";
  for (const fs::path& folder : {configs / kUnnamedFolder, configs})
    if (const fs::path path = folder / (shipped + kSuffix); is_file(path)) return path;
  const std::vector<std::string> names = shipped_recipes();
  FEM_CHECK(!is_named_file, "recipe: expected a TOML file, but there is none at ", (relative_to / name).string(),
            " nor among the shipped ones", did_you_mean(shipped, names));
  std::string known;
  for (const std::string& one : names) known += (known.empty() ? "" : ", ") + one;
  FEM_CHECK(false, "recipe: expected a .toml file or one of ", known, "; got '", name, "'",
            did_you_mean(shipped, names));
}

void set_value(json& recipe, const std::string& assignment) {
  const size_t equals = assignment.find('=');
  FEM_CHECK(equals != std::string::npos && equals > 0, "--set: expected name=value, such as train.steps=500, got '",
            assignment, "'");
  try {
    static_cast<void>(json(assignment).dump());
  } catch (const json::exception&) {
    FEM_CHECK(false, "--set: expected UTF-8 text, got bytes that are none in a value for ",
              assignment.substr(0, equals));
  }
  json* place = &recipe;
  int depth = 0;
  std::istringstream path(assignment.substr(0, equals));
  for (std::string name; std::getline(path, name, '.');) {
    FEM_CHECK(++depth <= kDeepestToml, "--set: expected a name of at most ", kDeepestToml, " parts, got more");
    FEM_CHECK(place->is_object() || place->is_null(), "--set ", assignment, ": a plain value stands where ", name,
              " would have to be");
    place = &(*place)[name];
  }
  *place = value_of(assignment.substr(equals + 1));
}

}  // namespace fem
