#include "tasks/argmax/task.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "io/options_json.h"
#include "tasks/argmax/examples.h"
#include "tasks/argmax/model.h"
#include "tasks/parameter_file.h"
#include "util/table.h"

namespace fem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class ArgmaxTask final : public Task {
 public:
  ArgmaxTask(const ArgmaxOptions& options, const TrainOptions& train)
      : options_(options), seed_(train.seed), batch_(train.batch), model_(options, train.seed) {}

  std::vector<TrainedParameter> parameters() override {
    std::vector<TrainedParameter> parameters;
    for (const auto& [name, tensor] : model_.parameters()) parameters.push_back({name, tensor, model_.decays(name)});
    return parameters;
  }

  // Every channel of a row is a target.
  Weighted loss(const Rows& rows) override {
    const ArgmaxBatch batch = argmax_train_rows(options_, seed_, batch_, rows);
    return {squared_error(model_.forward(batch.value), batch), static_cast<double>(batch.target.numel())};
  }

  std::vector<NamedTensor> trace(const Rows& rows) override {
    return {{"the read", model_.forward(argmax_train_rows(options_, seed_, batch_, rows).value)}};
  }

  NamedValues validation_sums(const ValidationPart& part) override {
    const at::NoGradGuard no_grad;
    double error = 0, found = 0, channels = 0;
    const int64_t all = options_.validation_examples;
    for (int64_t done = part.part * part.batch_rows; done < all; done += part.parts * part.batch_rows) {
      const int64_t count = std::min(part.batch_rows, all - done);
      const ArgmaxBatch batch = argmax_examples(options_, seed_, {options_.train_examples + done, count});
      const at::Tensor prediction = model_.forward(batch.value);
      error += squared_error(prediction, batch).item<double>();
      found += static_cast<double>(channels_found(prediction, batch));
      channels += static_cast<double>(prediction.numel());
      if (part.on_batch) part.on_batch(std::min(done + part.parts * part.batch_rows, all), all);
    }
    return {{"squared_error", error}, {"found", found}, {"channels", channels}};
  }

  NamedValues measures(const NamedValues& sums) const override {
    const double channels = value_of(sums, "channels");
    return {{"loss", value_of(sums, "squared_error") / channels}, {"accuracy", value_of(sums, "found") / channels}};
  }

  Goal goal() const override { return {"accuracy", /*larger_is_better=*/true}; }

  json recipe() const override { return to_json(options_); }
  json identity() const override { return recipe(); }

  void save(const fs::path& folder) const override { save_parameters(folder, named(), recipe()); }
  void load(const fs::path& folder) override { load_parameters(folder, "argmax", named()); }

  std::pair<std::string, int64_t> units_of_a_row() const override { return {"examples", 1}; }

  std::string description() const override {
    return grouped(options_.train_examples) + " training and " + grouped(options_.validation_examples) +
           " validation examples";
  }

 private:
  NamedParameters named() const { return {model_.parameters().begin(), model_.parameters().end()}; }

  static at::Tensor squared_error(const at::Tensor& prediction, const ArgmaxBatch& batch) {
    return at::mse_loss(prediction, batch.target, at::Reduction::Sum);
  }

  const ArgmaxOptions options_;
  const int64_t seed_, batch_;
  ArgmaxModel model_;
};

}  // namespace

ArgmaxOptions argmax_options_from_json(const json& recipe) {
  ArgmaxOptions options;
  const json model = recipe.value("model", json::object()), data = recipe.value("data", json::object());
  OptionsReader of_model("model", model), of_data("data", data);
  visit_argmax_model(options, of_model);
  visit_argmax_data(options, of_data);
  of_model.finish();
  of_data.finish();
  check(options);
  return options;
}

void check(const ArgmaxOptions& o) {
  for (const auto& [name, value] : {std::pair{"dim", o.dim},
                                    {"heads", o.heads},
                                    {"train_examples", o.train_examples},
                                    {"validation_examples", o.validation_examples}})
    FEM_CHECK(value >= 1, "argmax: expected ", name, " of at least 1, got ", value);
  for (const auto& [name, value, most] : {std::tuple{"dim", o.dim, kLargestWidth},
                                          {"heads", o.heads, kLargestWidth},
                                          {"length", o.length, kLargestWidth},
                                          {"train_examples", o.train_examples, kArgmaxExamples},
                                          {"validation_examples", o.validation_examples, kArgmaxExamples}})
    FEM_CHECK(value <= most, "argmax: expected ", name, " of at most ", most, ", got ", value);
  FEM_CHECK(o.train_examples + o.validation_examples <= kArgmaxExamples, "argmax: expected at most ",
            grouped(kArgmaxExamples), " examples of both kinds, got ",
            grouped(o.train_examples + o.validation_examples));
  FEM_CHECK(o.length >= 2, "argmax: expected length of at least 2 tokens to choose from, got ", o.length);
  FEM_CHECK(o.dim % o.heads == 0, "argmax: expected dim divisible by heads, got ", o.dim, " and ", o.heads);
  FEM_CHECK(o.prior == PriorType::kSoftmax || o.dim % (4 * o.heads) == 0,
            "argmax: expected dim to be a multiple of four times heads with prior ", spelled(o.prior), ", got ", o.dim,
            " and ", o.heads);
}

std::unique_ptr<Task> argmax_task(const ArgmaxOptions& options, const TrainOptions& train) {
  FEM_CHECK(train.seed < kArgmaxSeeds, "argmax: expected a seed below ", grouped(kArgmaxSeeds), ", got ", train.seed);
  FEM_CHECK(train.batch <= options.train_examples, "argmax: expected at least the ", train.batch,
            " training examples of a batch, got ", options.train_examples);
  return std::make_unique<ArgmaxTask>(options, train);
}

json to_json(const ArgmaxOptions& options) {
  json out{{"task", "argmax"}};
  const auto into = [](json& place) {
    return [&place](const char* name, const auto& value, const char*) { write_option(place[name], value); };
  };
  visit_argmax_model(options, into(out["model"]));
  visit_argmax_data(options, into(out["data"]));
  return out;
}

const TaskEntry& argmax_entry() {
  static const TaskEntry entry{
      .name = "argmax",
      .summary = "return every channel's largest value by one read",
      .make = [](const json& recipe, const TrainOptions& train,
                 const fs::path&) { return argmax_task(argmax_options_from_json(recipe), train); },
      .parameters =
          [](const json& recipe) {
            const ArgmaxOptions options = argmax_options_from_json(recipe);
            return std::vector{std::pair<std::string, int64_t>{"read", ArgmaxModel(options, 0).parameter_count()}};
          },
      .settings =
          [](const SettingVisitor& visit) {
            const ArgmaxOptions defaults;
            visit_argmax_model(defaults, settings_of("model", visit));
            visit_argmax_data(defaults, settings_of("data", visit));
          },
  };
  return entry;
}

}  // namespace fem
