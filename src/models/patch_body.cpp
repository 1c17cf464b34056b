// patches (PatchTST, Nie et al. 2022): every target by itself, in overlapping patches through an encoder.
#include <ATen/ATen.h>

#include "fem/ops/project.h"
#include "models/backbone.h"
#include "models/forecast_body.h"
#include "models/normalised.h"
#include "nn/parameters.h"

namespace fem {
namespace {

constexpr int64_t kPatch = 16, kStride = 8;

// The last value stands kStride times more at the end.
int64_t patches_of(const ForecasterOptions& o) { return (o.input + kStride - kPatch) / kStride + 1; }

class PatchBody final : public ForecastBody {
 public:
  void check(const ForecasterOptions& o) const override {
    FEM_CHECK(!o.mixer.causal, "forecaster: body patches is an encoder; set model.mixer.causal to false");
    FEM_CHECK(o.input >= kPatch - kStride, "forecaster: body patches needs an input of at least ", kPatch - kStride,
              " rows, got ", o.input);
  }

  std::vector<ParameterSpec> parameters(const ForecasterOptions& o) const override {
    std::vector<ParameterSpec> specs;
    declare_linear(specs, "embedding", kPatch, o.n_embd, /*bias=*/true);
    specs.push_back({"position", {patches_of(o), o.n_embd}, ParameterSpec::Init::kNormal, kLinearDeviation});
    for (ParameterSpec& spec : backbone_parameters(o)) specs.push_back(std::move(spec));
    declare_linear(specs, "head", patches_of(o) * o.n_embd, o.horizon, /*bias=*/true);
    return specs;
  }

  Predict bind(const ForecasterOptions& o, const std::vector<at::Tensor>& w) const override {
    const BoundBackbone backbone(o, {w.begin() + 3, w.end() - 2});
    const at::Tensor embedding = w[0], bias = w[1], position = w[2], head = w[w.size() - 2], head_bias = w.back();
    const double dropout = o.dropout;
    return [=](const at::Tensor& windows, const at::Tensor& targets, bool training, Trace* trace) -> Forecast {
      const int64_t batch = windows.size(0), count = targets.size(0);
      const Normalised x = normalised(windows, windows.mean(1, /*keepdim=*/true));
      const at::Tensor own = x.windows.index_select(2, targets).transpose(1, 2);  // [B, K, L]
      const at::Tensor patches = at::replication_pad1d(own, {0, kStride}).unfold(2, kPatch, kStride).contiguous();
      at::Tensor embedded = project(patches, {embedding}, {bias})[0] + position;
      embedded = at::dropout(embedded, dropout, training).flatten(0, 1);
      if (trace) trace->emplace_back("embedding", embedded);
      const at::Tensor hidden = backbone(embedded, {.training = training, .trace = trace});
      const at::Tensor flat = at::dropout(hidden.reshape({batch, count, -1}), dropout, training);
      return {restored(project(flat, {head}, {head_bias})[0].transpose(1, 2), x, targets), {}};
    };
  }
};

}  // namespace

const ForecastBody& patch_body() {
  static const PatchBody body;
  return body;
}

}  // namespace fem
