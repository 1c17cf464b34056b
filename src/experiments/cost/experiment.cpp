#include "experiments/cost/experiment.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <ostream>

#include "bench/machine.h"
#include "bench/memory.h"
#include "bench/paired.h"
#include "experiments/cost/flops.h"
#include "fem/language_model.h"
#include "io/folder_lock.h"
#include "io/language_model_config.h"
#include "io/versions.h"
#include "util/check.h"
#include "util/interrupt.h"
#include "util/progress.h"
#include "util/table.h"

namespace fem {
namespace {

// A row that is to be measured in some rounds.
struct CostCell {
  CostTable table;
  MixerRow row;
  std::vector<int64_t> rounds;
};

// The blocks of a model at work on random hidden states: embedding and head are the same in all rows and left out.
class CostModel {
 public:
  CostModel(const BackboneOptions& options, const bench::Shape& shape) : backbone_(options) {
    at::manual_seed(1);
    x_ = at::randn({shape.batch, shape.length, shape.dim}).requires_grad_();
    gradient_ = at::randn_like(x_);
    for (const at::Tensor& parameter : backbone_->parameters()) weights_ += static_cast<int64_t>(parameter.nbytes());
  }

  bench::Work forward() {
    return [this] {
      const at::NoGradGuard no_gradients;
      backbone_(x_);
    };
  }

  bench::Work training() {
    return [this] {
      backbone_(x_).backward(gradient_);
      backbone_->zero_grad();
      x_.mutable_grad() = at::Tensor();
    };
  }

  // At the most, with the weights. The first run also finds the allocator's and BLAS's buffers in place for the next.
  int64_t peak(const bench::Work& work) const { return weights_ + bench::memory_of(work).peak_bytes; }

  int64_t parameters() const { return weights_ / static_cast<int64_t>(x_.element_size()); }

 private:
  Backbone backbone_;
  at::Tensor x_, gradient_;
  int64_t weights_ = 0;
};

Json cost_config(const CostPlan& plan, const CostTable& table, const MixerRow& row) {
  const bench::Shape& s = table.shape;
  return {{"preset", plan.preset},
          {"heads", s.heads},
          {"length", s.length},
          {"batch", s.batch},
          {"model", to_json(cost_options(row, table))}};
}

// One of forward and training, of the row and of attention.
struct CostKind {
  const char* name;
  bench::Work own, attention;
  int64_t flops, peak = 0, attention_peak = 0;
};

Json measured(const CostKind& kind) {
  const double attention = bench::milliseconds(kind.attention), own = bench::milliseconds(kind.own);
  return {{"ms", own},
          {"attention_ms", attention},
          {"peak_bytes", kind.peak},
          {"attention_peak_bytes", kind.attention_peak},
          {"flops", kind.flops}};
}

// False if a signal came.
bool measure(const CostPlan& plan, const CostCell& cell, Progress& progress, int64_t& done) {
  const BackboneOptions options = cost_options(cell.row, cell.table);
  CostModel own(options, cell.table.shape),
      attention(cost_options(mixer_row("attention"), cell.table), cell.table.shape);
  const bench::Flops flops = backbone_flops(options, cell.table.shape);
  std::vector<CostKind> kinds{{"forward", own.forward(), attention.forward(), flops.forward},
                              {"training", own.training(), attention.training(), flops.training()}};
  for (CostKind& kind : kinds) {
    if (interrupted()) return false;
    kind.peak = own.peak(kind.own);
    if (interrupted()) return false;
    kind.attention_peak = attention.peak(kind.attention);
  }
  for (const int64_t round : cell.rounds) {
    if (interrupted()) return false;
    Json line{{"experiment", "cost"},
              {"table", cell.table.name},
              {"row", cell.row.label()},
              {"round", round},
              {"parameters", own.parameters()}};
    for (const CostKind& kind : kinds) line[kind.name] = measured(kind);
    line["config"] = cost_config(plan, cell.table, cell.row);
    line["machine"] = bench::to_json(bench::this_machine());
    line["versions"] = versions_json();
    append_jsonl(plan.out / "results.jsonl", line);
    progress.update(++done, "Table " + cell.table.name + " " + cell.row.label());
  }
  return !interrupted();
}

// The configuration of a line with the defaults of options that are newer than it.
Json completed_config(Json config) {
  config["model"] = to_json(backbone_options_from_json(nlohmann::json(config.at("model"))));
  return config;
}

// What the lines do not have. A line of another configuration or machine would be compared with what it cannot be.
std::vector<CostCell> missing(const CostPlan& plan, const std::vector<Json>& lines) {
  const Json machine = bench::to_json(bench::this_machine()), versions = versions_json();
  for (const Json& line : lines)
    FEM_CHECK(line.at("machine") == machine && line.at("versions") == versions,
              "cost: ", (plan.out / "results.jsonl").string(),
              " was measured on another machine, with other versions or other threads; give another --out");
  std::vector<CostCell> cells;
  for (const CostTable& table : plan.tables)
    for (const MixerRow& row : plan.rows) {
      CostCell cell{table, row, {}};
      const Json config = cost_config(plan, table, row);
      for (int64_t round = 0; round < plan.rounds; ++round) {
        const auto known = std::find_if(lines.begin(), lines.end(), [&](const Json& line) {
          return line.at("table") == table.name && line.at("row") == row.label() && line.at("round") == round;
        });
        FEM_CHECK(known == lines.end() || completed_config(known->at("config")) == config,
                  "cost: ", (plan.out / "results.jsonl").string(), " has ", row.label(), " of Table ", table.name,
                  " with other options or of another preset; give another --out");
        if (known == lines.end()) cell.rounds.push_back(round);
      }
      if (!cell.rounds.empty()) cells.push_back(cell);
    }
  return cells;
}

// One block of attention on one row of the batch is timed, and the rest taken as slow by its products.
void print_estimate(const CostPlan& plan, const std::vector<CostCell>& cells, std::ostream& out) {
  double seconds = 0;
  for (const CostTable& table : plan.tables) {
    CostTable one = table;
    one.layers = one.shape.batch = 1;
    const BackboneOptions plain = cost_options(mixer_row("attention"), one);
    CostModel block(plain, one.shape);
    block.training()();
    const double both = bench::milliseconds(block.forward()) + bench::milliseconds(block.training());
    const auto products = [&](const MixerRow& row) {
      return static_cast<double>(backbone_flops(cost_options(row, one), one.shape).training());
    };
    const double attention = products(mixer_row("attention"));
    for (const CostCell& cell : cells)
      if (cell.table.name == table.name)
        seconds += both / 1e3 * static_cast<double>(table.layers * table.shape.batch) *
                   static_cast<double>(cell.rounds.size() + 1) * (1 + std::max(1.0, products(cell.row) / attention));
    out << "Table " << table.name << " (" << plan.preset << "): " << table.layers << " layers x " << table.shape.dim
        << ", " << table.shape.heads << " heads, T " << grouped(table.shape.length) << ", B " << table.shape.batch
        << "\n";
  }
  out << "estimated cost: about " << clock_text(seconds) << " with " << at::get_num_threads()
      << " threads, if rows are as fast a product as attention; some are slower\n"
      << std::flush;
}

}  // namespace

bool run_cost(const CostPlan& plan, std::ostream& out) {
  check(plan);
  std::filesystem::create_directories(plan.out);
  const FolderLock only(plan.out, "experiment");
  const bool begun = std::filesystem::exists(plan.out / "results.jsonl");
  const std::vector<CostCell> cells = missing(plan, begun ? cost_lines(plan.out) : std::vector<Json>());
  if (cells.empty()) return true;
  const InterruptGuard guard;
  print_estimate(plan, cells, out);
  int64_t total = 0, done = 0;
  for (const CostCell& cell : cells) total += static_cast<int64_t>(cell.rounds.size());
  Progress progress("cost", total, "round");
  return std::all_of(cells.begin(), cells.end(),
                     [&](const CostCell& cell) { return measure(plan, cell, progress, done); });
}

std::vector<Json> cost_lines(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "results.jsonl";
  const std::vector<Json> lines = read_jsonl(file);
  FEM_CHECK(!lines.empty(), "cost: expected measurements in ", file.string(), ", got none");
  const auto whole = [](const Json& line) {
    const auto kind = [&](const char* name) {
      if (!line.contains(name) || !line[name].is_object()) return false;
      for (const char* figure : {"ms", "attention_ms", "peak_bytes", "attention_peak_bytes", "flops"})
        if (!line[name].contains(figure) || !line[name][figure].is_number() || !(line[name][figure] > 0)) return false;
      return true;
    };
    for (const char* name : {"table", "row"})
      if (!line.contains(name) || !line[name].is_string()) return false;
    for (const char* name : {"round", "parameters"})
      if (!line.contains(name) || !line[name].is_number_integer()) return false;
    for (const char* name : {"config", "machine", "versions"})
      if (!line.contains(name) || !line[name].is_object()) return false;
    return kind("forward") && kind("training");
  };
  for (size_t i = 0; i < lines.size(); ++i)
    FEM_CHECK(whole(lines[i]), "cost: ", file.string(), ": line ", i + 1,
              " is no measurement of this experiment: ", lines[i].dump().substr(0, 80), "; remove it");
  return lines;
}

}  // namespace fem
