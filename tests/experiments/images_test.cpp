// The grid of Table 3: what each cell trains, and how large it is.
#include <gtest/gtest.h>

#include "experiments/images/plan.h"
#include "io/temporary_folder.h"
#include "support/error_text.h"
#include "tasks/images/task.h"

namespace fem {
namespace {

using testing::fails_with;

class ImagesGrid : public testing::TemporaryFolder {
 protected:
  void SetUp() override {
    TemporaryFolder::SetUp();
    const std::string head{0, 0, 8, 3, 0, 0, 0, 20, 0, 0, 0, 28, 0, 0, 0, 28}, label_head{0, 0, 8, 1, 0, 0, 0, 20};
    std::string labels;
    for (int i = 0; i < 20; ++i) labels += static_cast<char>(i % 10);
    for (const std::string part : {"train", "t10k"}) {
      write(folder / (part + "-images-idx3-ubyte"), head + std::string(20 * 28 * 28, 'a'));
      write(folder / (part + "-labels-idx1-ubyte"), label_head + labels);
    }
  }
  ImagesPlan plan(const std::string& preset) const {
    ImagesPlan plan = images_preset(preset);
    plan.folder = folder;
    return plan;
  }
};

TEST_F(ImagesGrid, EveryMixerHasAsManyParametersAsAttention) {
  const Grid grid = grid_of(plan("mini"));
  const auto parameters = [&](size_t cell) {
    double all = 0;
    nlohmann::json recipe = run_of(grid, cell, 0, 1).recipe;
    EXPECT_EQ(recipe["data"]["folder"], kFashionFolder);  // wherever the pictures lie
    recipe.merge_patch(grid.cells[cell].places);
    for (const auto& [part, own] : images_entry().parameters(recipe)) all += static_cast<double>(own);
    return all;
  };
  ASSERT_EQ(grid.cells.size(), 4);
  for (size_t cell = 1; cell < 4; ++cell) EXPECT_NEAR(parameters(cell) / parameters(0), 1, 0.01) << cell;
}

TEST_F(ImagesGrid, ARowTrainsItsMixerAsAnEncoder) {
  const Grid grid = grid_of(plan("mini"));
  const auto model = [&](size_t cell) { return image_options_from_json(run_of(grid, cell, 1, 2).recipe).model; };
  EXPECT_EQ(grid.cells[0].labels, (std::vector<std::string>{"attention", "fashion-mnist"}));
  EXPECT_EQ(model(0).block_mixer, BlockMixer::kAttention);
  EXPECT_EQ(model(1).mixer.prior_type, PriorType::kSoftmax);
  EXPECT_EQ(model(2).mixer.prior_type, PriorType::kGla);
  EXPECT_EQ(std::pair(model(2).mixer.use_lse, model(2).mixer.use_conv), std::pair(false, false));
  EXPECT_EQ(std::pair(model(3).mixer.use_lse, model(3).mixer.use_conv), std::pair(true, true));
  for (size_t cell = 0; cell < 4; ++cell)
    EXPECT_EQ(std::pair(model(cell).mixer.causal, model(cell).mixer.use_rope.value_or(true)), std::pair(false, false));
  const nlohmann::json train = run_of(grid, 3, 1, 2).recipe["train"];
  EXPECT_EQ(train["learning_rate"], 3e-3);
  EXPECT_EQ(train["seed"], 2);
  EXPECT_EQ(grid.choosing_seeds, std::vector<int64_t>{0});
}

TEST_F(ImagesGrid, CostAndPresets) {
  EXPECT_EQ(images_cost(grid_of(plan("smoke"))).substr(0, 40), "6 runs, at most 18 steps, 0 million toke");
  EXPECT_EQ(grid_of(plan("paper")).cells.size(), 8);
  EXPECT_TRUE(fails_with("name it with --data", [] { grid_of(images_preset("paper")); }));
  EXPECT_TRUE(fails_with("expected --preset smoke, mini or paper", [] { images_preset("large"); }));
}

}  // namespace
}  // namespace fem
