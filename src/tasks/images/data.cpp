#include "tasks/images/data.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>

#include "util/check.h"
#include "util/grouped.h"

namespace fem {

ImageSet images_of(const ImageDataOptions& o, const std::function<void(int64_t, int64_t)>& on_picture) {
  FEM_CHECK(!o.folder.empty(), "classify: expected a folder of pictures; name it with --data DIR");
  for (const auto& [name, value] : {std::pair{"validation", o.validation}, {"test", o.test}})
    FEM_CHECK(value > 0 && value < 0.5, "classify: expected data.", name, " above 0 and below 0.5, got ", value);
  FEM_CHECK(o.crop >= 0 && o.crop <= kLargestSide, "classify: expected data.crop from 0 to ", kLargestSide, ", got ",
            o.crop);
  FEM_CHECK(o.mixup >= 0 && std::isfinite(o.mixup), "classify: expected data.mixup from 0, got ", o.mixup);
  FEM_CHECK(o.label_smoothing >= 0 && o.label_smoothing < 1, "classify: expected data.label_smoothing in [0, 1), got ",
            o.label_smoothing);
  return read_images({.folder = o.folder, .classes = o.classes, .size = o.size, .channels = o.channels}, on_picture);
}

ImageData image_data(const ImageDataOptions& o, const ImageSet& set) {
  constexpr uint64_t kSplitSeed = 20190;
  const int64_t all = set.train.count();
  const auto share = [&](double of) { return std::llround(of * static_cast<double>(all)); };
  const int64_t test = set.test.count() > 0 ? 0 : share(o.test), validation = share(o.validation);
  FEM_CHECK(validation >= 1 && test + set.test.count() >= 1 && validation + test < all,
            "classify: expected enough pictures to train, to choose and to report, got ", grouped(all),
            "; give more, or larger shares data.validation and data.test");
  const at::Tensor order = at::randperm(all, at::detail::createCPUGenerator(kSplitSeed), at::kLong);
  const auto part = [&](int64_t from, int64_t to) {
    return set.train.at(std::get<0>(order.slice(0, from, to).sort()));
  };
  return {part(test + validation, all), part(test, test + validation), test > 0 ? part(0, test) : set.test};
}

ImageClassifierOptions classifier_for(const ImageOptions& o, const ImageSet& set) {
  ImageClassifierOptions model = o.model;
  model.channels = set.train.pixels.size(1);
  model.height = set.train.pixels.size(2);
  model.width = set.train.pixels.size(3);
  model.classes = set.classes;
  const at::Tensor train = image_data(o.data, set).train.pixels;
  for (int64_t channel = 0; channel < model.channels; ++channel) {
    const at::Tensor values = train.select(1, channel).to(at::kFloat) / 255;
    const double deviation = values.std(/*unbiased=*/false).item<double>();
    model.mean.push_back(values.mean().item<double>());
    model.deviation.push_back(deviation > 0 ? deviation : 1.0);
  }
  model = with_widths(model);
  check(model);
  return model;
}

}  // namespace fem
