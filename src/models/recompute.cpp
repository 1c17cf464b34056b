#include "models/recompute.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

namespace fem {
namespace {

using Tensors = std::vector<at::Tensor>;
using F = std::function<Tensors(const Tensors&)>;

struct Again : torch::CustomClassHolder {
  F f;
  at::Tensor random_state;  // dropout must drop the same elements again
  bool autocast;
};

class AutocastGuard {
 public:
  explicit AutocastGuard(bool enabled) : before_(at::autocast::is_autocast_enabled(at::kCPU)) {
    at::autocast::set_autocast_enabled(at::kCPU, enabled);
  }
  ~AutocastGuard() { at::autocast::set_autocast_enabled(at::kCPU, before_); }

 private:
  const bool before_;
};

class RandomStateGuard {
 public:
  explicit RandomStateGuard(const at::Tensor& state) : generator_(at::detail::getDefaultCPUGenerator()) {
    before_ = generator_.get_state();
    generator_.set_state(state);
  }
  ~RandomStateGuard() { generator_.set_state(before_); }

 private:
  at::Generator generator_;
  at::Tensor before_;
};

class Recompute : public torch::autograd::Function<Recompute> {
 public:
  static Tensors forward(torch::autograd::AutogradContext* context, at::TensorList x, const F& f) {
    const auto again = c10::make_intrusive<Again>();
    again->f = f;
    again->random_state = at::detail::getDefaultCPUGenerator().get_state();
    again->autocast = at::autocast::is_autocast_enabled(at::kCPU);
    context->saved_data["again"] = c10::IValue::make_capsule(again);
    context->save_for_backward(x.vec());
    context->set_materialize_grads(false);
    const at::NoGradGuard no_grad;
    return f(x.vec());
  }

  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& gradients) {
    const auto capsule = context->saved_data["again"].toCapsule();
    const auto& again = static_cast<const Again&>(*capsule);
    Tensors x, y, of_x;
    for (const at::Tensor& saved : context->get_saved_variables()) x.push_back(saved.detach().requires_grad_(true));
    {
      const at::AutoGradMode with_gradients(true);
      const AutocastGuard autocast(again.autocast);
      const RandomStateGuard random(again.random_state);
      y = again.f(x);
    }
    // What nobody used has no gradient.
    Tensors used, of_used;
    for (size_t i = 0; i < y.size(); ++i) {
      if (!gradients[i].defined()) continue;
      used.push_back(y[i]);
      of_used.push_back(gradients[i]);
    }
    torch::autograd::backward(used, of_used);
    for (const at::Tensor& input : x) of_x.push_back(input.grad());
    of_x.emplace_back();  // of f
    return of_x;
  }
};

}  // namespace

Tensors recomputed(const F& f, const Tensors& x) {
  return at::GradMode::is_enabled() ? Recompute::apply(at::TensorList(x), f) : f(x);
}

}  // namespace fem
