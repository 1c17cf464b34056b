// Inputs of an operator, kept for its backward. Inside the layer, where nobody else holds them, outputs of modulate are
// not kept but made again: from what modulate itself keeps, so that they cost no memory between forward and backward.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <vector>

namespace fem {

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

// While one is alive in this thread, outputs of modulate that operators are given are made again in backward. Second
// derivatives with respect to such an output itself are then not to be had; those of all it was made from are.
class MakeAgainGuard {
 public:
  // An output of modulate, and what it was made from. While it is held weakly, no other tensor has its address.
  struct Made {
    WeakTensor output;
    torch::autograd::variable_list inputs;
    std::optional<double> floor;
  };

  // Outputs of fewer elements than smallest are kept as they are.
  explicit MakeAgainGuard(int64_t smallest = 0);
  ~MakeAgainGuard();
  MakeAgainGuard(const MakeAgainGuard&) = delete;
  MakeAgainGuard& operator=(const MakeAgainGuard&) = delete;

  static MakeAgainGuard* current();  // the innermost, or null
  void add(const at::Tensor& output, torch::autograd::variable_list inputs, std::optional<double> floor);
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
  std::vector<double> floors_;
};

// In backward.
class SavedInputs {
 public:
  explicit SavedInputs(torch::autograd::AutogradContext* ctx);

  at::Tensor input(size_t index) const;                                // [B, T, H, *], or undefined
  at::Tensor heads(size_t index, int64_t first, int64_t count) const;  // only these heads of it
  bool is_made_again(size_t index) const;
  const at::Tensor& other(size_t index) const;  // as given to save()

 private:
  torch::autograd::variable_list tensors_;
  std::vector<double> floors_;
};

}  // namespace fem
