// What the reads of a model are like on average, layer by layer.
#pragma once

#include <functional>
#include <vector>

#include "inspect/subject.h"

namespace fem {

// Of one layer: means over tokens, heads and channels.
class LayerStatistics {
 public:
  void add(const Inspection& i);

  double rank() const { return rank_.mean(); }              // effective, of the channel-by-token weights
  double prior_rank() const { return prior_rank_.mean(); }  // of the prior's
  double disagree() const { return disagree_.mean(); }      // share of channels whose choice is not the prior's
  double moved() const {
    return moved_.mean();
  }  // share of the weights that lies elsewhere than the prior's: lambda |q - p| / 2
  double kl() const { return kl_.mean(); }  // KL(q||p), nats
  double lambda() const { return lambda_.mean(); }
  double capped() const { return capped_.mean(); }
  double hidden_beta(double share) const;  // the quantile
  Json json() const;

 private:
  struct Mean {
    void add(const at::Tensor& x);
    double mean() const { return count > 0 ? sum / static_cast<double>(count) : 0; }
    double sum = 0;
    int64_t count = 0;
  };
  Mean rank_, prior_rank_, disagree_, moved_, kl_, lambda_, capped_, energy_, energy_gradient_;
  mutable std::vector<float> hidden_beta_;  // all there are, sorted when a quantile is asked for
};

// Every token of one forward pass, some at a time; visit is told every part of a layer.
using OnInspection =
    std::function<void(int64_t layer, const std::vector<int64_t>& positions, const Inspection& inspection)>;
void inspect_all(const ModelInspector& inspector, const OnInspection& visit);

// Of all that the subject has to show. on_batch: how far.
std::vector<LayerStatistics> statistics_of(Subject& subject, const std::function<void(int64_t, int64_t)>& on_batch);

// A table of one or several models, a line for every layer and model. names: of the models.
std::string statistics_table(const std::vector<std::string>& names,
                             const std::vector<std::vector<LayerStatistics>>& models);

}  // namespace fem
