// inverted (iTransformer, Liu et al. 2024): a token for every column, which holds its whole window.
#include <ATen/ATen.h>

#include "fem/ops/project.h"
#include "models/backbone.h"
#include "models/forecast_body.h"
#include "models/normalised.h"
#include "nn/parameters.h"

namespace fem {
namespace {

class InvertedBody final : public ForecastBody {
 public:
  void check(const ForecasterOptions& o) const override {
    FEM_CHECK(!o.mixer.causal, "forecaster: body inverted is an encoder; set model.mixer.causal to false");
  }

  std::vector<ParameterSpec> parameters(const ForecasterOptions& o) const override {
    std::vector<ParameterSpec> specs;
    declare_linear(specs, "embedding", o.input, o.n_embd, /*bias=*/true);
    for (ParameterSpec& spec : backbone_parameters(o)) specs.push_back(std::move(spec));
    declare_linear(specs, "head", o.n_embd, o.horizon, /*bias=*/true);
    return specs;
  }

  Predict bind(const ForecasterOptions& o, const std::vector<at::Tensor>& w) const override {
    const BoundBackbone backbone(o, {w.begin() + 2, w.end() - 2});
    const at::Tensor embedding = w[0], bias = w[1], head = w[w.size() - 2], head_bias = w.back();
    const double dropout = o.dropout;
    return [=](const at::Tensor& windows, const at::Tensor& targets, bool training, Trace* trace) -> Forecast {
      const Normalised x = normalised(windows, windows.mean(1, /*keepdim=*/true));
      const at::Tensor columns = x.windows.transpose(1, 2).contiguous();  // [B, C, L]
      const at::Tensor embedded = at::dropout(project(columns, {embedding}, {bias})[0], dropout, training);
      if (trace) trace->emplace_back("embedding", embedded);
      const at::Tensor hidden = backbone(embedded, {.training = training, .trace = trace}).index_select(1, targets);
      return {restored(project(hidden, {head}, {head_bias})[0].transpose(1, 2), x, targets), {}};
    };
  }
};

}  // namespace

const ForecastBody& inverted_body() {
  static const InvertedBody body;
  return body;
}

}  // namespace fem
