#include "ops/modulate/again.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "ops/modulate/modulate.h"
#include "util/width.h"

namespace fem {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Maker = MakeAgainGuard::Maker;

constexpr size_t kSlots = 6;    // for what an input is made from; one that is kept itself has the first
constexpr size_t kNumbers = 3;  // of modulate

thread_local MakeAgainGuard* innermost = nullptr;

at::Tensor normalised(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return at::layer_norm(x, {width_of(x)}, weight, bias, 1e-5);
}

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const at::Tensor y = normalised(x, weight, bias);
  if (innermost) innermost->add(y, Maker::kLayerNorm, {x, weight, bias});
  return y;
}

MakeAgainGuard::MakeAgainGuard(int64_t smallest) : smallest_(smallest), outer_(std::exchange(innermost, this)) {}
MakeAgainGuard::~MakeAgainGuard() { innermost = outer_; }

MakeAgainGuard* MakeAgainGuard::current() { return innermost; }

void MakeAgainGuard::add(const at::Tensor& output, Maker maker, variable_list inputs, const ModulateNumbers& numbers) {
  const c10::SymInt size = output.sym_numel();
  if (size.is_symbolic() || size.expect_int() >= smallest_)
    made_.push_back({WeakTensor(output.getIntrusivePtr()), maker, std::move(inputs), numbers});
}

const MakeAgainGuard::Made* MakeAgainGuard::find(const at::Tensor& output) const {
  const auto is_it = [&](const Made& made) { return made.output._unsafe_get_target() == output.unsafeGetTensorImpl(); };
  const auto found = std::find_if(made_.begin(), made_.end(), is_it);
  return found == made_.end() ? nullptr : &*found;
}

void KeptInputs::add(const at::Tensor& input) {
  variable_list slots{input};
  Maker maker = Maker::kNone;
  ModulateNumbers numbers;
  if (const auto* made = innermost && input.defined() ? innermost->find(input) : nullptr) {
    slots = made->inputs;
    maker = made->maker;
    numbers = made->numbers;
  }
  slots.resize(kSlots);
  tensors_.insert(tensors_.end(), slots.begin(), slots.end());
  makers_.push_back(static_cast<int64_t>(maker));
  for (const double number : {numbers.halves ? 1.0 : 0.0, numbers.floor.value_or(NAN), numbers.added ? 1.0 : 0.0})
    numbers_.push_back(number);
}

void KeptInputs::save(AutogradContext* ctx, const variable_list& others) const {
  variable_list all = tensors_;
  all.insert(all.end(), others.begin(), others.end());
  ctx->save_for_backward(all);
  ctx->saved_data["makers"] = makers_;
  ctx->saved_data["numbers"] = numbers_;
}

SavedInputs::SavedInputs(AutogradContext* ctx)
    : tensors_(ctx->get_saved_variables()),
      makers_(ctx->saved_data["makers"].toIntVector()),
      numbers_(ctx->saved_data["numbers"].toDoubleVector()) {}

bool SavedInputs::is_made_again(size_t index) const { return makers_[index] != static_cast<int64_t>(Maker::kNone); }

at::Tensor SavedInputs::input(size_t index) const {
  const at::Tensor* slot = &tensors_[index * kSlots];
  switch (static_cast<Maker>(makers_[index])) {
    case Maker::kModulate:
      return heads(index, 0, size_of(slot[0], 2));
    case Maker::kLayerNorm:
      return normalised(slot[0], slot[1], slot[2]);
    case Maker::kNone:
      break;
  }
  return slot[0];
}

at::Tensor SavedInputs::heads(size_t index, int64_t first, int64_t count) const {
  const at::Tensor* slot = &tensors_[index * kSlots];
  const at::Tensor x = slot[0].narrow(2, first, count);
  if (!is_made_again(index)) return x;
  const auto part = [&](const at::Tensor& tensor, int64_t dim, int64_t width) {
    return tensor.defined() ? OptionalTensor(tensor.narrow(dim, first * width, count * width)) : std::nullopt;
  };
  const double* number = &numbers_[index * kNumbers];
  return call_modulate(x, if_defined(slot[1]), part(slot[2], 1, width_of(x)), if_defined(slot[3]), if_defined(slot[4]),
                       std::isnan(number[1]) ? std::nullopt : std::optional(number[1]), part(slot[5], 0, 1),
                       number[2] != 0, number[0] != 0);
}

at::TensorList SavedInputs::others() const { return at::TensorList(tensors_).slice(makers_.size() * kSlots); }

}  // namespace fem
