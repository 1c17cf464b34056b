#include "train/checkpoint.h"

#include <vector>

#include "io/atomic_file.h"
#include "io/checksums.h"
#include "util/check.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

// Not checkpoints: one being written, one being removed, one that a run no longer goes by.
constexpr const char *kUnfinished = "unfinished-", *kOld = "old-", *kAside = "aside-";

}  // namespace

Checkpoints::Checkpoints(const fs::path& run, int64_t keep) : run_(run), folder_(checkpoints_path(run)), keep_(keep) {}

std::optional<CheckpointFolder> Checkpoints::newest() const {
  const std::vector<CheckpointFolder> all = checkpoints_of(run_);
  return all.empty() ? std::nullopt : std::optional(all.back());
}

std::optional<CheckpointFolder> Checkpoints::start(std::optional<int64_t> step) const {
  std::vector<CheckpointFolder> all = checkpoints_of(run_);
  if (step) {
    std::string known;
    for (const CheckpointFolder& one : all) known += (known.empty() ? "" : ", ") + std::to_string(one.step);
    std::erase_if(all, [&](const CheckpointFolder& one) { return one.step > *step; });
    FEM_CHECK(!all.empty() && all.back().step == *step, "train: --resume-from ", *step, ": expected one of the steps ",
              known.empty() ? "of a checkpoint, but there is none" : known);
  }
  if (all.empty()) return std::nullopt;
  const CheckpointFolder chosen = all.back();
  const std::string damage = damage_in(chosen.folder);
  if (damage.empty()) return chosen;
  for (all.pop_back(); !all.empty() && !damage_in(all.back().folder).empty();) all.pop_back();
  FEM_CHECK(!all.empty(), "train: ", damage, "; no checkpoint of ", run_.string(), " before it is whole: start again");
  FEM_CHECK(false, "train: ", damage, "; step ", all.back().step, " before it is whole: add --resume-from ",
            all.back().step, " to go on from there");
}

void Checkpoints::set_aside_after(int64_t step) const {
  for (const CheckpointFolder& one : checkpoints_of(run_)) {
    if (one.step <= step) continue;
    const fs::path aside = folder_ / (kAside + checkpoint_name(one.step));
    fs::remove_all(aside);
    fs::rename(one.folder, aside);
  }
}

fs::path Checkpoints::at(int64_t step) const {
  const fs::path folder = folder_ / checkpoint_name(step);
  FEM_CHECK(fs::is_directory(folder), "train: expected a checkpoint at ", folder.string(),
            ", but it is not there; start the run again");
  return folder;
}

void Checkpoints::write(int64_t step, const std::function<void(const fs::path&)>& fill, std::optional<int64_t> best) {
  fs::create_directories(folder_);
  remove_leftovers();
  const fs::path name = folder_ / checkpoint_name(step), unfinished = folder_ / (kUnfinished + checkpoint_name(step));
  if (!fs::exists(name)) {  // else a run that stopped right here and went on
    try {
      fs::create_directory(unfinished);
      fill(unfinished);
      write_checksums(unfinished);
      rename_folder(unfinished, name);
    } catch (...) {
      std::error_code ignored;
      fs::remove_all(unfinished, ignored);
      throw;
    }
  }
  if (best == step) point_to_best(step);
  const std::vector<CheckpointFolder> all = checkpoints_of(run_);
  for (size_t i = 0; i + keep_ < all.size(); ++i) {
    if (all[i].step == best) continue;
    // Under another name first: a half-removed folder must not look like a checkpoint.
    const fs::path old = folder_ / (kOld + checkpoint_name(all[i].step));
    fs::rename(all[i].folder, old);
    fs::remove_all(old);
  }
}

void Checkpoints::point_to_best(int64_t step) const {
  const fs::path link = run_ / "best", made = run_ / "best.tmp";
  fs::remove(made);
  fs::create_directory_symlink(folder_.filename() / checkpoint_name(step), made);
  fs::rename(made, link);
}

void Checkpoints::remove_leftovers() const {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
    const std::string name = entry.path().filename().string();
    if (checkpoint_step(name, kUnfinished) || checkpoint_step(name, kOld)) fs::remove_all(entry.path());
  }
}

}  // namespace fem
