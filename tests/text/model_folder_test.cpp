#include "fem/io/model_folder.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "fem/io/mixer_file.h"
#include "fem/io/safetensors.h"
#include "io/language_model_config.h"
#include "io/temporary_folder.h"
#include "support/error_text.h"

namespace fem {
namespace {

using nlohmann::json;
using testing::fails_with;

// What a hostile config.json can ask for. A test that is stopped by a time limit, a signal or missing memory has
// failed.
class HostileFolder : public testing::TemporaryFolder {
 protected:
  void SetUp() override {
    TemporaryFolder::SetUp();
    LanguageModelOptions options;
    options.vocab_size = 5;
    options.n_embd = 8;
    options.n_head = 2;
    options.n_layer = 2;
    options.mlp_width = 8;
    save_language_model(folder, LanguageModel(options));
    config = json::parse(read(folder / "config.json"));
  }

  ::testing::AssertionResult refuses(const std::string& sentence, const json& changes) {
    json changed = config;
    changed.merge_patch(changes);
    write(folder / "config.json", changed.dump());
    return fails_with(sentence, [&] { load_language_model(folder); });
  }

  json config;
};

TEST_F(HostileFolder, SizesAreBounded) {
  EXPECT_TRUE(refuses("config.json: language model: expected n_layer of at most 16384", {{"n_layer", 1'000'000'000}}));
  EXPECT_TRUE(refuses("expected n_layer of at most", {{"n_layer", int64_t{1} << 62}}));
  for (const char* name : {"n_embd", "n_head", "mlp_width"})
    for (const int64_t size : {(int64_t{1} << 20) + 1, int64_t{1} << 62, INT64_MAX})
      EXPECT_TRUE(refuses(std::string("expected ") + name + " of at most 1048576", {{name, size}}));
  EXPECT_TRUE(refuses("expected vocab_size of at most 16777216", {{"vocab_size", INT64_MAX}}));
  for (const char* name : {"fem_dim", "qk_dim", "conv_hidden", "ssm_rank"})
    EXPECT_TRUE(refuses(std::string("mixer options: expected ") + name + " of at most 1048576",
                        {{"mixer", {{name, INT64_MAX}}}}));
  EXPECT_TRUE(refuses("expected a window of at most", {{"mixer", {{"window", INT64_MAX}}}}));
  EXPECT_TRUE(refuses("expected fem_ratio to give a width of at most", {{"mixer", {{"fem_ratio", 1e300}}}}));
  EXPECT_TRUE(
      refuses("expected p_t_to_fem_ratio to give a width of at most", {{"mixer", {{"p_t_to_fem_ratio", 1e300}}}}));
}

// Terabytes, each of them within the bounds.
TEST_F(HostileFolder, SizesAreComparedWithTheWeightsBeforeAnythingIsAllocated) {
  EXPECT_TRUE(refuses("tensors, too few for the 16384 layers of config.json beside it", {{"n_layer", 16384}}));
  EXPECT_TRUE(refuses("expected embedding.weight of shape [16777216, 1048576] as asked for by config.json",
                      {{"vocab_size", 16777216}, {"n_embd", 1048576}}));
  EXPECT_TRUE(refuses("of shape [1048576, 8] as asked for by config.json", {{"mlp_width", 1048576}}));
  EXPECT_TRUE(refuses("asked for by config.json",
                      {{"mixer", {{"prior_type", "mamba"}, {"fem_dim", 262144}, {"ssm_rank", 1048576}}}}));
  EXPECT_TRUE(refuses("has no blocks.2.mixer_norm.weight, asked for by config.json beside it", {{"n_layer", 3}}));
  EXPECT_TRUE(refuses("not asked for by config.json beside it", {{"n_layer", 1}}));
}

TEST_F(HostileFolder, NestedJsonIsRefused) {
  const std::string nested = std::string(66'000, '[') + std::string(66'000, ']');
  const auto load = [&] { load_language_model(folder); };
  write(folder / "config.json", nested);
  EXPECT_TRUE(fails_with("config.json: expected JSON of at most 64 levels", load));
  write(folder / "config.json", "{\"model_type\": \"fem_language_model\", \"mixer\": " + nested + "}");
  EXPECT_TRUE(fails_with("config.json: expected JSON of at most 64 levels", load));
  write(folder / "config.json", config.dump());
  load();
  Safetensors content = load_safetensors(folder / "model.safetensors");
  content.metadata["fem.mixer"] = nested;
  save_safetensors(folder / "mixer.safetensors", content);
  EXPECT_TRUE(fails_with("its mixer options: expected JSON of at most 64 levels",
                         [&] { load_mixer(folder / "mixer.safetensors"); }));
  const uint64_t size = nested.size();
  write(folder / "model.safetensors", std::string(reinterpret_cast<const char*>(&size), 8) + nested);
  EXPECT_TRUE(fails_with("model.safetensors: the header: expected JSON of at most 64 levels", load));
}

}  // namespace
}  // namespace fem
