#pragma once

#include <filesystem>
#include <functional>
#include <optional>

#include "io/checkpoint_folders.h"

namespace fem {

// The checkpoints of a run: <run>/checkpoints/step-00000100, ... A folder under such a name is complete, whatever
// happened to the process that wrote it, and has the checksums of its files.
class Checkpoints {
 public:
  Checkpoints(const std::filesystem::path& run, int64_t keep);

  std::optional<CheckpointFolder> newest() const;

  // Where a run goes on: the newest one, or that of a step. Throws if its files are not as they were saved, naming the
  // newest one that is whole.
  std::optional<CheckpointFolder> start(std::optional<int64_t> step = std::nullopt) const;

  // A run goes on from an earlier one: those after it are kept under another name, for people to look at.
  void set_aside_after(int64_t step) const;

  // fill writes all files into the folder it is given; then the folder takes its name, and old ones go but the best.
  void write(int64_t step, const std::function<void(const std::filesystem::path& folder)>& fill,
             std::optional<int64_t> best = std::nullopt);

  // The checkpoint of a step that is still there. <run>/best leads people to that of the best one.
  std::filesystem::path at(int64_t step) const;

 private:
  void remove_leftovers() const;
  void point_to_best(int64_t step) const;

  std::filesystem::path run_, folder_;
  int64_t keep_;
};

}  // namespace fem
