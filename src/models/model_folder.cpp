#include "models/model_folder.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "io/atomic_file.h"
#include "io/checkpoint_folders.h"
#include "io/checksums.h"
#include "io/forecaster_config.h"
#include "io/image_classifier_config.h"
#include "io/json.h"
#include "io/language_model_config.h"
#include "io/safetensors_header.h"
#include "nn/parameters.h"
#include "util/check.h"

namespace fem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kWeights = "model.safetensors";

// config.json and model.safetensors of any model.
void save_model(const fs::path& folder, const torch::nn::Module& model, const json& config) {
  check_free_for_model(folder);
  fs::create_directories(folder);
  Safetensors content;
  for (const auto& parameter : model.named_parameters()) content.tensors[parameter.key()] = parameter->detach();
  content.metadata["format"] = "pt";
  save_safetensors(folder / kWeights, content);
  write_atomically(folder / "config.json", [&](std::ostream& file) { file << config.dump(2) << "\n"; });
}

// options_of: config.json -> options, checked.
template <typename OptionsOf>
auto read_model_options(const fs::path& folder, const char* maker, OptionsOf options_of) {
  const fs::path path = folder / "config.json";
  check_file(path);
  FEM_CHECK(fs::is_regular_file(path), "model folder: expected ", path.string(),
            ", but it cannot be read; a model is a folder with config.json and model.safetensors, as ", maker,
            " makes");
  const json config = read_json(path, "model folder");
  try {
    const auto options = options_of(config);
    check(options);
    return options;
  } catch (const c10::Error& error) {
    FEM_CHECK(false, "model folder: ", path.string(), ": ", error.what_without_backtrace());
  }
}

// The sizes are compared with the header of the weights before anything is allocated.
std::map<std::string, at::Tensor> read_parameters(const fs::path& folder, int64_t layers,
                                                  const std::function<std::vector<ParameterSpec>()>& specs) {
  const auto check_header = [&](const SafetensorsHeader& header) {
    FEM_CHECK(layers <= static_cast<int64_t>(header.entries.size()), "it has ", header.entries.size(),
              " tensors, too few for the ", layers, " layers of config.json beside it");
    check_stored(header, specs(), "config.json beside it");
  };
  check_file(folder / kWeights);
  return load_safetensors(folder / kWeights, "model folder", check_header).tensors;
}

// Stored parameters in the place of a model's own, which is then ready for use.
void adopt(torch::nn::Module& model, const std::map<std::string, at::Tensor>& parameters, const fs::path& folder) {
  const at::NoGradGuard no_grad;
  const at::ScalarType first = parameters.begin()->second.scalar_type();
  for (auto& parameter : model.named_parameters()) {
    const at::Tensor& stored = parameters.at(parameter.key());
    const at::ScalarType dtype = stored.scalar_type();
    FEM_CHECK(dtype == first && (dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kDouble),
              "model folder: expected all parameters as float32, all as bfloat16 or all as float64, got ",
              parameter.key(), " as ", dtype, " in ", (folder / kWeights).string(),
              "; convert the file (in Python: tensor.float(), which loses nothing of float16)");
    parameter->set_data(stored);
  }
  model.eval();
}

}  // namespace

void save_language_model(const fs::path& folder, const LanguageModel& model) {
  save_model(folder, *model, model_config(model->options));
}

LanguageModelOptions load_language_model_options(const fs::path& folder) {
  return read_model_options(folder, "fem train", options_of_model_config);
}

LanguageModelFile read_language_model(const fs::path& folder) {
  LanguageModelFile file{load_language_model_options(folder), {}};
  file.parameters =
      read_parameters(folder, file.options.n_layer, [&] { return language_model_parameters(file.options); });
  return file;
}

LanguageModel load_language_model(const fs::path& folder) {
  const LanguageModelFile file = read_language_model(folder);
  LanguageModel model(file.options);
  adopt(*model, file.parameters, folder);
  return model;
}

void save_forecaster(const fs::path& folder, const Forecaster& model) {
  save_model(folder, *model, forecaster_config(model->options));
}

ForecasterOptions load_forecaster_options(const fs::path& folder) {
  return read_model_options(folder, "fem forecast train", options_of_forecaster_config);
}

ForecasterFile read_forecaster(const fs::path& folder) {
  ForecasterFile file{load_forecaster_options(folder), {}};
  // A body without a backbone has no layers.
  file.parameters = read_parameters(folder, 0, [&] { return forecaster_parameters(file.options); });
  return file;
}

Forecaster load_forecaster(const fs::path& folder) {
  const ForecasterFile file = read_forecaster(folder);
  Forecaster model(file.options);
  adopt(*model, file.parameters, folder);
  return model;
}

void save_image_classifier(const fs::path& folder, const ImageClassifier& model) {
  save_model(folder, *model, image_classifier_config(model->options));
}

ImageClassifierOptions load_image_classifier_options(const fs::path& folder) {
  return read_model_options(folder, "fem classify train", options_of_image_classifier_config);
}

ImageClassifierFile read_image_classifier(const fs::path& folder) {
  ImageClassifierFile file{load_image_classifier_options(folder), {}};
  file.parameters =
      read_parameters(folder, file.options.n_layer, [&] { return image_classifier_parameters(file.options); });
  return file;
}

ImageClassifier load_image_classifier(const fs::path& folder) {
  const ImageClassifierFile file = read_image_classifier(folder);
  ImageClassifier model(file.options);
  adopt(*model, file.parameters, folder);
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

fs::path best_model_folder(const fs::path& folder) {
  std::error_code none;
  const fs::path best = folder / "best";
  return fs::is_directory(best, none) ? fs::canonical(best) : model_folder(folder);
}

void check_free_for_model(const fs::path& folder) {
  std::error_code none;
  FEM_CHECK(!fs::is_directory(checkpoints_path(folder), none), "model folder: ", folder.string(),
            " is the folder of a training run, whose checkpoints are its models; save to another one");
  FEM_CHECK(!has_checksums(folder), "model folder: ", folder.string(),
            " is a checkpoint, which stays as it was saved; save to another folder");
}

}  // namespace fem
