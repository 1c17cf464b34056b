// The tied toy: queries that descend on the free energy of fixed keys, a layer a step, by each rule of fem/energy.h.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "train/sweep.h"

namespace fem {

struct ToyPlan {
  int64_t keys = 32, width = 8, queries = 256, layers = 8;
  double rate = 0.3, decay = 0.5;
  std::vector<double> temperatures{4, 1, 0.5, 0.25};
  std::vector<int64_t> seeds{1, 2, 3};
};

std::vector<std::string> toy_rules();

// What one rule does to the queries of a seed.
struct ToyRun {
  std::vector<double> energy;  // before the first layer and after each: F*, median over the queries
  double indefinite = 0;       // share of queries at whose first place the Hessian has a negative eigenvalue
  double risen = 0;            // share of queries whose F* is higher at the end than at first
};
ToyRun run_toy(const ToyPlan& plan, const std::string& rule, double temperature, int64_t seed);

// Axes rule and temperature.
Grid toy_grid(const ToyPlan& plan);

// Adds the runs that results.jsonl in out has not yet.
void run_toy(const ToyPlan& plan, const std::filesystem::path& out);

}  // namespace fem
