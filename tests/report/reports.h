// A sweep's folder that a test writes run by run, and a claim about it.
#pragma once

#include <nlohmann/json.hpp>

#include "io/temporary_folder.h"
#include "report/claim.h"

namespace fem::testing {

class Reports : public testing::TemporaryFolder {
 protected:
  void finish(const std::string& mixer, const std::string& task, const std::string& choice, int64_t seed,
              double accuracy) {
    append_jsonl(folder / "results.jsonl", line(mixer, task, choice, seed, {{"measures", {{"accuracy", accuracy}}}}));
  }
  void fail(const std::string& mixer, const std::string& task, const std::string& choice, int64_t seed) {
    append_jsonl(folder / "results.jsonl", line(mixer, task, choice, seed, {{"error", "the loss is nan"}}));
  }
  static Json line(const std::string& mixer, const std::string& task, const std::string& choice, int64_t seed,
                   const Json& more) {
    Json out{{"run", mixer + "-" + task + "-" + choice + "-" + std::to_string(seed)},
             {"cell", {{"mixer", mixer}, {"task", task}}},
             {"choice", choice},
             {"seed", seed},
             {"reported", seed > 0},
             {"parameters", 1000},
             {"goal", {{"measure", "accuracy"}, {"larger_is_better", true}}},
             {"recipe", {{"train", {{"steps", 8}, {"seed", seed}}}, {"model", {{"mixer", mixer}}}}}};
    out.update(more);
    return out;
  }
  Study study() { return std::move(gather({folder}).at(0)); }

  // Two tasks, mixers a, b, c of which the paper orders c > b > a, with a ladder from a to c.
  Claim claim() {
    write(folder / "claim.toml", R"(
title = "A claim"
row_axis = "mixer"
column_axis = "task"
measure = "accuracy"
unit = "%"
scale = 100
digits = 1
column = [{ label = "recall", title = "Recall" }, { label = "copy", title = "Copy" }]
row = [
  { label = "a", title = "A", published = [10, 20, 15] },
  { label = "b", title = "B", published = [30, { text = "about 40", value = 40 }, 35] },
  { label = "c", title = "C", published = [50, {}, 55] },
]
ladder = [{ title = "letters", rungs = ["a", "b", "c"], steps = ["X", "Y"] }]
)");
    return load_claim(folder / "claim.toml");
  }
};

}  // namespace fem::testing
