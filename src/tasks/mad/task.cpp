#include "tasks/mad/task.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "data/order.h"
#include "io/language_model_config.h"
#include "io/options_json.h"
#include "tasks/mad/data.h"
#include "tasks/mad/generator.h"
#include "tasks/mad/model.h"
#include "tasks/parameter_file.h"
#include "util/table.h"

namespace fem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class MadTask final : public Task {
 public:
  MadTask(const MadOptions& options, const TrainOptions& train)
      : options_(options),
        data_(mad_data(options.data)),
        model_(options, train.seed),
        order_(options.data.train_examples, train.seed) {}

  std::vector<TrainedParameter> parameters() override {
    std::vector<TrainedParameter> parameters;
    for (size_t i = 0; i < model_.specs().size(); ++i)
      parameters.push_back({model_.specs()[i].name, model_.parameters()[i], model_.specs()[i].decays});
    return parameters;
  }

  Weighted loss(const Rows& rows) override {
    const MadSet batch = train_rows(rows);
    const at::Tensor logits = model_.forward(batch.tokens, /*training=*/true).flatten(0, 1);
    return {at::cross_entropy_loss(logits.to(at::kFloat), batch.targets.flatten(), {}, at::Reduction::Sum, kMadIgnored),
            batch.targets.ne(kMadIgnored).sum().item<double>()};
  }

  std::vector<NamedTensor> trace(const Rows& rows) override { return model_.trace(train_rows(rows).tokens); }

  // Batches of the published size, whatever fits into one forward pass: an accuracy is an average over them.
  NamedValues validation_sums(const ValidationPart& part) override {
    const at::NoGradGuard no_grad;
    MadScore score;
    for (int64_t first = part.part * kMadTestBatch; first < options_.data.test_examples;
         first += part.parts * kMadTestBatch) {
      const int64_t last = std::min(first + kMadTestBatch, options_.data.test_examples);
      std::vector<at::Tensor> logits;
      for (int64_t row = first; row < last; row += part.batch_rows)
        logits.push_back(model_.forward(data_.test.tokens.slice(0, row, std::min(row + part.batch_rows, last)),
                                        /*training=*/false));
      score.add(at::cat(logits).flatten(0, 1), data_.test.targets.slice(0, first, last).flatten());
      if (part.on_batch)
        part.on_batch(std::min(first + part.parts * kMadTestBatch, options_.data.test_examples),
                      options_.data.test_examples);
    }
    return {{"nats", score.nats},
            {"targets", score.targets},
            {"hits", score.hits},
            {"recall", score.recall},
            {"batches", score.batches}};
  }

  NamedValues measures(const NamedValues& sums) const override {
    const double targets = value_of(sums, "targets");
    return {{"loss", value_of(sums, "nats") / targets},
            {"accuracy", value_of(sums, "recall") / value_of(sums, "batches")},
            {"token_accuracy", value_of(sums, "hits") / targets}};
  }

  Goal goal() const override { return {"accuracy", /*larger_is_better=*/true}; }

  json recipe() const override { return to_json(options_); }
  json identity() const override { return recipe(); }
  json identity_defaults() const override { return {{"model", to_json(BackboneOptions())}}; }

  void save(const fs::path& folder) const override { save_parameters(folder, named(), recipe()); }
  void load(const fs::path& folder) override { load_parameters(folder, "mad", named()); }

  std::pair<std::string, int64_t> units_of_a_row() const override { return {"tokens", data_.train.tokens.size(1)}; }

  std::string description() const override {
    return std::string(spelled(options_.data.kind)) + ", " + grouped(options_.data.train_examples) + " training and " +
           grouped(options_.data.test_examples) + " test examples";
  }

 private:
  MadSet train_rows(const Rows& rows) const {
    const at::Tensor places = at::empty({rows.count}, at::kLong);
    for (int64_t i = 0; i < rows.count; ++i)
      places.data_ptr<int64_t>()[i] = order_.of(rows.first + i * rows.stride).item;
    return {data_.train.tokens.index_select(0, places), data_.train.targets.index_select(0, places)};
  }

  NamedParameters named() const {
    NamedParameters parameters;
    for (size_t i = 0; i < model_.specs().size(); ++i)
      parameters.emplace_back(model_.specs()[i].name, model_.parameters()[i]);
    return parameters;
  }

  const MadOptions options_;
  const MadData data_;
  const MadModel model_;
  const EpochOrder order_;
};

}  // namespace

MadOptions mad_options_from_json(const json& recipe) {
  MadOptions options;
  const json data = recipe.value("data", json::object());
  OptionsReader of_data("data", data);
  visit_mad_data(options.data, of_data);
  of_data.finish();
  options.data = completed_mad_data(options.data);
  options.model = completed(backbone_options_from_json(recipe.value("model", json::object())), "mad");
  FEM_CHECK(options.model.mixer.causal, "mad: expected a causal mixer, got model.mixer.causal = false");
  FEM_CHECK(options.data.kind != MadKind::kCompression || options.model.n_embd % 2 == 0,
            "mad: expected an even model.n_embd for compression, got ", options.model.n_embd);
  return options;
}

std::unique_ptr<Task> mad_task(const MadOptions& options, const TrainOptions& train) {
  return std::make_unique<MadTask>(options, train);
}

json to_json(const MadOptions& options) {
  json out{{"task", "mad"}, {"model", to_json(options.model)}};
  visit_mad_data(options.data,
                 [&](const char* name, const auto& value, const char*) { write_option(out["data"][name], value); });
  return out;
}

const TaskEntry& mad_entry() {
  static const TaskEntry entry{
      .name = "mad",
      .summary =
          "the six synthetic tasks of MAD, recall, memorization, compression, copying; longest increasing subsequence",
      .make = [](const json& recipe, const TrainOptions& train,
                 const fs::path&) { return mad_task(mad_options_from_json(recipe), train); },
      .parameters =
          [](const json& recipe) {
            std::vector<ParameterSpec> mixers, others;
            for (const ParameterSpec& spec : mad_parameters(mad_options_from_json(recipe)))
              (spec.name.find(".mixer.") != std::string::npos ? mixers : others).push_back(spec);
            return std::vector{std::pair<std::string, int64_t>{"mixers", parameter_count(mixers)},
                               std::pair<std::string, int64_t>{"all else", parameter_count(others)}};
          },
      .settings =
          [](const SettingVisitor& visit) {
            const MadOptions defaults;
            visit_mad_data(defaults.data, settings_of("data", visit));
            visit_backbone_options(defaults.model, settings_of("model", visit));
            visit("model.mixer.*", "as of a language model, above");
          },
  };
  return entry;
}

}  // namespace fem
