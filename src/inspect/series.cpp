#include <ATen/ATen.h>

#include <algorithm>

#include "inspect/subject.h"
#include "tasks/forecast/report.h"
#include "util/check.h"

namespace fem {
namespace {

class SeriesSubject final : public Subject {
 public:
  SeriesSubject(const SubjectOptions& options, const std::filesystem::path& csv, const std::string& target)
      : name_(options.model.string()),
        trained_(load_trained_forecaster(options.model, csv)),
        data_(forecast_data(trained_.model->options, trained_.data, series_of(trained_.data))) {
    trained_.model = to_look_at(trained_.model, trained_.model->options, options.fresh);
    windows_ = spread(data_.windows.count(SeriesPart::kTest), options.rows);
    const std::vector<std::string>& targets = trained_.model->options.targets;
    const auto found = target.empty() ? targets.begin() : std::find(targets.begin(), targets.end(), target);
    FEM_CHECK(found != targets.end(), "inspect: expected --target to be one that the model forecasts, got '", target,
              "'");
    target_ = found - targets.begin();
  }

  const BackboneOptions& options() const override { return trained_.model->options; }
  torch::nn::Module& model() override { return *trained_.model; }
  int64_t batches() const override { return static_cast<int64_t>(windows_.size()); }
  const char* unit_of_loss() const override { return "squared error of standardised values"; }

  Trace trace(int64_t batch) override { return trained_.model->trace(window(batch).past); }

  SummedLoss loss(int64_t batch) override {
    const Windows::Rows rows = window(batch);
    const at::Tensor error = (trained_.model(rows.past) - trained_.model->targets_of(rows.future)).square();
    return {error.mean().item<double>(), 1};
  }

  // The last window of the table, and the tokens of one target.
  Shown shown() override {
    const ForecasterOptions& model = trained_.model->options;
    const int64_t rows = data_.series.rows(), first = rows - model.input;
    const at::Tensor past = trained_.model->standardised(columns_of(data_.series, model).slice(0, first)).unsqueeze(0);
    Shown shown{.trace = row_of(trained_.model->trace(past), target_), .kind = "series"};
    const std::string& target = model.targets[static_cast<size_t>(target_)];
    shown.title = name_ + ", " + target;
    const int64_t tokens = found_tokens(shown.trace);
    if (model.body == ForecastBodyType::kSegments) {
      // Two tokens a segment: what all columns are there, and what the target is.
      const int64_t segments = tokens / 2, padding = segments * model.horizon - model.input;
      for (int64_t s = 0; s < segments; ++s) {
        const int64_t begin = std::max<int64_t>(s * model.horizon - padding, 0),
                      end = (s + 1) * model.horizon - padding;
        const std::string when =
            data_.series.stamp_text(first + begin) + " to " + data_.series.stamp_text(first + end - 1);
        shown.tokens.push_back("all columns, " + when);
        shown.tokens.push_back(target + ", " + when);
      }
    } else {
      for (int64_t i = 0; i < tokens; ++i) shown.tokens.push_back("token " + std::to_string(i + 1));
    }
    return shown;
  }

 private:
  static int64_t found_tokens(const Trace& trace) { return trace.front().second.size(1); }

  Windows::Rows window(int64_t batch) const {
    const int64_t number = windows_[static_cast<size_t>(batch)];
    Windows::Rows rows = data_.windows.range(SeriesPart::kTest, number, number + 1);
    return {rows.past.to(at::kDouble), rows.future.to(at::kDouble)};
  }

  std::string name_;
  TrainedForecaster trained_;
  ForecastData data_;
  std::vector<int64_t> windows_;
  int64_t target_ = 0;
};

}  // namespace

std::unique_ptr<Subject> series_subject(const SubjectOptions& options, const std::filesystem::path& csv,
                                        const std::string& target) {
  return std::make_unique<SeriesSubject>(options, csv, target);
}

}  // namespace fem
