#include "tasks/images/task.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "evaluate/classification.h"
#include "fem/io/model_folder.h"
#include "fem/language_model.h"
#include "io/image_classifier_config.h"
#include "io/language_model_config.h"
#include "models/pixels.h"
#include "tasks/images/augment.h"
#include "tasks/trained_model.h"
#include "util/table.h"

namespace fem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

ImageClassifier new_classifier(const ImageClassifierOptions& options, int64_t seed) {
  at::manual_seed(seed);
  return ImageClassifier(options);
}

class ImageTask final : public Task {
 public:
  ImageTask(const ImageOptions& options, const ImageSet& set, const TrainOptions& train)
      : options_(options),
        checksum_(set.checksum),
        model_(new_classifier(classifier_for(options, set), train.seed)),
        data_(image_data(options.data, set)),
        order_(data_.train.count(), train.seed) {}

  std::vector<TrainedParameter> parameters() override {
    const auto named = model_->named_parameters();
    std::vector<TrainedParameter> parameters;
    for (const ParameterSpec& spec : image_classifier_parameters(model_->options))
      parameters.push_back({spec.name, named[spec.name], spec.decays});
    return parameters;
  }

  // Every picture weighs as much as any other.
  Weighted loss(const Rows& rows) override {
    model_->train();
    const ImageRows batch = train_rows(rows);
    const at::Tensor logits = model_(model_->standardised(batch.pixels)).to(at::kFloat);
    return {-(batch.targets * logits.log_softmax(1)).sum(), static_cast<double>(rows.count)};
  }

  std::vector<NamedTensor> trace(const Rows& rows) override {
    return model_->trace(model_->standardised(train_rows(rows).pixels));
  }

  // At the end the test is measured as well; nothing is chosen by it.
  NamedValues validation_sums(const ValidationPart& part) override {
    NamedValues sums;
    const int64_t own = data_.validation.count(), all = own + (part.whole ? data_.test.count() : 0);
    const auto add = [&](const std::string& prefix, const LabelledImages& images, int64_t before) {
      const auto tell = [&](int64_t done, int64_t) {
        if (part.on_batch) part.on_batch(before + done, all);
      };
      const ClassificationScore score = score_images(
          model_, images, {.batch = part.batch_rows, .share = part.part, .shares = part.parts, .on_batch = tell});
      sums.emplace_back(prefix + "nats", score.nats);
      sums.emplace_back(prefix + "hits", static_cast<double>(score.hits()));
      sums.emplace_back(prefix + "pictures", static_cast<double>(score.pictures()));
    };
    add("", data_.validation, 0);
    if (part.whole) add("test_", data_.test, own);
    return sums;
  }

  NamedValues measures(const NamedValues& sums) const override {
    const double pictures = value_of(sums, "pictures");
    NamedValues found{{"loss", value_of(sums, "nats") / pictures}, {"accuracy", value_of(sums, "hits") / pictures}};
    if (sums.size() > 3) {
      found.emplace_back("test_loss", value_of(sums, "test_nats") / value_of(sums, "test_pictures"));
      found.emplace_back("test_accuracy", value_of(sums, "test_hits") / value_of(sums, "test_pictures"));
    }
    return found;
  }

  Goal goal() const override { return {"accuracy", /*larger_is_better=*/true}; }

  json recipe() const override {
    ImageOptions found = options_;
    found.model = model_->options;
    found.data.folder = fs::absolute(found.data.folder).lexically_normal();
    return to_json(found);
  }

  // What the pictures are counts, not where they lie.
  json identity() const override {
    json out = recipe();
    out["data"].erase("folder");
    out["files"] = {{"training", {{{"name", options_.data.folder.filename().string()}, {"checksum", checksum_}}}}};
    return out;
  }

  json identity_defaults() const override { return to_json(ImageOptions()); }

  void save(const fs::path& folder) const override { save_image_classifier(folder, model_); }

  void load(const fs::path& folder) override {
    const ImageClassifier saved = load_image_classifier(folder);
    take_parameters(*model_, to_json(model_->options), *saved, to_json(saved->options), "images", folder);
  }

  std::pair<std::string, int64_t> units_of_a_row() const override { return {"pictures", 1}; }

  std::string description() const override {
    return std::to_string(model_->options.classes.size()) + " classes, " + size_text(data_.train.pixels) + ", " +
           grouped(data_.train.count()) + " training, " + grouped(data_.validation.count()) + " validation and " +
           grouped(data_.test.count()) + " test pictures";
  }

 private:
  ImageRows train_rows(const Rows& rows) const {
    const auto classes = static_cast<int64_t>(model_->options.classes.size());
    return augmented_rows(data_.train, classes, options_.data, order_, rows);
  }

  const ImageOptions options_;
  const std::string checksum_;
  ImageClassifier model_;
  const ImageData data_;
  const EpochOrder order_;
};

}  // namespace

ImageOptions image_options_from_json(const json& recipe) {
  ImageOptions options;
  const json data = recipe.value("data", json::object());
  OptionsReader of_data("data", data);
  visit_image_data(options.data, of_data);
  of_data.finish();
  const json model = recipe.value("model", json::object());
  options.model = image_classifier_options_from_json(model);
  for (const char* name : {"height", "width", "channels", "classes", "mean", "deviation"})
    FEM_CHECK(!model.contains(name), "images: model.", name, " follows from [data]; leave it out");
  return options;
}

json to_json(const ImageOptions& options) {
  json out{{"task", "images"}, {"model", to_json(static_cast<const BackboneOptions&>(options.model))}};
  out["model"]["patch"] = options.model.patch;
  visit_image_data(options.data,
                   [&](const char* name, const auto& value, const char*) { write_option(out["data"][name], value); });
  return out;
}

std::unique_ptr<Task> image_task(const ImageOptions& options, const ImageSet& set, const TrainOptions& train) {
  return std::make_unique<ImageTask>(options, set, train);
}

json training_for(const ImageOptions& options, const ImageSet& set, int64_t batch, int64_t epochs) {
  FEM_CHECK(epochs >= 1 && batch >= 1, "classify: expected epochs and train.batch of at least 1, got ", epochs, " and ",
            batch);
  const int64_t pictures = image_data(options.data, set).train.count(), epoch = (pictures + batch - 1) / batch;
  return {{"steps", epochs * epoch},
          {"warmup_steps", std::max<int64_t>(epochs * epoch / 20, 1)},
          {"validate_every", epoch},
          {"checkpoint_every", epoch}};
}

const TaskEntry& images_entry() {
  static const TaskEntry entry{
      .name = "images",
      .summary = "tell the class of a picture",
      .make =
          [](const json& recipe, const TrainOptions& train, const fs::path&) {
            const ImageOptions options = image_options_from_json(recipe);
            return image_task(options, images_of(options.data), train);
          },
      .parameters =
          [](const json& recipe) {
            const ImageOptions options = image_options_from_json(recipe);
            std::vector<ParameterSpec> mixers, others;
            for (const ParameterSpec& spec :
                 image_classifier_parameters(classifier_for(options, images_of(options.data))))
              (spec.name.find(".mixer.") != std::string::npos ? mixers : others).push_back(spec);
            return std::vector{std::pair<std::string, int64_t>{"mixers", parameter_count(mixers)},
                               std::pair<std::string, int64_t>{"all else", parameter_count(others)}};
          },
      .settings =
          [](const SettingVisitor& visit) {
            const ImageOptions defaults;
            visit_image_data(defaults.data, settings_of("data", visit));
            visit("model.patch=0", "pixels of a side of a patch; 0: the smallest that makes at most 64 of a picture");
            visit_backbone_options(static_cast<const BackboneOptions&>(defaults.model), settings_of("model", visit));
            visit("model.mixer.*", "as of a language model, above");
          },
  };
  return entry;
}

}  // namespace fem
