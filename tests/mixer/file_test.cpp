#include <ATen/ATen.h>

#include "fem/io/mixer_file.h"
#include "fem/io/safetensors.h"
#include "io/temporary_folder.h"
#include "mixer/random_mixer.h"
#include "support/error_text.h"

namespace fem {
namespace {

using testing::fails_with;
using testing::random_mixer;
using testing::random_tokens;
using testing::small_options;

class MixerFile : public testing::TemporaryFolder {
 protected:
  void SetUp() override {
    TemporaryFolder::SetUp();
    path = folder / "mixer.safetensors";
  }

  // Saves a mixer, changes the file by hand and loads it.
  template <typename Change>
  auto load_changed(Change&& change) {
    save_mixer(path, random_mixer(small_options()));
    Safetensors content = load_safetensors(path);
    change(content);
    save_safetensors(path, content);
    return [this] { load_mixer(path); };
  }

  std::filesystem::path path;
};

TEST_F(MixerFile, GivesTheSameMixerBack) {
  for (const PriorType prior : testing::all_priors())
    for (const Dialect dialect : testing::all_dialects()) {
      MixerOptions options = small_options();
      options.prior_type = prior;
      options.dialect = dialect;
      const FreeEnergyMixer mixer = random_mixer(options, at::kFloat);
      save_mixer(path, mixer);
      const FreeEnergyMixer loaded = load_mixer(path);
      EXPECT_EQ(loaded->options.dialect, dialect);
      const at::Tensor x = random_tokens(2, 5, options, at::kFloat);
      EXPECT_TRUE(at::equal(mixer(x), loaded(x))) << spelled(prior) << " " << spelled(dialect);
      for (const auto& parameter : loaded->named_parameters()) EXPECT_TRUE(parameter->requires_grad());
    }
}

TEST_F(MixerFile, ADamagedOneIsRefusedInWords) {
  EXPECT_TRUE(fails_with("no mixer options", load_changed([](Safetensors& s) { s.metadata.clear(); })));
  EXPECT_TRUE(fails_with("its mixer options: expected JSON",
                         load_changed([](Safetensors& s) { s.metadata["fem.mixer"] = "{"; })));
  EXPECT_TRUE(fails_with("has no W_v.weight", load_changed([](Safetensors& s) { s.tensors.erase("W_v.weight"); })));
  EXPECT_TRUE(fails_with("holds extra", load_changed([](Safetensors& s) { s.tensors["extra"] = at::zeros({1}); })));
  EXPECT_TRUE(fails_with("expected W_o.bias of shape [16]",
                         load_changed([](Safetensors& s) { s.tensors["W_o.bias"] = at::zeros({3}); })));
}

}  // namespace
}  // namespace fem
