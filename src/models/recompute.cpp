#include "models/recompute.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

namespace fem {
namespace {

using F = std::function<at::Tensor(const at::Tensor&)>;

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
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x, const F& f) {
    const auto again = c10::make_intrusive<Again>();
    again->f = f;
    again->random_state = at::detail::getDefaultCPUGenerator().get_state();
    again->autocast = at::autocast::is_autocast_enabled(at::kCPU);
    context->saved_data["again"] = c10::IValue::make_capsule(again);
    context->save_for_backward({x});
    const at::NoGradGuard no_grad;
    return f(x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto capsule = context->saved_data["again"].toCapsule();
    const auto& again = static_cast<const Again&>(*capsule);
    at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    at::Tensor y;
    {
      const at::AutoGradMode with_gradients(true);
      const AutocastGuard autocast(again.autocast);
      const RandomStateGuard random(again.random_state);
      y = again.f(x);
    }
    torch::autograd::backward({y}, {gradients[0]});
    return {x.grad(), at::Tensor()};
  }
};

}  // namespace

at::Tensor recomputed(const F& f, const at::Tensor& x) {
  return at::GradMode::is_enabled() ? Recompute::apply(x, f) : f(x);
}

}  // namespace fem
