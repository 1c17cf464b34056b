#include "train/trainer_state.h"

#include "io/temporary_folder.h"
#include "support/error_text.h"
#include "train/sweep.h"

namespace fem {
namespace {

using nlohmann::json;
using testing::fails_with;

class TrainerStateFile : public testing::TemporaryFolder {
 protected:
  ::testing::AssertionResult refuses(const std::string& sentence, const std::string& text) {
    write(folder / "trainer_state.json", text);
    return fails_with(sentence, [&] { read_trainer_state(folder / "trainer_state.json"); });
  }
};

TEST_F(TrainerStateFile, SurvivesTheRoundTrip) {
  const TrainerState saved{7, 1.5, {.validated = 6, .step = 4, .value = 0.25, .since = 1}, {{"task", "a"}}};
  write_trainer_state(folder / "a.json", saved);
  const TrainerState again = read_trainer_state(folder / "a.json");
  EXPECT_EQ(std::tie(again.step, again.seconds, again.identity), std::tie(saved.step, saved.seconds, saved.identity));
  EXPECT_EQ(to_json(again.best), to_json(saved.best));
}

TEST_F(TrainerStateFile, ADamagedOneIsOneSentence) {
  const json whole{{"step", 1}, {"seconds", 1.0}, {"best", to_json(Best{})}, {"identity", json::object()}};
  const auto with = [&](const char* name, const json& value) {
    json changed = whole;
    changed[name] = value;
    return changed.dump();
  };
  EXPECT_TRUE(refuses("trainer_state.json: expected JSON, but line 1", "{"));
  EXPECT_TRUE(refuses("remove that checkpoint", ""));
  EXPECT_TRUE(refuses("at most 64 levels", std::string(66'000, '[') + std::string(66'000, ']')));
  EXPECT_TRUE(refuses("expected an object with \"step\"", "[]"));
  EXPECT_TRUE(refuses("expected \"step\" to be an integer, got \"1\"", with("step", "1")));
  EXPECT_TRUE(refuses("expected a \"step\" of at least 0, got -1", with("step", -1)));
  EXPECT_TRUE(refuses("expected \"seconds\" to be a number, got null", with("seconds", nullptr)));
  EXPECT_TRUE(refuses("the best validation: expected an object with \"validated\"", with("best", 5)));
  json without = whole;
  without.erase("identity");
  EXPECT_TRUE(refuses("\"best\" or \"identity\" is missing", without.dump()));
}

TEST_F(TrainerStateFile, LinesThatAreNoResultsOfASweepAreNamed) {
  const json result{{"run", "a"}, {"recipe", json::object()}, {"parameters", 5}, {"measures", {{"loss", 1.0}}}};
  const json goal{{"measure", "loss"}, {"larger_is_better", false}};
  const auto read = [&](const json& line) {
    write(folder / "results.jsonl", line.dump() + "\n");
    return [&] { SweepResults{folder / "results.jsonl"}; };
  };
  const auto with = [&](const char* name, const json& value) {
    json changed = result;
    changed["goal"] = goal;
    changed[name] = value;
    return changed;
  };
  read(with("run", "b"))();
  for (const json& line : {result, with("run", 3), with("goal", "loss"), with("goal", {{"measure", "loss"}}),
                           with("measures", 5), with("measures", json::object()), with("parameters", "5"),
                           json{{"run", "a"}, {"recipe", 1}, {"error", 5}}, json::object()})
    EXPECT_TRUE(fails_with("results.jsonl: expected lines with the result of a run, got ", read(line))) << line;
}

}  // namespace
}  // namespace fem
