#include "fem/forecaster.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "fem/io/model_folder.h"
#include "fem/language_model.h"
#include "io/temporary_folder.h"
#include "support/error_text.h"

namespace fem {
namespace {

using testing::fails_with;

ForecasterOptions small_forecaster(ForecastBodyType body, std::vector<std::string> targets = {"a", "c"}) {
  ForecasterOptions o;
  o.body = body;
  o.n_embd = 16;
  o.n_head = 2;
  o.n_layer = 2;
  o.mlp_width = 24;
  o.mixer.conv_hidden = 4;
  o.mixer.use_rope = false;
  o.mixer.causal = body == ForecastBodyType::kSegments || body == ForecastBodyType::kDlinear;
  o.horizon = 4;
  o.input = 27;
  o.columns = {"a", "b", "c"};
  o.targets = std::move(targets);
  o.mean = {1, -2, 0};
  o.deviation = {2, 1, 0.5};
  return o;
}

// No parameter is where it starts: everything counts.
Forecaster random_forecaster(const ForecasterOptions& options) {
  at::manual_seed(4);
  Forecaster model(options);
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : model->parameters()) parameter.add_(at::randn_like(parameter), 0.2);
  model->eval();
  return model;
}

at::Tensor random_windows(int64_t count) {
  at::manual_seed(9);
  return at::randn({count, 27, 3}).cumsum(1);
}

class EveryBody : public ::testing::TestWithParam<ForecastBodyType> {
 protected:
  const at::NoGradGuard no_grad;
  const ForecasterOptions options = small_forecaster(GetParam());
  Forecaster model = random_forecaster(options);
};

TEST_P(EveryBody, SaysOfAWindowTheSameInAnyBatch) {
  const at::Tensor windows = random_windows(9), together = model(windows);
  EXPECT_EQ(together.sizes(), (std::vector<int64_t>{9, 4, 2}));
  for (const int64_t size : {1, 2, 4})
    for (int64_t first = 0; first < 9; first += size)
      EXPECT_LT((model(windows.slice(0, first, first + size)) - together.slice(0, first, first + size))
                    .abs()
                    .max()
                    .item<double>(),
                1e-5 * together.abs().max().item<double>());
  const at::Tensor values = windows.to(at::kDouble), all = model->predict(values);
  for (const int64_t size : {1, 2, 4})
    for (int64_t first = 0; first < 9; first += size)
      EXPECT_TRUE(model->predict(values.slice(0, first, first + size)).equal(all.slice(0, first, first + size)));
  EXPECT_EQ(model->predict(values.slice(0, 0, 0)).sizes(), (std::vector<int64_t>{0, 4, 2}));
}

TEST_P(EveryBody, ComesBackFromAFolderBitForBit) {
  const std::filesystem::path folder = ::testing::TempDir() + "fem-forecaster-" + spelled(GetParam());
  std::filesystem::remove_all(folder);
  save_forecaster(folder, model);
  Forecaster loaded = load_forecaster(folder);
  EXPECT_TRUE(loaded(random_windows(3)).equal(model(random_windows(3))));
  EXPECT_EQ(loaded->options.mean, options.mean);
  EXPECT_EQ(loaded->options.targets, options.targets);
  std::filesystem::remove_all(folder);
}

TEST_P(EveryBody, PredictsInTheUnitsOfTheTable) {
  const at::Tensor windows = random_windows(2).to(at::kDouble);
  const at::Tensor mean = at::tensor(options.mean, at::kDouble), deviation = at::tensor(options.deviation, at::kDouble);
  const at::Tensor said = model->predict(windows * deviation + mean), expected = model(windows.to(at::kFloat));
  const at::Tensor of_a = (said.select(2, 0) - 1) / 2, of_c = said.select(2, 1) / 0.5;
  EXPECT_LT((of_a - expected.select(2, 0)).abs().max().item<double>(), 1e-4);
  EXPECT_LT((of_c - expected.select(2, 1)).abs().max().item<double>(), 1e-4);
}

// Level and spread of a window are taken out and put in again.
TEST_P(EveryBody, ScalesWithItsWindows) {
  if (GetParam() == ForecastBodyType::kDlinear) return;
  const at::Tensor windows = random_windows(3), moved = 3 * windows + 5;
  const at::Tensor expected = 3 * model(windows) + 5;
  EXPECT_LT((model(moved) - expected).abs().max().item<double>(), 1e-3 * expected.abs().max().item<double>());
}

TEST_P(EveryBody, EveryParameterLearns) {
  const at::AutoGradMode with_grad(true);
  Forecaster fresh = random_forecaster(options);
  fresh->train();
  fresh->loss(random_windows(6), random_windows(6).slice(1, 0, 4)).sum().backward();
  for (const auto& parameter : fresh->named_parameters()) {
    ASSERT_TRUE(parameter->grad().defined()) << parameter.key();
    EXPECT_GT(parameter->grad().abs().max().item<double>(), 0) << parameter.key();
  }
}

INSTANTIATE_TEST_SUITE_P(Forecasters, EveryBody,
                         ::testing::Values(ForecastBodyType::kSegments, ForecastBodyType::kDlinear,
                                           ForecastBodyType::kPatches, ForecastBodyType::kInverted),
                         [](const auto& body) { return spelled(body.param); });

bool hears(const Forecaster& model, int64_t column) {
  const at::NoGradGuard no_grad;
  at::Tensor windows = random_windows(1), other = windows.clone();
  other.select(2, column).mul_(-1.5).slice(1, 20).add_(2);
  return !model(windows).equal(model(other));
}

TEST(Forecasters, HearOtherColumnsOrNot) {
  for (const ForecastBodyType body : {ForecastBodyType::kSegments, ForecastBodyType::kInverted})
    EXPECT_TRUE(hears(random_forecaster(small_forecaster(body, {"a"})), 1)) << spelled(body);
  for (const ForecastBodyType body : {ForecastBodyType::kDlinear, ForecastBodyType::kPatches}) {
    EXPECT_FALSE(hears(random_forecaster(small_forecaster(body, {"a"})), 1)) << spelled(body);
    EXPECT_TRUE(hears(random_forecaster(small_forecaster(body, {"b"})), 1)) << spelled(body);
  }
}

// With a head that says nothing but its bias, every segment is the bias in the window's own level and spread.
TEST(Forecasters, SegmentsAreComparedWithTheRowsTheySpeakOf) {
  const at::NoGradGuard no_grad;
  Forecaster model = random_forecaster(small_forecaster(ForecastBodyType::kSegments, {"c"}));
  auto parameters = model->named_parameters();
  parameters["head.weight"].zero_();
  const at::Tensor bias = at::tensor({0.5, -1.0, 2.0, 0.0}, at::kFloat);
  parameters["head.bias"].copy_(bias);
  const at::Tensor windows = random_windows(2), future = random_windows(2).slice(1, 3, 7);
  const at::Tensor c = windows.select(2, 2);
  const at::Tensor level = c.slice(1, -4).mean(1, true), spread = (c.var(1, false, true) + 1e-5).sqrt();
  const at::Tensor said = bias * spread + level;  // [B, 4]
  EXPECT_LT((model(windows).select(2, 0) - said).abs().max().item<double>(), 1e-5);
  // 27 rows are seven segments, the first of them padded: six are spoken of, the last 24 rows.
  const at::Tensor past = (said.repeat({1, 6}) - c.slice(1, -24)).square().mean(1);
  const at::Tensor ahead = (said - future.select(2, 2)).square().mean(1);
  EXPECT_LT((model->loss(windows, future) - past - ahead).abs().max().item<double>(), 1e-4);
}

TEST(Forecasters, DlinearIsTheFormula) {
  const at::NoGradGuard no_grad;
  Forecaster model = random_forecaster(small_forecaster(ForecastBodyType::kDlinear, {"b"}));
  auto w = model->named_parameters();
  const at::Tensor windows = random_windows(2), x = windows.select(2, 1);
  at::Tensor trend = at::zeros_like(x);
  for (int64_t i = 0; i < 27; ++i)
    for (int64_t j = i - 12; j <= i + 12; ++j) trend.select(1, i) += x.select(1, std::clamp<int64_t>(j, 0, 26)) / 25.0;
  const at::Tensor expected = at::linear(x - trend, w["seasonal.weight"], w["seasonal.bias"]) +
                              at::linear(trend, w["trend.weight"], w["trend.bias"]);
  EXPECT_LT((model(windows).select(2, 0) - expected).abs().max().item<double>(), 1e-4);
}

TEST(Forecasters, HaveThePublishedWidths) {
  ForecasterOptions o = small_forecaster(ForecastBodyType::kSegments);
  o.n_embd = o.mlp_width = 0;
  for (const auto& [columns, width] : {std::pair{1, 32}, {7, 64}, {21, 128}, {137, 352}}) {
    o.columns.assign(columns, "");
    EXPECT_EQ(with_widths(o).n_embd, width);
    EXPECT_EQ(with_widths(o).mlp_width, 4 * width);
  }
}

TEST(Forecasters, RefuseWhatTheyCannotBe) {
  const auto refused = [](const std::string& sentence, const std::function<void(ForecasterOptions&)>& change) {
    ForecasterOptions o = small_forecaster(ForecastBodyType::kSegments);
    change(o);
    EXPECT_TRUE(fails_with(sentence, [&] { Forecaster{o}; }));
  };
  refused("expected horizon of at least 1 row, got 0", [](auto& o) { o.horizon = 0; });
  refused("expected input of at most 1048576 rows", [](auto& o) { o.input = INT64_MAX; });
  refused("expected targets among the columns, got 'd'", [](auto& o) { o.targets = {"d"}; });
  refused("expected every column and every target once", [](auto& o) { o.targets = {"a", "a"}; });
  refused("expected a mean and a deviation for each of the 3 columns", [](auto& o) { o.mean = {1}; });
  refused("a positive deviation of column 'b', got -2 and 0", [](auto& o) { o.deviation[1] = 0; });
  refused("body segments needs a causal mixer", [](auto& o) { o.mixer.causal = false; });
  refused("body patches is an encoder", [](auto& o) { o.body = ForecastBodyType::kPatches; });
  Forecaster model = random_forecaster(small_forecaster(ForecastBodyType::kSegments));
  EXPECT_TRUE(fails_with("expected windows of shape [B, input=27, columns=3], got [2, 26, 3]",
                         [&] { model(at::zeros({2, 26, 3})); }));
}

class ForecasterFolder : public testing::TemporaryFolder {};

TEST_F(ForecasterFolder, OfAnotherModelOrDamagedIsRefused) {
  save_forecaster(folder / "own", Forecaster(small_forecaster(ForecastBodyType::kSegments)));
  const nlohmann::json config = nlohmann::json::parse(read(folder / "own" / "config.json"));
  const auto refused = [&](const std::string& sentence, const nlohmann::json& changes) {
    nlohmann::json changed = config;
    changed.merge_patch(changes);
    write(folder / "own" / "config.json", changed.dump());
    EXPECT_TRUE(fails_with(sentence, [&] { load_forecaster(folder / "own"); }));
  };
  refused("expected a JSON object with \"model_type\": \"fem_forecaster\"", {{"model_type", "fem_language_model"}});
  refused("expected the field horizon, which is missing", {{"horizon", nullptr}});
  refused("expected mean to be a list of numbers", {{"mean", "many"}});
  refused("unknown field \"horizons\"", {{"horizons", 3}});
  refused("expected embedding.weight of shape", {{"horizon", 5}});
  refused("expected input of at most", {{"input", int64_t{1} << 60}});
  EXPECT_TRUE(fails_with("\"model_type\": \"fem_language_model\"", [&] { load_language_model(folder / "own"); }));
}

}  // namespace
}  // namespace fem
