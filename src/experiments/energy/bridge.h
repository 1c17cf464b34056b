// What does a layer of a trained model do to the free energy of its own prior? docs/bridge.md
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "fem/language_model.h"
#include "train/sweep.h"

namespace fem {

// F* of a layer's keys at its queries, keys held fixed, a head and token on average: how much lower it is where the
// stream stands after the mixer's addition, and where a step as long would lead.
struct BridgeLayer {
  double energy = 0;         // before
  double drop = 0;           // by the layer's own update
  double gradient_drop = 0;  // by a step as long along minus the gradient
  double random_drop = 0;    // by one in a random direction
  double cosine = 0;         // between the update and minus the gradient
};

// tokens [B, T]. In float64, whatever the model is trained in.
std::vector<BridgeLayer> measure_bridge(LanguageModel& model, const at::Tensor& tokens);

struct BridgeModel {
  std::string name;  // those of one name are a model trained several times
  std::filesystem::path folder;
};
BridgeModel bridge_model(const std::string& assignment);  // "attention=runs/a"

struct BridgePlan {
  std::vector<BridgeModel> models;
  std::filesystem::path text;  // its last tenth is read
  int64_t rows = 16, length = 128;
};

// Axis model; the seed is the place among those of one name, from 1.
Grid bridge_grid(const BridgePlan& plan);

// Adds the models that results.jsonl in out has not yet.
void run_bridge(const BridgePlan& plan, const std::filesystem::path& out);

}  // namespace fem
