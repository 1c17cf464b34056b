// segments: the window in segments as long as the horizon, each the next one's past.
#include <ATen/ATen.h>

#include "fem/ops/project.h"
#include "models/backbone.h"
#include "models/forecast_body.h"
#include "models/normalised.h"
#include "nn/parameters.h"

namespace fem {
namespace {

int64_t segments_of(const ForecasterOptions& o) { return (o.input + o.horizon - 1) / o.horizon; }

// Two tokens a segment and target: what all columns are there, mixed by a matrix, and what the target itself is. After
// the second of them the model says the segment that follows.
class SegmentBody final : public ForecastBody {
 public:
  void check(const ForecasterOptions& o) const override {
    FEM_CHECK(o.mixer.causal, "forecaster: body segments needs a causal mixer, got mixer.causal = false");
  }

  std::vector<ParameterSpec> parameters(const ForecasterOptions& o) const override {
    const auto columns = static_cast<int64_t>(o.columns.size()), targets = static_cast<int64_t>(o.targets.size());
    using Init = ParameterSpec::Init;
    std::vector<ParameterSpec> specs{
        {"context.weight", {targets, columns}, Init::kConstant, 1.0 / static_cast<double>(columns), {}, true}};
    declare_linear(specs, "embedding", o.horizon, o.n_embd, /*bias=*/true);
    specs.push_back({"position", {2 * segments_of(o), o.n_embd}, Init::kConstant, 0.0});
    specs.push_back({"channel", {targets, o.n_embd}, Init::kConstant, 0.0});
    for (ParameterSpec& spec : backbone_parameters(o)) specs.push_back(std::move(spec));
    declare_linear(specs, "head", o.n_embd, o.horizon, /*bias=*/true);
    return specs;
  }

  Predict bind(const ForecasterOptions& o, const std::vector<at::Tensor>& w) const override {
    const BoundBackbone backbone(o, {w.begin() + 5, w.end() - 2});
    const at::Tensor context = w[0], embedding = w[1], bias = w[2], position = w[3], channel = w[4],
                     head = w[w.size() - 2], head_bias = w.back();
    const int64_t length = o.horizon, segments = segments_of(o), padding = segments * length - o.input;
    const double dropout = o.dropout;
    return [=](const at::Tensor& windows, const at::Tensor& targets, bool training, Trace* trace) -> Forecast {
      const int64_t batch = windows.size(0), count = targets.size(0);
      const Normalised x = normalised(windows, windows.slice(1, -length).mean(1, /*keepdim=*/true));
      const at::Tensor padded = at::constant_pad_nd(x.windows, {0, 0, padding, 0});
      const auto by_target = [&](const at::Tensor& rows) {  // [B, N P, K] -> [B, K, N, P]
        return rows.view({batch, segments, length, count}).permute({0, 3, 1, 2});
      };
      const at::Tensor mixed = by_target(project(padded, {context})[0]),
                       own = by_target(padded.index_select(2, targets));
      const at::Tensor tokens = at::stack({mixed, own}, 3).flatten(2, 3);  // [B, K, 2 N, P]
      at::Tensor embedded = project(tokens, {embedding}, {bias})[0] + position + channel.unsqueeze(1);
      embedded = at::dropout(embedded, dropout, training);
      if (trace) trace->emplace_back("embedding", embedded);
      const at::Tensor hidden = backbone(embedded.flatten(0, 1), {.training = training, .trace = trace});
      const at::Tensor after_own = hidden.view({batch, count, segments, 2, -1}).select(3, 1);
      const at::Tensor next = project(after_own, {head}, {head_bias})[0];  // [B, K, N, P]
      const at::Tensor rows = restored(next.permute({0, 2, 3, 1}).flatten(1, 2), x, targets);
      return {rows.slice(1, -length), rows.slice(1, 0, -length)};
    };
  }
};

}  // namespace

const ForecastBody& segment_body() {
  static const SegmentBody body;
  return body;
}

}  // namespace fem
