#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fem/backbone.h"
#include "fem/mixer.h"
#include "fem/options.h"

namespace fem {

// How a window of the past becomes a forecast, a row each of forecast_body_of in src/models/forecaster.cpp.
enum class ForecastBodyType { kSegments, kDlinear, kPatches, kInverted };
template <>
struct Spelling<ForecastBodyType> {
  static constexpr std::array values{std::pair{std::string_view("segments"), ForecastBodyType::kSegments},
                                     std::pair{std::string_view("dlinear"), ForecastBodyType::kDlinear},
                                     std::pair{std::string_view("patches"), ForecastBodyType::kPatches},
                                     std::pair{std::string_view("inverted"), ForecastBodyType::kInverted}};
};

inline constexpr int64_t kLongestInput = 1 << 20;  // rows of a window

// A model of a table of numbers: the last `input` rows of all columns -> the next `horizon` rows of the targets.
struct ForecasterOptions : BackboneOptions {
  ForecastBodyType body = ForecastBodyType::kSegments;
  int64_t horizon = 0;
  int64_t input = 0;
  std::vector<std::string> columns;
  std::vector<std::string> targets;     // of the columns
  std::vector<double> mean, deviation;  // of the columns, by which values are standardised
};

// Calls visit(name, field, help) for every field that the backbone has not.
template <typename Options, typename Visitor>
void visit_forecaster_options(Options& o, Visitor&& visit) {
  visit("body", o.body,
        "segments: on the backbone, a token for every horizon; or to compare with it: dlinear, patches (PatchTST), "
        "inverted (iTransformer)");
  visit("horizon", o.horizon, "rows of a forecast");
  visit("input", o.input, "rows of the past that a forecast is made of");
  visit("columns", o.columns, "names of the columns that are read");
  visit("targets", o.targets, "names of those that are forecast");
  visit("mean", o.mean, "of the columns over the training rows");
  visit("deviation", o.deviation, "of the columns over the training rows; 1 where there is none");
}

// Throws one clear sentence unless a model can be made of the options.
void check(const ForecasterOptions& options);

// Widths that are left open (0): n_embd 32 floor(sqrt(columns)), mlp_width 4 n_embd.
ForecasterOptions with_widths(ForecasterOptions options);

// Every parameter of a configuration in a fixed order, without allocating it.
std::vector<ParameterSpec> forecaster_parameters(const ForecasterOptions& options);

class BoundForecaster;

class ForecasterImpl : public torch::nn::Module {
 public:
  explicit ForecasterImpl(const ForecasterOptions& options);

  // Standardised windows [B, input, columns] -> standardised forecasts [B, horizon, targets]. What becomes of a window
  // does not depend on those beside it, but for rounding.
  at::Tensor forward(const at::Tensor& windows);
  // The same in the units of the table, without gradients or dropout, and to the last bit whatever the batch.
  at::Tensor predict(const at::Tensor& values);

  // Squared error of every window [B]: the mean over the forecast, plus that over what the model says of the window
  // itself, segment by segment, if it does.
  at::Tensor loss(const at::Tensor& windows, const at::Tensor& future);

  Trace trace(const at::Tensor& windows);

  at::Tensor standardised(const at::Tensor& values) const;  // [..., columns] float64 -> float32
  at::Tensor targets_of(const at::Tensor& values) const;    // [..., columns] -> [..., targets]

  const ForecasterOptions options;

 private:
  std::shared_ptr<const BoundForecaster> bound_;
};

class Forecaster : public torch::nn::ModuleHolder<ForecasterImpl> {
 public:
  using torch::nn::ModuleHolder<ForecasterImpl>::ModuleHolder;
  using Impl = ForecasterImpl;

  template <typename... Arguments>
  at::Tensor operator()(Arguments&&... arguments) const {
    return impl_->forward(std::forward<Arguments>(arguments)...);
  }
};

}  // namespace fem
