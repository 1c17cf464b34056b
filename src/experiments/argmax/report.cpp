// The argmax claim's table.
#include <cmath>
#include <map>
#include <optional>
#include <ostream>

#include "experiments/argmax/experiment.h"
#include "util/table.h"

namespace fem {
namespace {

struct Summary {
  double mean = 0;
  std::optional<double> standard_error;  // absent for a single seed

  std::string percent() const {
    return fixed(100 * mean, 2) + (standard_error ? " ± " + fixed(100 * *standard_error, 2) : "") + " %";
  }
};

Summary summarize(const std::vector<double>& values) {
  Summary s;
  for (const double v : values) s.mean += v / values.size();
  if (values.size() > 1) {
    double squares = 0;
    for (const double v : values) squares += (v - s.mean) * (v - s.mean);
    s.standard_error = std::sqrt(squares / (values.size() - 1) / values.size());
  }
  return s;
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
    table.add({mixer, std::to_string(accuracies.size()), grouped(parameters), accuracy.percent(),
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
