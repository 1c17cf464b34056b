// The numbers of the page and of the tables are those of fem/inspect.h.
#include "inspect/numbers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "fem/io/model_folder.h"
#include "fem/text/tokenizer.h"
#include "inspect/ablation.h"
#include "inspect/statistics.h"
#include "io/temporary_folder.h"
#include "models/small_models.h"
#include "support/error_text.h"

namespace fem {
namespace {

using testing::fails_with;

const std::string kHostile = "</script><script>alert(1)</script>";

class Microscope : public testing::TemporaryFolder {
 protected:
  void SetUp() override {
    TemporaryFolder::SetUp();
    save(BlockMixer::kFem, PriorType::kSoftmax);
  }

  void save(BlockMixer mixer, PriorType prior) const {
    LanguageModel model = testing::random_model({mixer, prior}, byte_tokenizer()->vocab_size());
    {
      const at::NoGradGuard no_gradients;
      for (at::Tensor& parameter : model->parameters()) parameter.mul_(0.4);
    }
    save_language_model(folder, model);
    byte_tokenizer()->save(folder);
  }

  std::unique_ptr<Subject> subject(const std::string& text, int64_t rows = 8, int64_t length = 256) const {
    return text_subject({.model = folder, .rows = rows, .length = length}, text);
  }

  static Safetensors numbers_of(Subject& subject, int64_t most_bytes = kPageBytes) {
    return page_numbers(subject, "fem inspect", [](int64_t, int64_t) {}, most_bytes);
  }
  static Json about(const Safetensors& numbers) { return Json::parse(numbers.metadata.at("fem_inspect")); }
};

TEST_F(Microscope, ShowsWhatTheInspectorFound) {
  for (const PriorType prior : {PriorType::kSoftmax, PriorType::kRnnDecay}) {
    save(BlockMixer::kFem, prior);
    const std::unique_ptr<Subject> of_text = subject(kHostile);
    const Safetensors numbers = numbers_of(*of_text);
    const ModelInspector inspector(of_text->model(), of_text->options(), of_text->shown().trace);
    const auto& t = numbers.tensors;
    const int64_t tokens = inspector.tokens();
    ASSERT_EQ(tokens, static_cast<int64_t>(kHostile.size()) + 1);
    ASSERT_EQ(t.at("rows").numel(), tokens);
    std::vector<int64_t> all(static_cast<size_t>(tokens));
    std::iota(all.begin(), all.end(), 0);
    for (int64_t layer = 0; layer < 2; ++layer) {
      const Inspection i = inspector.layer(layer, all);
      const auto same = [&](const char* name, const at::Tensor& x) {
        EXPECT_TRUE(t.at(name)[layer].equal(x[0].to(t.at(name).scalar_type()))) << name;
      };
      same("prior", i.prior.mean(3));
      same("choice", i.choice);
      same("prior_choice", i.prior_choice);
      same("mean", i.mean);
      same("free_energy", i.free_energy);
      same("gated", i.gated);
      same("kl_pq", i.kl_pq);
      same("kl_qp", i.kl_qp);
      same("hidden_beta", i.hidden_beta);
      same("lambda", i.lambda);
      same("outer_gate", i.outer_gate);
      same("rank", i.rank);
      const at::Tensor disagree = (i.choice != i.prior_choice).to(at::kDouble).flatten(2).mean(2)[0];
      EXPECT_TRUE(at::allclose(t.at("map_disagree")[layer].to(at::kDouble), disagree, 0, 1e-6));
      // The entries that are kept stand where they say.
      const at::Tensor place = t.at("top_token")[layer].to(at::kLong), weight = t.at("top_weight")[layer];
      const at::Tensor there = i.posterior[0].gather(-1, place.clamp_min(0)).to(at::kFloat);
      EXPECT_TRUE(at::where(place >= 0, there, 0).equal(weight));
    }
    // What the page shows in float32 keeps the identity.
    const at::Tensor F = t.at("free_energy").to(at::kDouble), beta = t.at("beta").unsqueeze(1).to(at::kDouble);
    EXPECT_TRUE(at::allclose(F, t.at("mean").to(at::kDouble) + t.at("kl_pq").to(at::kDouble) / beta, 1e-6, 1e-6));
    EXPECT_TRUE(t.at("top_weight").sum(-1).le(1 + 1e-6).all().item<bool>());

    const Json told = about(numbers);
    EXPECT_EQ(told["tokens"][1], "<");
    EXPECT_EQ(told["tokens"][0], "(begin)");
    EXPECT_EQ(told["notes"].size(), prior == PriorType::kRnnDecay ? 2U : 1U);
    const at::Tensor maps = t.at("map_disagree");
    const int64_t row = told["opens_at"]["row"], layer = told["opens_at"]["layer"];
    EXPECT_EQ(maps[layer][t.at("rows")[row].item<int64_t>()].item<float>(), maps.max().item<float>());
  }
}

TEST_F(Microscope, ShowsFewerTokensWhereThereIsNoRoom) {
  const std::unique_ptr<Subject> long_text = subject(std::string(200, 'a') + "b" + std::string(99, 'c'), 8, 1000);
  const Safetensors all = numbers_of(*long_text), some = numbers_of(*long_text, 1 << 18);
  EXPECT_EQ(all.tensors.at("rows").numel(), 301);
  const at::Tensor rows = some.tensors.at("rows");
  ASSERT_LT(rows.numel(), 301);
  ASSERT_GE(rows.numel(), 8);
  EXPECT_TRUE(rows.slice(0, 1).gt(rows.slice(0, 0, -1)).all().item<bool>());
  EXPECT_TRUE(some.tensors.at("map_kl").equal(all.tensors.at("map_kl")));
  EXPECT_TRUE(some.tensors.at("kl_qp").equal(all.tensors.at("kl_qp").index_select(1, rows.to(at::kLong))));
  const at::Tensor most = some.tensors.at("map_disagree").mean(0).argmax();
  EXPECT_TRUE(rows.eq(most).any().item<bool>());
  EXPECT_NE(about(some)["notes"][0].get<std::string>().find("of 301 tokens can be opened"), std::string::npos);
}

TEST_F(Microscope, StatisticsAreMeansOverEverything) {
  const std::unique_ptr<Subject> of_text = subject("The quick brown fox jumps over the lazy dog.", 3, 12);
  ASSERT_EQ(of_text->batches(), 3);
  const std::vector<LayerStatistics> layers = statistics_of(*of_text, {});
  double kl = 0, moved = 0, other = 0;
  std::vector<double> hidden;
  for (int64_t batch = 0; batch < 3; ++batch) {
    const Inspection i = ModelInspector(of_text->model(), of_text->options(), of_text->trace(batch))
                             .layer(1, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
    kl += i.kl_qp.mean().item<double>() / 3;
    const at::Tensor weights = (1 - i.lambda.unsqueeze(-1)) * i.prior + i.lambda.unsqueeze(-1) * i.posterior;
    moved += (weights - i.prior).clamp_min(0).sum(-1).mean().item<double>() / 3;
    other += (i.choice != i.prior_choice).to(at::kDouble).mean().item<double>() / 3;
    const at::Tensor b = i.hidden_beta.flatten().contiguous();
    hidden.insert(hidden.end(), b.const_data_ptr<double>(), b.const_data_ptr<double>() + b.numel());
  }
  std::sort(hidden.begin(), hidden.end());
  EXPECT_NEAR(layers[1].kl(), kl, 1e-12);
  EXPECT_NEAR(layers[1].moved(), moved, 1e-12);
  EXPECT_NEAR(layers[1].disagree(), other, 1e-12);
  EXPECT_NEAR(layers[1].hidden_beta(0.5), hidden[hidden.size() / 2], 1e-2);
  const Json told = layers[1].json();
  int64_t counted = 0;
  for (const int64_t count : told["hidden_beta"]["counts"]) counted += count;
  EXPECT_EQ(counted, static_cast<int64_t>(hidden.size()));
}

TEST_F(Microscope, OfAttentionIsTheBaseline) {
  save(BlockMixer::kAttention, PriorType::kSoftmax);
  const std::vector<LayerStatistics> layers = statistics_of(*subject("to be or not to be"), {});
  for (const LayerStatistics& layer : layers) {
    EXPECT_NEAR(layer.rank(), 1, 1e-5);
    EXPECT_EQ(layer.disagree() + layer.moved() + layer.kl() + layer.hidden_beta(0.9), 0);
  }
  EXPECT_TRUE(fails_with("--ablate needs a model whose mixers are fem",
                         [&] { ablate(*subject("to be"), {}, [](int64_t, int64_t) {}); }));
}

TEST_F(Microscope, AblationsSetGatesAndPutThemBack) {
  const std::unique_ptr<Subject> of_text = subject("To be, or not to be, that is the question.");
  const double before = of_text->loss(0).sum;
  const std::vector<Ablation> found = ablate(*of_text, {0.0, 2.0}, [](int64_t, int64_t) {});
  ASSERT_EQ(found.size(), 9U);  // as trained; 0 and 1 in all and in each of two layers; two thresholds
  EXPECT_EQ(of_text->loss(0).sum, before);
  const auto loss = [&](const std::string& what) {
    for (const Ablation& one : found)
      if (one.what == what) return one.loss;
    ADD_FAILURE() << what;
    return 0.0;
  };
  EXPECT_NE(loss("all layers, lambda = 0"), loss("all layers, lambda = 1"));
  EXPECT_EQ(loss("channels with mean lambda < 0.00: 0"), loss("as trained"));
  EXPECT_EQ(loss("channels with mean lambda < 2.00: 0"), loss("all layers, lambda = 0"));
  // lambda = 0 everywhere is the model without a free energy.
  LanguageModelOptions means = load_language_model_options(folder);
  means.mixer.use_lse = means.mixer.use_temperature = false;
  LanguageModel plain(means);
  const at::NoGradGuard no_gradients;
  plain->to(at::kDouble);
  const auto trained = of_text->model().named_parameters();
  for (auto& parameter : plain->named_parameters()) {
    at::Tensor from = trained[parameter.key()];
    if (parameter.key().find("out_proj") != std::string::npos)  // without the columns of lambda: v, q, k, then the gate
      from = at::cat({from.slice(1, 0, -16), from.slice(1, -8)}, 1);
    parameter.value().copy_(from);
  }
  const at::Tensor tokens =
      at::tensor(byte_tokenizer()->encode_prompt("To be, or not to be, that is the question."), at::kLong).unsqueeze(0);
  const double expected = plain->surprise(tokens.slice(1, 0, -1), tokens.slice(1, 1)).mean().item<double>();
  EXPECT_NEAR(loss("all layers, lambda = 0"), expected, 1e-9);
}

}  // namespace
}  // namespace fem
