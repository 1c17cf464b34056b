#include "fem/io/model_folder.h"

#include <ATen/ATen.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "fem/io/safetensors.h"
#include "io/atomic_file.h"
#include "io/checkpoint_folders.h"
#include "io/checksums.h"
#include "io/language_model_config.h"
#include "util/check.h"

namespace fem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kType = "fem_language_model";
constexpr const char* kWeights = "model.safetensors";

}  // namespace

void save_language_model(const fs::path& folder, const LanguageModel& model) {
  check_free_for_model(folder);
  fs::create_directories(folder);
  Safetensors content;
  for (const auto& parameter : model->named_parameters()) content.tensors[parameter.key()] = parameter->detach();
  content.metadata["format"] = "pt";
  json config = to_json(model->options);
  config["model_type"] = kType;
  save_safetensors(folder / kWeights, content);
  write_atomically(folder / "config.json", [&](std::ostream& file) { file << config.dump(2) << "\n"; });
}

LanguageModelOptions load_language_model_options(const fs::path& folder) {
  const fs::path path = folder / "config.json";
  check_file(path);
  std::ifstream file(path);
  FEM_CHECK(file.good(), "model folder: expected ", path.string(),
            ", but it cannot be read; a model is a folder with config.json and model.safetensors, as fem train makes");
  json config = json::parse(file, nullptr, /*allow_exceptions=*/false);
  FEM_CHECK(config.is_object() && config.value("model_type", json()) == kType, "model folder: expected ", path.string(),
            " to be a JSON object with \"model_type\": \"", kType, "\"; it is another model's or damaged");
  config.erase("model_type");
  try {
    return language_model_options_from_json(config);
  } catch (const c10::Error& error) {
    FEM_CHECK(false, "model folder: ", path.string(), ": ", error.what_without_backtrace());
  }
}

LanguageModel load_language_model(const fs::path& folder) {
  LanguageModel model(load_language_model_options(folder));
  const fs::path path = folder / kWeights;
  check_file(path);
  Safetensors content = load_safetensors(path);
  const at::ScalarType first = content.tensors.empty() ? at::kFloat : content.tensors.begin()->second.scalar_type();
  const at::NoGradGuard no_grad;
  for (auto& parameter : model->named_parameters()) {
    const auto found = content.tensors.find(parameter.key());
    FEM_CHECK(found != content.tensors.end(), "model folder: ", path.string(), " has no ", parameter.key(),
              ", which config.json beside it asks for");
    FEM_CHECK(found->second.sizes() == parameter->sizes(), "model folder: expected ", parameter.key(), " of shape ",
              shape_of(*parameter), " as in config.json, got ", shape_of(found->second), " in ", path.string());
    const at::ScalarType dtype = found->second.scalar_type();
    FEM_CHECK(dtype == first && (dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kDouble),
              "model folder: expected all parameters as float32, all as bfloat16 or all as float64, got ",
              parameter.key(), " as ", dtype, " in ", path.string(),
              "; convert the file (in Python: tensor.float(), which loses nothing of float16)");
    parameter->set_data(found->second);
    content.tensors.erase(found);
  }
  FEM_CHECK(content.tensors.empty(), "model folder: ", path.string(), " holds ", content.tensors.begin()->first,
            ", which config.json beside it does not ask for");
  model->eval();
  return model;
}

fs::path model_folder(const fs::path& folder) {
  const std::vector<CheckpointFolder> checkpoints = checkpoints_of(folder);
  std::error_code none;
  if (fs::exists(folder / kWeights, none)) {
    FEM_CHECK(checkpoints.empty(), "model folder: ", folder.string(),
              " holds a model and the checkpoints of a run; name ", checkpoints.back().folder.string(),
              ", or move the model to a folder of its own");
    return folder;
  }
  FEM_CHECK(!checkpoints.empty() || !fs::is_directory(checkpoints_path(folder), none),
            "model folder: ", folder.string(), " is a training run without any checkpoint yet");
  return checkpoints.empty() ? folder : checkpoints.back().folder;
}

void check_free_for_model(const fs::path& folder) {
  std::error_code none;
  FEM_CHECK(!fs::is_directory(checkpoints_path(folder), none), "model folder: ", folder.string(),
            " is the folder of a training run, whose checkpoints are its models; save to another one");
  FEM_CHECK(!has_checksums(folder), "model folder: ", folder.string(),
            " is a checkpoint, which stays as it was saved; save to another folder");
}

}  // namespace fem
