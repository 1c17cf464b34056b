// torch.autocast: the reads, the gates and the whole layer run in its dtype (bfloat16), the conditioner's scans and
// norm in float32, and so what is looked at, energies. States keep their own dtype.
#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace fem {
namespace {

template <c10::DeviceType device, bool lower>
void cast_and_call(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(
      at::autocast::get_autocast_dispatch_key_from_device_type(device));
  const at::ScalarType dtype = lower ? at::autocast::get_autocast_dtype(device) : at::kFloat;
  const auto cast = [&](const at::Tensor& x) { return at::autocast::cached_cast(dtype, x, device); };

  const auto& arguments = op.schema().arguments();
  const size_t first = stack->size() - arguments.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    c10::IValue& value = (*stack)[first + i];
    const bool is_state = lower && arguments[i].name() == "initial";
    if (value.isTensor() && !is_state) {
      value = cast(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> tensors;
      for (const at::Tensor& x : value.toTensorVector()) tensors.push_back(cast(x));
      value = std::move(tensors);
    }
  }
  op.callBoxed(stack);
}

template <c10::DeviceType device>
void register_autocast(torch::Library& library) {
  for (const char* op :
       {"softmax_read", "newton_read", "free_energy_read", "linear_scan", "channel_scan", "ssm_scan", "linear_read",
        "channel_read", "ssm_read", "modulate", "project", "gated_read", "mix", "mix_with_state"})
    library.impl(op, torch::CppFunction::makeFromBoxedFunction<cast_and_call<device, true>>());
  for (const char* op :
       {"decay_scan", "gated_scan", "layer_norm", "energy", "energy_gradient", "energy_hessian_product", "newton_step"})
    library.impl(op, torch::CppFunction::makeFromBoxedFunction<cast_and_call<device, false>>());
}

}  // namespace

TORCH_LIBRARY_IMPL(fem, AutocastCPU, m) { register_autocast<c10::kCPU>(m); }
TORCH_LIBRARY_IMPL(fem, AutocastCUDA, m) { register_autocast<c10::kCUDA>(m); }

}  // namespace fem
