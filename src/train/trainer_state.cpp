#include "train/trainer_state.h"

#include "io/atomic_file.h"
#include "io/json.h"
#include "util/check.h"

namespace fem {

void write_trainer_state(const std::filesystem::path& path, const TrainerState& state) {
  const nlohmann::json json{
      {"step", state.step}, {"seconds", state.seconds}, {"best", to_json(state.best)}, {"identity", state.identity}};
  write_atomically(path, [&](std::ostream& file) { file << json.dump(2) << "\n"; });
}

TrainerState read_trainer_state(const std::filesystem::path& path) {
  const std::string whose = "train: " + path.string();
  try {
    const nlohmann::json json = read_json(path, "train");
    TrainerState state{.step = integer_in(json, "step", whose), .seconds = number_in(json, "seconds", whose)};
    FEM_CHECK(state.step >= 0, whose, ": expected a \"step\" of at least 0, got ", state.step);
    FEM_CHECK(json.contains("best") && json.contains("identity"), whose, ": \"best\" or \"identity\" is missing");
    state.best = best_from_json(json["best"]);
    state.identity = json["identity"];
    return state;
  } catch (const c10::Error& error) {
    FEM_CHECK(false, error.what_without_backtrace(), "; it does not tell where to go on: remove that checkpoint");
  }
}

}  // namespace fem
