// Inputs of an operator, kept for its backward. Inside the layer, where nobody else holds them, outputs of modulate and
// of layer_norm are not kept but made again: from what these keep themselves, so that they cost no memory between
// forward and backward.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <vector>

namespace fem {

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

// LayerNorm over the last dimension. An operator that is given the result may make it again.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

// The arguments of modulate that are no tensors.
struct ModulateNumbers {
  bool halves = false;
  std::optional<double> floor = std::nullopt;
  bool added = false;
};

// While one is alive in this thread, outputs of modulate and layer_norm that operators are given are made again in
// backward. Second derivatives with respect to such an output itself are then not to be had; those of all it was made
// from are.
class MakeAgainGuard {
 public:
  enum class Maker : int64_t { kNone, kModulate, kLayerNorm };

  // An output, and what it was made from. While it is held weakly, no other tensor has its address.
  struct Made {
    WeakTensor output;
    Maker maker;
    torch::autograd::variable_list inputs;  // modulate: x, hidden, weight, positions, frequency, limit
    ModulateNumbers numbers;
  };

  // Outputs of fewer elements than smallest are kept as they are.
  explicit MakeAgainGuard(int64_t smallest = 0);
  ~MakeAgainGuard();
  MakeAgainGuard(const MakeAgainGuard&) = delete;
  MakeAgainGuard& operator=(const MakeAgainGuard&) = delete;

  static MakeAgainGuard* current();  // the innermost, or null
  void add(const at::Tensor& output, Maker maker, torch::autograd::variable_list inputs,
           const ModulateNumbers& numbers = {});
  const Made* find(const at::Tensor& output) const;

 private:
  const int64_t smallest_;
  std::vector<Made> made_;
  MakeAgainGuard* outer_;
};

// In forward: add() the inputs in order and save() once, together with what else is kept.
class KeptInputs {
 public:
  void add(const at::Tensor& input);  // may be undefined
  void save(torch::autograd::AutogradContext* ctx, const torch::autograd::variable_list& others) const;

 private:
  torch::autograd::variable_list tensors_;
  std::vector<int64_t> makers_;
  std::vector<double> numbers_;  // of every input halves, floor (NaN: none), added
};

// In backward.
class SavedInputs {
 public:
  explicit SavedInputs(torch::autograd::AutogradContext* ctx);

  at::Tensor input(size_t index) const;                                // undefined if it was
  at::Tensor heads(size_t index, int64_t first, int64_t count) const;  // of [B, T, H, *] only these
  bool is_made_again(size_t index) const;
  at::TensorList others() const;  // as given to save()
  const at::Tensor& other(size_t index) const { return others()[index]; }

 private:
  torch::autograd::variable_list tensors_;
  std::vector<int64_t> makers_;
  std::vector<double> numbers_;
};

}  // namespace fem
