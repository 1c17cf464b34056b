#include "tasks/mad/data.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tasks/mad/generator.h"

namespace fem {
namespace {

MadSet draw_set(const MadGenerator& generator, Draws& draws, int64_t examples, bool training) {
  const MadSet set{at::empty({examples, generator.tokens()}, at::kLong),
                   at::empty({examples, generator.tokens()}, at::kLong)};
  int64_t* tokens = set.tokens.data_ptr<int64_t>();
  int64_t* targets = set.targets.data_ptr<int64_t>();
  for (int64_t n = 0; n < examples; ++n) {
    const MadExample example = generator.draw(draws, training);
    tokens = std::copy(example.tokens.begin(), example.tokens.end(), tokens);
    targets = std::copy(example.targets.begin(), example.targets.end(), targets);
  }
  return set;
}

}  // namespace

MadData mad_data(const MadDataOptions& options) {
  Draws draws(static_cast<uint64_t>(options.seed));
  const auto generator = mad_generator(options, draws);
  const MadSet train = draw_set(*generator, draws, options.train_examples, /*training=*/true);
  return {train, draw_set(*generator, draws, options.test_examples, /*training=*/false)};
}

double macro_accuracy(const at::Tensor& predicted, const at::Tensor& targets, int64_t classes) {
  const at::Tensor hits = at::bincount(targets.masked_select(predicted == targets), {}, classes).to(at::kDouble);
  const at::Tensor wanted = at::bincount(targets, {}, classes), named = at::bincount(predicted, {}, classes);
  const at::Tensor occurs = wanted + named > 0;
  return (hits / wanted.clamp_min(1)).masked_select(occurs).mean().item<double>();
}

void MadScore::add(const at::Tensor& logits, const at::Tensor& all_targets) {
  const at::Tensor counts = all_targets != kMadIgnored;
  const at::Tensor wanted = all_targets.masked_select(counts), rows = logits.index({counts});
  if (wanted.numel() == 0) return;
  const at::Tensor predicted = rows.argmax(-1);
  nats += at::cross_entropy_loss(rows.to(at::kFloat), wanted, {}, at::Reduction::Sum).item<double>();
  targets += static_cast<double>(wanted.numel());
  hits += predicted.eq(wanted).sum().item<double>();
  recall += macro_accuracy(predicted, wanted, logits.size(-1));
  batches += 1;
}

}  // namespace fem
