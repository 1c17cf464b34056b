// What a whole model costs: the paper's Tables 5 and 7.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "bench/shapes.h"
#include "experiments/mixer_rows.h"
#include "fem/backbone.h"

namespace fem {

struct CostTable {
  std::string name;  // "5", "7": whose published figures stand beside ours
  int64_t layers = 0, mlp_width = 0;
  bench::Shape shape;
};

struct CostPlan {
  std::string preset;
  std::vector<CostTable> tables;
  std::vector<MixerRow> rows;  // plain attention, against which each is measured, need not be among them
  int64_t rounds = 0;
  std::filesystem::path out = "runs/cost";
};

CostPlan cost_preset(const std::string& name);  // "smoke", "mini" or "paper"

// The blocks of a row: what is not the mixer is the same in all rows, as in the paper, so that letters come on top.
BackboneOptions cost_options(const MixerRow& row, const CostTable& table);

// Throws one clear sentence if the plan cannot be measured.
void check(const CostPlan& plan);

}  // namespace fem
