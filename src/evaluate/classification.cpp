#include "evaluate/classification.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace fem {

int64_t ClassificationScore::pictures() const { return confusion.sum().item<int64_t>(); }
int64_t ClassificationScore::hits() const { return confusion.diagonal().sum().item<int64_t>(); }
double ClassificationScore::accuracy() const { return static_cast<double>(hits()) / static_cast<double>(pictures()); }
double ClassificationScore::loss() const { return nats / static_cast<double>(pictures()); }

ClassificationScore score_images(ImageClassifier& model, const LabelledImages& images,
                                 const ClassificationOptions& options) {
  const at::NoGradGuard no_grad;
  model->eval();
  const auto classes = static_cast<int64_t>(model->options.classes.size());
  ClassificationScore score{at::zeros({classes, classes}, at::kLong)};
  const int64_t all = images.count();
  for (int64_t first = options.share * options.batch; first < all; first += options.shares * options.batch) {
    const int64_t last = std::min(first + options.batch, all);
    const at::Tensor labels = images.labels.slice(0, first, last);
    const at::Tensor logits = model(model->standardised(images.pixels.slice(0, first, last))).to(at::kFloat);
    score.nats += at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum).item<double>();
    const at::Tensor cells = labels * classes + logits.argmax(1);
    score.confusion.view(-1).index_add_(0, cells, at::ones_like(cells));
    if (options.on_batch) options.on_batch(std::min(first + options.shares * options.batch, all), all);
  }
  return score;
}

}  // namespace fem
