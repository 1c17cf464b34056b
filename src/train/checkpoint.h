#pragma once

#include <filesystem>
#include <functional>
#include <optional>

namespace fem {

// The checkpoints of a run: <run>/checkpoints/step-00000100, ... A folder under such a name is complete, whatever
// happened to the process that wrote it.
class Checkpoints {
 public:
  Checkpoints(const std::filesystem::path& run, int64_t keep);

  // The newest one's folder and step.
  struct Entry {
    std::filesystem::path folder;
    int64_t step;
  };
  std::optional<Entry> newest() const;

  // fill writes all files into the folder it is given; then the folder takes its name, and old ones go but the best.
  void write(int64_t step, const std::function<void(const std::filesystem::path& folder)>& fill,
             std::optional<int64_t> best = std::nullopt);

  // The checkpoint of a step that is still there. <run>/best leads people to that of the best one.
  std::filesystem::path at(int64_t step) const;

 private:
  void remove_leftovers() const;
  void point_to_best(int64_t step) const;

  std::filesystem::path folder_;
  int64_t keep_;
};

}  // namespace fem
