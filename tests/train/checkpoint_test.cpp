#include "train/checkpoint.h"

#include <c10/util/Exception.h>

#include <set>

#include "io/checksums.h"
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

TEST_F(CheckpointFolders, OnlyWhatHasExactlyOurNamesIsOurs) {
  Checkpoints checkpoints(folder, 1);
  checkpoints.write(7, content("7"));
  const fs::path at = folder / "checkpoints";
  std::set<std::string> foreign;
  for (const char* name :
       {"step-foo", "step-1", "step-00000001x", "step--0000001", "step- 0000009", "step-000000012", "old-photos",
        "unfinished-novel", "old-step-1", "unfinished-step-foo", "aside-step-00000002"})
    fs::create_directories(at / *foreign.insert(name).first);
  write(at / *foreign.insert("step-00000009").first, "a file");
  EXPECT_EQ(checkpoints.newest()->step, 7);
  EXPECT_EQ(checkpoints_of(folder).size(), 1u);
  checkpoints.write(8, content("8"));
  for (const std::string& name : foreign) EXPECT_TRUE(fs::exists(at / name)) << name;
  EXPECT_FALSE(fs::exists(at / "step-00000007"));
}

TEST_F(CheckpointFolders, TheNewestIsTheLargestNumberWhateverItsLength) {
  Checkpoints checkpoints(folder, 9);
  for (const int64_t step : {99999999999L, 99999999L, 100000000L})
    checkpoints.write(step, content(std::to_string(step)));
  EXPECT_EQ(checkpoints.newest()->step, 99999999999);
  EXPECT_EQ(checkpoints_of(folder).front().step, 99999999);
}

TEST_F(CheckpointFolders, AListOfChecksumsLeadsToNoOtherFolder) {
  write(folder / "checksums", std::string(32, '0') + "  /dev/zero\n");
  EXPECT_NE(damage_in(folder).find("checksums is damaged"), std::string::npos);
}

TEST_F(CheckpointFolders, EveryFlippedBitIsFound) {
  Checkpoints checkpoints(folder, 1);
  checkpoints.write(1, [](const fs::path& into) {
    write(into / "model", std::string(100, 'm'));
    write(into / "optimizer", "o");
    write(into / "empty", "");
  });
  const fs::path at = checkpoints.at(1);
  EXPECT_EQ(damage_in(at), "");
  int64_t flips = 0;
  for (const char* name : {"model", "optimizer", "checksums"}) {
    const std::string whole = read(at / name);
    std::fstream file(at / name, std::ios::in | std::ios::out | std::ios::binary);
    const auto put = [&](size_t place, char byte) { file.seekp(static_cast<std::streamoff>(place)).put(byte).flush(); };
    for (size_t bit = 0; bit < 8 * whole.size(); ++bit, ++flips) {
      put(bit / 8, static_cast<char>(whole[bit / 8] ^ (1 << (bit % 8))));
      EXPECT_NE(damage_in(at), "") << name << " bit " << bit;
      put(bit / 8, whole[bit / 8]);
    }
    for (size_t size = whole.size(); size-- > 0;) {
      fs::resize_file(at / name, size);
      EXPECT_NE(damage_in(at), "") << name << " cut to " << size;
    }
    write(at / name, whole);
  }
  EXPECT_GT(flips, 1500);
  EXPECT_EQ(damage_in(at), "");
}

}  // namespace
}  // namespace fem
