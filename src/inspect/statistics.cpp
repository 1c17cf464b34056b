#include "inspect/statistics.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "util/table.h"

namespace fem {
namespace {

constexpr int64_t kAtOnce = 1 << 21;  // numbers of one posterior in memory

std::vector<double> histogram_edges(double smallest, double largest) {
  constexpr int kBins = 32;
  std::vector<double> edges;
  for (int i = 0; i <= kBins; ++i) edges.push_back(smallest + (largest - smallest) * i / kBins);
  return edges;
}

// a, b, ...: names of folders are too long for a table.
std::string letter_of(size_t model) { return std::string(1, static_cast<char>('a' + model % 26)); }

Json finite_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

}  // namespace

void LayerStatistics::Mean::add(const at::Tensor& x) {
  sum += x.to(at::kDouble).sum().item<double>();
  count += x.numel();
}

void LayerStatistics::add(const Inspection& i) {
  rank_.add(i.rank);
  prior_rank_.add(i.prior_rank);
  disagree_.add(i.choice != i.prior_choice);
  moved_.add(i.lambda.abs() * (i.posterior - i.prior).abs().sum(-1) / 2);
  kl_.add(i.kl_qp);
  lambda_.add(i.lambda);
  capped_.add(i.capped);
  if (i.energy.defined()) energy_.add(i.energy), energy_gradient_.add(i.energy_gradient);
  const at::Tensor known = i.hidden_beta.flatten().to(at::kFloat).contiguous();
  for (int64_t n = 0; n < known.numel(); ++n)
    if (const float b = known.const_data_ptr<float>()[n]; !std::isnan(b)) hidden_beta_.push_back(b);
}

double LayerStatistics::hidden_beta(double share) const {
  if (hidden_beta_.empty()) return NAN;
  std::sort(hidden_beta_.begin(), hidden_beta_.end());
  return hidden_beta_[static_cast<size_t>(std::llround(share * static_cast<double>(hidden_beta_.size() - 1)))];
}

Json LayerStatistics::json() const {
  const bool any = !hidden_beta_.empty() && hidden_beta(1) > 0;
  const std::vector<double> edges =
      any ? histogram_edges(std::min(hidden_beta(0), 0.0), hidden_beta(1)) : histogram_edges(0, 1);
  std::vector<int64_t> counts(edges.size() - 1, 0);
  for (const float b : hidden_beta_) {
    const auto above = std::upper_bound(edges.begin(), edges.end(), static_cast<double>(b));
    const auto bin = std::clamp<int64_t>(above - edges.begin() - 1, 0, static_cast<int64_t>(counts.size()) - 1);
    ++counts[static_cast<size_t>(bin)];
  }
  return {{"rank", rank()},
          {"prior_rank", prior_rank()},
          {"disagree", disagree()},
          {"moved", moved()},
          {"kl", kl()},
          {"lambda", lambda()},
          {"capped", capped()},
          {"hidden_beta",
           {{"median", finite_or_null(hidden_beta(0.5))},
            {"low", finite_or_null(hidden_beta(0.1))},
            {"high", finite_or_null(hidden_beta(0.9))},
            {"edges", edges},
            {"counts", counts}}},
          {"energy", energy_.count > 0 ? Json(energy_.mean()) : Json()},
          {"energy_gradient", energy_.count > 0 ? Json(energy_gradient_.mean()) : Json()}};
}

void inspect_all(const ModelInspector& inspector, const OnInspection& visit) {
  const int64_t tokens = inspector.tokens(), width = std::max<int64_t>(inspector.width(), 1);
  const int64_t at_once = std::max<int64_t>(1, kAtOnce / (width * std::max<int64_t>(tokens, 1)));
  for (int64_t layer = 0; layer < inspector.layers(); ++layer)
    for (int64_t first = 0; first < tokens; first += at_once) {
      std::vector<int64_t> positions;
      for (int64_t t = first; t < std::min(first + at_once, tokens); ++t) positions.push_back(t);
      visit(layer, positions, inspector.layer(layer, positions));
    }
}

std::vector<LayerStatistics> statistics_of(Subject& subject, const std::function<void(int64_t, int64_t)>& on_batch) {
  const at::NoGradGuard no_gradients;
  std::vector<LayerStatistics> layers(static_cast<size_t>(subject.options().n_layer));
  for (int64_t batch = 0; batch < subject.batches(); ++batch) {
    const ModelInspector inspector(subject.model(), subject.options(), subject.trace(batch));
    inspect_all(inspector, [&](int64_t layer, const std::vector<int64_t>&, const Inspection& i) {
      layers[static_cast<size_t>(layer)].add(i);
    });
    if (on_batch) on_batch(batch + 1, subject.batches());
  }
  return layers;
}

std::string statistics_table(const std::vector<std::string>& names,
                             const std::vector<std::vector<LayerStatistics>>& models) {
  const auto percent = [](double share) { return fixed(100 * share, 1) + " %"; };
  Table table({"layer", "rank", "prior's", "other", "moved", "nats", "beta* 10-50-90%", "lambda", "at cap"});
  size_t layers = 0;
  for (const auto& model : models) layers = std::max(layers, model.size());
  for (size_t layer = 0; layer < layers; ++layer)
    for (size_t m = 0; m < models.size(); ++m) {
      if (layer >= models[m].size()) continue;
      const LayerStatistics& s = models[m][layer];
      const auto beta = [&](double share) { return fixed(s.hidden_beta(share), 2); };
      table.add({std::to_string(layer) + (names.size() > 1 ? " " + letter_of(m) : ""), fixed(s.rank(), 2),
                 fixed(s.prior_rank(), 2), percent(s.disagree()), percent(s.moved()), fixed(s.kl(), 3),
                 beta(0.1) + " " + beta(0.5) + " " + beta(0.9), fixed(s.lambda(), 2), percent(s.capped())});
    }
  std::string text = table.str();
  if (names.size() > 1)
    for (size_t m = 0; m < names.size(); ++m) text += (m == 0 ? "\n" : "") + letter_of(m) + ": " + names[m] + "\n";
  return text;
}

}  // namespace fem
