// What the paper says of an experiment, and which differences it is about: experiments/*/claim.toml.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "report/study.h"

namespace fem {

struct Published {
  std::string text;             // as printed, "1 to 2"
  std::optional<double> value;  // to compare with; none if nothing is published
};

struct ClaimRow {
  std::string label, title;          // ours, the paper's
  std::vector<Published> published;  // a figure a column, then that of their average if there are several
};

struct ClaimColumn {
  std::string label, title;
};

// Rows of which each has something that the one before has not: steps[i] leads from rungs[i] to rungs[i + 1].
struct Ladder {
  std::string title;
  std::vector<std::string> rungs, steps;
};

struct Claim {
  std::string title, question, source, remark, command;
  std::string row_axis, column_axis;  // no column_axis: the measure is the only column
  std::string measure, unit;
  double scale = 1;  // of our measure to the unit
  int64_t digits = 4;
  bool places = false;                  // what is published are places in an order, 1 the best, and no figures
  std::string along = "training step";  // what curves go along
  std::vector<ClaimColumn> columns;
  std::vector<ClaimRow> rows;
  std::vector<Ladder> ladders;
};

Claim load_claim(const std::filesystem::path& path);

// Those that came with this program.
std::vector<Claim> shipped_claims();

// The claim that has these axes, one of these measures, a column of these and the most of these rows; none if none has
// any.
const Claim* claim_about(const Study& study, const std::vector<Claim>& claims);

}  // namespace fem
