#include "train/checkpoint.h"

#include <c10/util/Exception.h>

#include "io/temporary_folder.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

class CheckpointFolders : public testing::TemporaryFolder {
 protected:
  std::function<void(const fs::path&)> content(const std::string& text) {
    return [text](const fs::path& into) { write(into / "model", text); };
  }
};

TEST_F(CheckpointFolders, TheNewestIsFoundAndOldOnesGo) {
  Checkpoints checkpoints(folder, 2);
  EXPECT_FALSE(checkpoints.newest());
  for (const int64_t step : {5, 90, 100, 1000}) checkpoints.write(step, content(std::to_string(step)));
  EXPECT_EQ(checkpoints.newest()->step, 1000);
  EXPECT_EQ(read(checkpoints.newest()->folder / "model"), "1000");
  EXPECT_TRUE(fs::exists(folder / "checkpoints" / "step-00000100"));
  EXPECT_FALSE(fs::exists(folder / "checkpoints" / "step-00000090"));
}

TEST_F(CheckpointFolders, TheBestStaysAndALinkLeadsToIt) {
  Checkpoints checkpoints(folder, 1);
  for (const int64_t step : {10, 20, 30, 40})
    checkpoints.write(step, content(std::to_string(step)), step < 20 ? 10 : 20);
  EXPECT_EQ(checkpoints.newest()->step, 40);
  EXPECT_EQ(read(checkpoints.at(20) / "model"), "20");
  EXPECT_EQ(read(folder / "best" / "model"), "20");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "checkpoints"), fs::directory_iterator()), 2);
  checkpoints.write(50, content("50"), 50);
  EXPECT_EQ(read(folder / "best" / "model"), "50");
  EXPECT_FALSE(fs::exists(folder / "checkpoints" / "step-00000020"));
  EXPECT_THROW(checkpoints.at(20), c10::Error);
}

TEST_F(CheckpointFolders, AFailedWriteLeavesTheOldOneAlone) {
  Checkpoints checkpoints(folder, 1);
  checkpoints.write(1, content("good"));
  EXPECT_THROW(checkpoints.write(2,
                                 [](const fs::path& into) {
                                   write(into / "model", "half");
                                   throw std::runtime_error("disk full");
                                 }),
               std::runtime_error);
  EXPECT_EQ(checkpoints.newest()->step, 1);
  EXPECT_EQ(read(checkpoints.newest()->folder / "model"), "good");
  EXPECT_FALSE(fs::exists(folder / "checkpoints" / "unfinished-step-00000002"));
}

TEST_F(CheckpointFolders, WhatAKilledProcessLeftIsNoCheckpointAndGoes) {
  Checkpoints checkpoints(folder, 1);
  checkpoints.write(1, content("good"));
  for (const char* name : {"unfinished-step-00000002", "old-step-00000000"})
    fs::create_directories(folder / "checkpoints" / name);
  EXPECT_EQ(checkpoints.newest()->step, 1);
  checkpoints.write(3, content("new"));
  EXPECT_EQ(checkpoints.newest()->step, 3);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "checkpoints"), fs::directory_iterator()), 1);
}

}  // namespace
}  // namespace fem
