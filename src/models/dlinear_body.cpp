// dlinear (Zeng et al. 2023): a linear layer of the moving average and one of the rest, the same for all targets.
#include <ATen/ATen.h>

#include <cmath>

#include "fem/ops/project.h"
#include "models/forecast_body.h"

namespace fem {
namespace {

constexpr int64_t kAverage = 25;  // rows of the moving average

class DlinearBody final : public ForecastBody {
 public:
  std::vector<ParameterSpec> parameters(const ForecasterOptions& o) const override {
    // As torch's linear layers start: uniform, of this deviation; here normal.
    const double deviation = 1 / std::sqrt(3.0 * static_cast<double>(o.input));
    std::vector<ParameterSpec> specs;
    for (const char* name : {"seasonal", "trend"}) {
      specs.push_back({std::string(name) + ".weight",
                       {o.horizon, o.input},
                       ParameterSpec::Init::kNormal,
                       deviation,
                       {},
                       /*decays=*/true});
      specs.push_back({std::string(name) + ".bias", {o.horizon}, ParameterSpec::Init::kConstant, 0.0});
    }
    return specs;
  }

  Predict bind(const ForecasterOptions&, const std::vector<at::Tensor>& w) const override {
    return [w](const at::Tensor& windows, const at::Tensor& targets, bool /*training*/, Trace* trace) -> Forecast {
      const at::Tensor x = windows.index_select(2, targets).transpose(1, 2).contiguous();  // [B, K, L]
      const at::Tensor ends = at::replication_pad1d(x, {kAverage / 2, kAverage / 2});
      const at::Tensor trend = at::avg_pool1d(ends, kAverage, 1);
      if (trace) trace->emplace_back("trend", trend);
      const at::Tensor future = project(x - trend, {w[0]}, {w[1]})[0] + project(trend, {w[2]}, {w[3]})[0];
      return {future.transpose(1, 2), {}};
    };
  }
};

}  // namespace

const ForecastBody& dlinear_body() {
  static const DlinearBody body;
  return body;
}

}  // namespace fem
