#include "bindings/state.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include "bindings/library.h"

namespace fem {
namespace {

using Handle = c10::intrusive_ptr<StateHandle>;
using TensorDict = c10::Dict<std::string, at::Tensor>;

Handle handle_of(MixerState state) {
  const auto handle = c10::make_intrusive<StateHandle>();
  handle->state = std::move(state);
  return handle;
}

TensorDict to_tensors(const Handle& self) {
  TensorDict tensors;
  for (const auto& [name, tensor] : self->state.to_tensors()) tensors.insert(name, tensor);
  return tensors;
}

Handle from_tensors(const TensorDict& tensors) {
  std::map<std::string, at::Tensor> map;
  for (const auto& entry : tensors) map[entry.key()] = entry.value();
  return handle_of(MixerState::from_tensors(map));
}

}  // namespace

void register_state(torch::Library& library) {
  library.class_<StateHandle>("MixerState")
      .def(torch::init<>())
      .def("tokens", [](const Handle& self) { return self->state.tokens; })
      .def("snapshot", [](const Handle& self) { return handle_of(self->state); })
      .def("clone", [](const Handle& self) { return handle_of(self->state.clone()); })
      .def("select",
           [](const Handle& self, const at::Tensor& batch_index) { return handle_of(self->state.select(batch_index)); })
      .def("rollback", [](const Handle& self, const Handle& snapshot) { self->state.rollback(snapshot->state); })
      .def("to_tensors", to_tensors)
      .def_static("from_tensors", from_tensors)
      .def_pickle([](const Handle& self) { return to_tensors(self); },
                  [](const TensorDict& tensors) { return from_tensors(tensors); });
}

}  // namespace fem
