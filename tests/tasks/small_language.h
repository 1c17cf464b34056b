#pragma once

#include "io/temporary_folder.h"
#include "tasks/language.h"

namespace fem::testing {

// A fixture with a few short texts and a recipe that learns them in a second.
class SmallLanguage : public TemporaryFolder {
 protected:
  void SetUp() override {
    TemporaryFolder::SetUp();
    std::filesystem::create_directories(folder / "text");
    for (int i = 0; i < 6; ++i) {
      std::string text;
      for (int line = 0; line < 20; ++line)
        text += "line " + std::to_string(line * i) + " of file " + std::to_string(i) + "\n";
      write(folder / "text" / (std::to_string(i) + ".txt"), text);
    }
    options.corpus.train = {(folder / "text").string()};
    options.corpus.cache = folder / "cache";
    options.length = 32;
    options.model.n_embd = 32;
    options.model.n_head = 2;
    options.model.n_layer = 2;
    options.model.mlp_width = 48;
    options.model.mixer.conv_hidden = 8;
    train.steps = 6;
    train.batch = 4;
    train.warmup_steps = 2;
    train.learning_rate = 1e-2;
    train.precision = Precision::kFloat32;
    train.checkpoint_every = 2;
    train.validate_every = 3;
    train.log_every = 1;
  }

  LanguageOptions options;
  TrainOptions train;
};

}  // namespace fem::testing
