#pragma once

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "experiments/argmax/config.h"

namespace fem {

struct ArgmaxResult {
  ArgmaxConfig config;
  int64_t parameters = 0;
  double validation_loss = 0;
  double accuracy = 0;
  double seconds = 0;
};

// Runs the plan: one line per finished run in out/results.jsonl, one per evaluation in out/curve.jsonl; later lines of
// a configuration replace earlier ones. With plan.resume, finished runs are skipped and an interrupted one continues.
// Returns the results so far; fewer than plan.runs() if a signal ended it, after the run in progress was saved.
std::vector<ArgmaxResult> run_argmax(const ArgmaxPlan& plan, std::ostream& out);

// The table of the claim: each mixer's accuracy beside the paper's, chance, and whether the order agrees.
void print_argmax_report(const ArgmaxPlan& plan, const std::vector<ArgmaxResult>& results, std::ostream& out);

}  // namespace fem
