#include "tasks/images/augment.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "util/hash.h"

namespace fem {
namespace {

// What is drawn for a row, each from a number of its own.
enum Drawn : uint64_t { kVariation, kTop, kLeft, kMirror, kPartner, kPartnersVariation, kMixture };

uint64_t drawn(uint64_t number, Drawn what) { return splitmix64(splitmix64(number) + what); }

// The share of the first of two pictures: Beta(alpha, alpha).
double mixture(double alpha, uint64_t number) {
  const at::Generator generator = at::detail::createCPUGenerator(number);
  const at::Tensor both = at::_standard_gamma(at::full({2}, alpha, at::kDouble), generator);
  const double first = both[0].item<double>(), second = both[1].item<double>();
  return first + second > 0 ? first / (first + second) : 0.5;
}

}  // namespace

at::Tensor varied(const at::Tensor& pixels, const ImageDataOptions& o, uint64_t number) {
  at::Tensor picture = pixels;
  if (o.crop > 0) {
    const auto places = static_cast<uint64_t>(2 * o.crop + 1);
    const auto top = static_cast<int64_t>(drawn(number, kTop) % places),
               left = static_cast<int64_t>(drawn(number, kLeft) % places);
    picture = at::constant_pad_nd(picture, {o.crop, o.crop, o.crop, o.crop});
    picture = picture.slice(1, top, top + pixels.size(1)).slice(2, left, left + pixels.size(2));
  }
  return o.flip && drawn(number, kMirror) % 2 == 1 ? picture.flip(2) : picture;
}

ImageRows augmented_rows(const LabelledImages& images, int64_t classes, const ImageDataOptions& o,
                         const EpochOrder& order, const Rows& rows) {
  const auto sizes = images.pixels.sizes();
  ImageRows made{at::empty({rows.count, sizes[1], sizes[2], sizes[3]}, at::kFloat),
                 at::full({rows.count, classes}, o.label_smoothing / static_cast<double>(classes), at::kFloat)};
  const auto* const labels = images.labels.const_data_ptr<int64_t>();
  const auto add = [&](int64_t row, int64_t item, double share, uint64_t number) {
    const at::Tensor picture = varied(images.pixels[item], o, number).to(at::kFloat);
    if (share == 1)
      made.pixels[row].copy_(picture);
    else
      made.pixels[row].add_(picture, share);
    made.targets[row][labels[item]] += share * (1 - o.label_smoothing);
  };
  if (o.mixup > 0) made.pixels.zero_();
  for (int64_t i = 0; i < rows.count; ++i) {
    const auto [item, epoch_seed] = order.of(rows.first + i * rows.stride);
    const uint64_t number = splitmix64(epoch_seed + splitmix64(static_cast<uint64_t>(item)));
    const double share = o.mixup > 0 ? mixture(o.mixup, drawn(number, kMixture)) : 1;
    add(i, item, share, drawn(number, kVariation));
    if (share == 1) continue;
    const auto other = static_cast<int64_t>(drawn(number, kPartner) % static_cast<uint64_t>(images.count()));
    add(i, other, 1 - share, drawn(number, kPartnersVariation));
  }
  return made;
}

}  // namespace fem
