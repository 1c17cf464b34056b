#include "models/forecaster.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "models/backbone.h"
#include "nn/parameters.h"
#include "util/check.h"

namespace fem {
namespace {

at::Tensor double_vector(const std::vector<double>& values) { return at::tensor(values, at::kDouble); }

}  // namespace

at::Tensor target_places(const ForecasterOptions& o) {
  std::vector<int64_t> places;
  for (const std::string& target : o.targets)
    places.push_back(std::find(o.columns.begin(), o.columns.end(), target) - o.columns.begin());
  return at::tensor(places, at::kLong);
}

const ForecastBody& forecast_body_of(ForecastBodyType type) {
  switch (type) {
    case ForecastBodyType::kSegments:
      return segment_body();
    case ForecastBodyType::kDlinear:
      return dlinear_body();
    case ForecastBodyType::kPatches:
      return patch_body();
    case ForecastBodyType::kInverted:
      return inverted_body();
  }
  FEM_CHECK(false, "forecast_body_of: expected one of the bodies in fem/forecaster.h, got number ",
            static_cast<int>(type));
}

ForecasterOptions with_widths(ForecasterOptions o) {
  constexpr int64_t kWidth = 32, kHidden = 4;
  if (o.n_embd == 0)
    o.n_embd = kWidth * static_cast<int64_t>(std::sqrt(static_cast<double>(std::max<size_t>(o.columns.size(), 1))));
  if (o.mlp_width == 0) o.mlp_width = kHidden * o.n_embd;
  o.mixer.n_embd = o.n_embd;
  o.mixer.n_head = o.n_head;
  return o;
}

void check(const ForecasterOptions& o) {
  for (const auto& [name, value] : {std::pair{"horizon", o.horizon}, {"input", o.input}}) {
    FEM_CHECK(value >= 1, "forecaster: expected ", name, " of at least 1 row, got ", value);
    FEM_CHECK(value <= kLongestInput, "forecaster: expected ", name, " of at most ", kLongestInput, " rows, got ",
              value);
  }
  FEM_CHECK(!o.columns.empty() && !o.targets.empty(), "forecaster: expected at least one column and one target, got ",
            o.columns.size(), " and ", o.targets.size());
  const std::set<std::string> columns(o.columns.begin(), o.columns.end()), targets(o.targets.begin(), o.targets.end());
  FEM_CHECK(columns.size() == o.columns.size() && targets.size() == o.targets.size(),
            "forecaster: expected every column and every target once");
  for (const std::string& target : o.targets)
    FEM_CHECK(columns.contains(target), "forecaster: expected targets among the columns, got '", target, "'");
  FEM_CHECK(o.mean.size() == o.columns.size() && o.deviation.size() == o.columns.size(),
            "forecaster: expected a mean and a deviation for each of the ", o.columns.size(), " columns, got ",
            o.mean.size(), " and ", o.deviation.size());
  for (size_t i = 0; i < o.columns.size(); ++i)
    FEM_CHECK(std::isfinite(o.mean[i]) && std::isfinite(o.deviation[i]) && o.deviation[i] > 0,
              "forecaster: expected a finite mean and a positive deviation of column '", o.columns[i], "', got ",
              o.mean[i], " and ", o.deviation[i]);
  check_backbone(o, "forecaster");
  forecast_body_of(o.body).check(o);
}

std::vector<ParameterSpec> forecaster_parameters(const ForecasterOptions& options) {
  check(options);
  return forecast_body_of(options.body).parameters(options);
}

BoundForecaster::BoundForecaster(const ForecasterOptions& given, const std::vector<at::Tensor>& weights)
    : options(given),
      like_(weights.front()),
      mean_(double_vector(given.mean)),
      deviation_(double_vector(given.deviation)),
      targets_(target_places(given)),
      body_(forecast_body_of(given.body).bind(given, weights)) {}

at::Tensor BoundForecaster::targets_of(const at::Tensor& values) const { return values.index_select(-1, targets_); }

at::Tensor BoundForecaster::standardised(const at::Tensor& values) const {
  return ((values.to(at::kDouble) - mean_) / deviation_).to(like_.scalar_type());
}

Forecast BoundForecaster::forecast(const at::Tensor& windows, bool training, Trace* trace) const {
  const auto columns = static_cast<int64_t>(options.columns.size());
  FEM_CHECK(windows.dim() == 3 && windows.size(1) == options.input && windows.size(2) == columns,
            "forecaster: expected windows of shape [B, input=", options.input, ", columns=", columns, "], got ",
            shape_of(windows));
  FEM_CHECK(windows.scalar_type() == like_.scalar_type(), "forecaster: expected windows as ", like_.scalar_type(),
            " like the weights, got ", windows.scalar_type());
  return body_(windows, targets_, training, trace);
}

at::Tensor BoundForecaster::predict(const at::Tensor& values) const {
  const at::NoGradGuard no_grad;
  const at::Tensor windows = standardised(values);
  // One by one: products of few rows are rounded otherwise than those of many.
  std::vector<at::Tensor> futures;
  for (int64_t i = 0; i < windows.size(0); ++i)
    futures.push_back(forecast(windows.slice(0, i, i + 1), /*training=*/false).future.to(at::kDouble));
  const auto targets = static_cast<int64_t>(options.targets.size());
  const at::Tensor all = futures.empty() ? at::zeros({0, options.horizon, targets}, at::kDouble) : at::cat(futures);
  return all * targets_of(deviation_) + targets_of(mean_);
}

ForecasterImpl::ForecasterImpl(const ForecasterOptions& given)
    : options(with_widths(given)),
      bound_(std::make_shared<BoundForecaster>(options, register_parameters(*this, forecaster_parameters(options)))) {}

at::Tensor ForecasterImpl::forward(const at::Tensor& windows) {
  return bound_->forecast(windows, is_training()).future;
}

at::Tensor ForecasterImpl::predict(const at::Tensor& values) { return bound_->predict(values); }

at::Tensor ForecasterImpl::loss(const at::Tensor& windows, const at::Tensor& future) {
  const Forecast said = bound_->forecast(windows, is_training());
  const auto error = [](const at::Tensor& said_of, const at::Tensor& real) {
    return (said_of - real).square().mean({1, 2});
  };
  const at::Tensor own = error(said.future, targets_of(future));
  if (!said.past.defined() || said.past.size(1) == 0) return own;
  return own + error(said.past, targets_of(windows.slice(1, -said.past.size(1))));
}

Trace ForecasterImpl::trace(const at::Tensor& windows) {
  Trace made;
  made.emplace_back("forecast", bound_->forecast(windows, is_training(), &made).future);
  return made;
}

at::Tensor ForecasterImpl::standardised(const at::Tensor& values) const { return bound_->standardised(values); }

at::Tensor ForecasterImpl::targets_of(const at::Tensor& values) const { return bound_->targets_of(values); }

}  // namespace fem
