#include <algorithm>
#include <ostream>

#include "bench/paired.h"
#include "experiments/cost/experiment.h"
#include "experiments/cost/published.h"
#include "util/table.h"

namespace fem {
namespace {

using Lines = std::vector<Json>;

// The different values of a field, as they come.
std::vector<std::string> values_of(const Lines& lines, const char* name) {
  std::vector<std::string> values;
  for (const Json& line : lines)
    if (std::find(values.begin(), values.end(), line.at(name)) == values.end()) values.push_back(line.at(name));
  return values;
}

Lines lines_with(const Lines& lines, const char* name, const std::string& value) {
  Lines chosen;
  std::copy_if(lines.begin(), lines.end(), std::back_inserter(chosen),
               [&](const Json& line) { return line.at(name) == value; });
  return chosen;
}

double middle(const Lines& rounds, const char* kind, const char* over, const char* under = nullptr) {
  std::vector<double> values;
  for (const Json& line : rounds) {
    const Json& figures = line.at(kind);
    values.push_back(figures.at(over).get<double>() / (under ? figures.at(under).get<double>() : 1.0));
  }
  return bench::median(values);
}

std::string or_nothing(const std::optional<double>& ratio) { return ratio ? fixed(*ratio, 2) : ""; }

std::string shape_words(const Json& config) {
  const Json& model = config.at("model");
  const auto number = [](const Json& value) { return grouped(value.get<int64_t>()); };
  return number(model.at("n_layer")) + " layers x " + number(model.at("n_embd")) + ", " + number(config.at("heads")) +
         " heads, T " + number(config.at("length")) + ", B " + number(config.at("batch"));
}

Table times(const Lines& lines) {
  Table table(
      {"row", "rounds", "forward ms", "tokens/s", "ratio", "paper", "training ms", "tokens/s", "ratio", "paper"});
  for (const std::string& row : values_of(lines, "row")) {
    const Lines rounds = lines_with(lines, "row", row);
    const Json& config = rounds[0].at("config");
    const double tokens = config.at("length").get<double>() * config.at("batch").get<double>();
    const auto paper = published_cost(rounds[0].at("table"), row);
    std::vector<std::string> cells{row, std::to_string(rounds.size())};
    for (const char* kind : {"forward", "training"}) {
      const double ms = middle(rounds, kind, "ms");
      cells.push_back(fixed(ms, ms < 10 ? 2 : 0));
      cells.push_back(grouped(static_cast<int64_t>(tokens / ms * 1e3)));
      cells.push_back(fixed(middle(rounds, kind, "ms", "attention_ms"), 2));
      const bool forward = kind == std::string("forward");
      cells.push_back(paper ? fixed(forward ? paper->forward : paper->training, 2) : "");
    }
    table.add(cells);
  }
  return table;
}

Table amounts(const Lines& lines) {
  Table table({"row", "parameters", "forward MiB", "ratio", "paper", "training MiB", "ratio", "paper", "forward GFLOP",
               "training GFLOP"});
  for (const std::string& row : values_of(lines, "row")) {
    const Lines rounds = lines_with(lines, "row", row);
    const auto paper = published_cost(rounds[0].at("table"), row);
    std::vector<std::string> cells{row, grouped(rounds[0].at("parameters").get<int64_t>())}, products;
    for (const char* kind : {"forward", "training"}) {
      cells.push_back(fixed(middle(rounds, kind, "peak_bytes") / 1048576, 1));
      cells.push_back(fixed(middle(rounds, kind, "peak_bytes", "attention_peak_bytes"), 2));
      const bool forward = kind == std::string("forward");
      cells.push_back(paper ? or_nothing(forward ? paper->forward_memory : paper->training_memory) : "");
      const double flops = middle(rounds, kind, "flops") / 1e9;
      products.push_back(fixed(flops, flops > 1 ? 2 : 5));
    }
    cells.insert(cells.end(), products.begin(), products.end());
    table.add(cells);
  }
  return table;
}

}  // namespace

void print_cost_report(const Lines& all, std::ostream& out) {
  for (const std::string& name : values_of(all, "table")) {
    const Lines lines = lines_with(all, "table", name);
    const Json& machine = lines[0].at("machine");
    out << "\nTable " << name << ": " << shape_words(lines[0].at("config")) << "; preset "
        << lines[0].at("config").at("preset").get<std::string>() << ", float32, "
        << machine.at("threads").get<int64_t>() << " threads on " << machine.at("cpu").get<std::string>() << "\n\n"
        << times(lines).str() << "\n"
        << amounts(lines).str();
  }
  out << "\nMedians over the rounds. Ratio: to plain attention, which runs just before the row in every round; paper: "
         "the "
         "same ratio\nas published, on one L40S. Memory: the most that weights, activations and gradients take at one "
         "time. "
         "GFLOP: products\nonly, 2 a multiply-add, the causal half of attention's.\n";
}

}  // namespace fem
