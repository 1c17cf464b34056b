// Keeps its inputs; the factor, which is as wide as x, is formed again in backward. So are its outputs, for operators
// that would keep them (again.h).
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "ops/modulate/again.h"
#include "ops/modulate/modulate.h"
#include "ops/transforms.h"
#include "util/width.h"

namespace fem {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

thread_local MakeAgainGuard* making_again = nullptr;

at::Tensor or_undefined(const OptionalTensor& input) { return input.value_or(at::Tensor()); }

struct ModulateFunction : torch::autograd::Function<ModulateFunction> {
  static constexpr bool is_traceable = true;

  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const OptionalTensor& hidden,
                            const OptionalTensor& weight, const OptionalTensor& cosine, const OptionalTensor& sine,
                            std::optional<double> floor, const OptionalTensor& limit) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    ctx->save_for_backward(
        {x, or_undefined(hidden), or_undefined(weight), or_undefined(cosine), or_undefined(sine), or_undefined(limit)});
    ctx->saved_data["floor"] = floor;
    return call_modulate(x, hidden, weight, cosine, sine, floor, limit);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grad) {
    const variable_list saved = ctx->get_saved_variables();
    const auto [dx, dhidden, dweight, dlimit] = call_modulate_backward(
        grad[0], saved[0], if_defined(saved[1]), if_defined(saved[2]), if_defined(saved[3]), if_defined(saved[4]),
        ctx->saved_data["floor"].toOptional<double>(), if_defined(saved[5]));
    const at::Tensor none;
    return {dx,   saved[1].defined() ? dhidden : none, saved[2].defined() ? dweight : none, none, none,
            none, saved[5].defined() ? dlimit : none};
  }
};

at::Tensor modulate_autograd(const at::Tensor& x, const OptionalTensor& hidden, const OptionalTensor& weight,
                             const OptionalTensor& cosine, const OptionalTensor& sine, std::optional<double> floor,
                             const OptionalTensor& limit) {
  if (under_transform()) return modulate_by_definition(x, hidden, weight, cosine, sine, floor, limit);
  if (without_gradients()) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    return call_modulate(x, hidden, weight, cosine, sine, floor, limit);
  }
  const at::Tensor y = ModulateFunction::apply(x, hidden, weight, cosine, sine, floor, limit);
  if (making_again) {
    variable_list inputs{x};
    for (const OptionalTensor& input : {hidden, weight, cosine, sine, limit}) inputs.push_back(or_undefined(input));
    making_again->add({WeakTensor(y.getIntrusivePtr()), std::move(inputs), floor});
  }
  return y;
}

constexpr size_t kSlots = 6;  // x, hidden, weight, cosine, sine, limit; of an input that is kept itself only the first

Tensors4 gradient_autograd(const at::Tensor& grad, const at::Tensor& x, const OptionalTensor& hidden,
                           const OptionalTensor& weight, const OptionalTensor& cosine, const OptionalTensor& sine,
                           std::optional<double> floor, const OptionalTensor& limit) {
  if (at::GradMode::is_enabled()) return modulate_gradient(grad, x, hidden, weight, cosine, sine, floor, limit);
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return call_modulate_backward(grad, x, hidden, weight, cosine, sine, floor, limit);
}

}  // namespace

MakeAgainGuard::MakeAgainGuard() : outer_(std::exchange(making_again, this)) {}
MakeAgainGuard::~MakeAgainGuard() { making_again = outer_; }

void MakeAgainGuard::add(Made made) { made_.push_back(std::move(made)); }

const MakeAgainGuard::Made* MakeAgainGuard::find(const at::Tensor& output) const {
  const auto is_it = [&](const Made& made) { return made.output._unsafe_get_target() == output.unsafeGetTensorImpl(); };
  const auto found = std::find_if(made_.begin(), made_.end(), is_it);
  return found == made_.end() ? nullptr : &*found;
}

void KeptInputs::add(const at::Tensor& input) {
  variable_list slots{input};
  std::optional<double> floor;
  if (const auto* made = making_again && input.defined() ? making_again->find(input) : nullptr) {
    slots = made->inputs;
    floor = made->floor;
  }
  slots.resize(kSlots);
  tensors_.insert(tensors_.end(), slots.begin(), slots.end());
  floors_.push_back(floor.value_or(NAN));
}

void KeptInputs::save(AutogradContext* ctx, const variable_list& others) const {
  variable_list all = tensors_;
  all.insert(all.end(), others.begin(), others.end());
  ctx->save_for_backward(all);
  ctx->saved_data["floors"] = floors_;
}

SavedInputs::SavedInputs(AutogradContext* ctx)
    : tensors_(ctx->get_saved_variables()), floors_(ctx->saved_data["floors"].toDoubleVector()) {}

bool SavedInputs::is_made_again(size_t index) const {
  const auto slot = tensors_.begin() + index * kSlots;
  return std::any_of(slot + 1, slot + kSlots, [](const at::Tensor& x) { return x.defined(); });
}

at::Tensor SavedInputs::input(size_t index) const {
  const at::Tensor& x = tensors_[index * kSlots];
  return is_made_again(index) ? heads(index, 0, size_of(x, 2)) : x;
}

at::Tensor SavedInputs::heads(size_t index, int64_t first, int64_t count) const {
  const at::Tensor* slot = &tensors_[index * kSlots];
  const at::Tensor x = slot[0].narrow(2, first, count);
  if (!is_made_again(index)) return x;
  const auto part = [&](const at::Tensor& tensor, int64_t dim, int64_t width) {
    return tensor.defined() ? OptionalTensor(tensor.narrow(dim, first * width, count * width)) : std::nullopt;
  };
  const double floor = floors_[index];
  return call_modulate(x, if_defined(slot[1]), part(slot[2], 1, width_of(x)), if_defined(slot[3]), if_defined(slot[4]),
                       std::isnan(floor) ? std::nullopt : std::optional(floor), part(slot[5], 0, 1));
}

const at::Tensor& SavedInputs::other(size_t index) const { return tensors_[floors_.size() * kSlots + index]; }

TORCH_LIBRARY_IMPL(fem, Autograd, m) {
  m.impl("modulate", modulate_autograd);
  m.impl("modulate_backward", gradient_autograd);
}

}  // namespace fem
