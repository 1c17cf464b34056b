// The argmax claim's table.
#include <map>
#include <ostream>

#include "experiments/argmax/experiment.h"
#include "train/summary.h"
#include "util/table.h"

namespace fem {
namespace {

std::string percent(const Summary& s) {
  return fixed(100 * s.mean, 2) + (s.standard_error ? " ± " + fixed(100 * *s.standard_error, 2) : "") + " %";
}

// The paper shows the softmax prior.
std::string paper_figure(const ArgmaxPlan& plan, const std::string& mixer) {
  return plan.run.prior != "softmax" ? "" : mixer == "fem" ? "~100 %" : "1-2 %";
}

}  // namespace

void print_argmax_report(const ArgmaxPlan& plan, const std::vector<ArgmaxResult>& results, std::ostream& out) {
  Table table({plan.run.prior + " prior", "seeds", "parameters", "index accuracy", "validation loss", "paper (D 512)"});
  std::map<std::string, double> accuracy_of;
  for (const std::string& mixer : plan.mixers) {
    std::vector<double> accuracies, losses;
    int64_t parameters = 0;
    for (const ArgmaxResult& r : results) {
      if (r.config.mixer != mixer) continue;
      accuracies.push_back(r.accuracy);
      losses.push_back(r.validation_loss);
      parameters = r.parameters;
    }
    if (accuracies.empty()) continue;
    const Summary accuracy = summarize(accuracies);
    accuracy_of[mixer] = accuracy.mean;
    table.add({mixer, std::to_string(accuracies.size()), grouped(parameters), percent(accuracy),
               fixed(summarize(losses).mean, 4), paper_figure(plan, mixer)});
  }
  table.add({"chance", "", "", fixed(100.0 / plan.run.length, 2) + " %", "", "0.78 %"});
  out << "\n" << table.str() << "\n";
  if (accuracy_of.size() == 2 && plan.run.prior == "softmax") {
    const bool agrees = accuracy_of.at("fem") > accuracy_of.at("mean");
    out << "Order of the mixers: "
        << (agrees ? "as in the paper, fem above the mean." : "NOT as in the paper: the mean is not below fem.")
        << "\n";
  }
}

}  // namespace fem
