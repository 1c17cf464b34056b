#include "parallel/gradients.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <set>
#include <utility>

#include "util/check.h"

namespace fem {
namespace {

constexpr int64_t kViewAlignment = 64;  // bytes: a view starts on a cache line, as a tensor of its own would

int64_t padded(const at::Tensor& parameter) {
  const int64_t unit = kViewAlignment / parameter.element_size();
  return (parameter.numel() + unit - 1) / unit * unit;
}

void check(const std::vector<at::Tensor>& parameters) {
  std::set<const void*> seen;
  for (size_t i = 0; i < parameters.size(); ++i) {
    FEM_CHECK(parameters[i].defined() && parameters[i].is_leaf() && parameters[i].requires_grad(),
              "gradients: expected parameters that collect a gradient, got parameter ", i, " that does not");
    FEM_CHECK(seen.insert(parameters[i].unsafeGetTensorImpl()).second,
              "gradients: expected every parameter once, got parameter ", i, " again; a shared one is named once");
  }
}

}  // namespace

struct Gradients::Buckets {
  struct Bucket {
    at::Tensor flat;
    std::vector<size_t> members;  // parameters
    int64_t length = 0;           // elements
    int64_t waits_for = 0;        // of the members, in this backward
    std::unique_ptr<PendingReduction> sum;
  };
  struct Parameter {
    size_t bucket = 0;
    // A backward run inside backward, as recomputation does, adds a gradient of its own: the first backward shows how
    // many there are.
    int64_t expected = 1, arrived = 0;
  };

  struct Arrival : torch::autograd::PostAccumulateGradHook {
    Arrival(Buckets& buckets, size_t index) : buckets(buckets), index(index) {}
    void operator()(const at::Tensor&) override { buckets.arrive(index); }
    Buckets& buckets;
    const size_t index;
  };

  Buckets(std::vector<at::Tensor> given, std::shared_ptr<ProcessGroup> with, int64_t bucket_bytes)
      : group(std::move(with)), tensors(std::move(given)), parameters(tensors.size()), views(tensors.size()) {
    check(tensors);
    // Backward reaches the last layer first.
    for (size_t i = tensors.size(); i-- > 0;) place(i, bucket_bytes);
    for (Bucket& bucket : buckets) lay_out(bucket);
    if (group->size() == 1) return;
    for (size_t i = 0; i < tensors.size(); ++i)
      torch::autograd::impl::set_post_acc_grad_hooks(tensors[i], std::make_unique<Arrival>(*this, i));
  }

  ~Buckets() {
    if (group->size() == 1) return;
    for (const at::Tensor& tensor : tensors) torch::autograd::impl::set_post_acc_grad_hooks(tensor, nullptr);
  }

  Buckets(const Buckets&) = delete;
  Buckets& operator=(const Buckets&) = delete;

  void place(size_t i, int64_t bucket_bytes) {
    const at::Tensor& tensor = tensors[i];
    if (buckets.empty() || !fits(tensor, buckets.back(), bucket_bytes)) buckets.emplace_back();
    parameters[i].bucket = buckets.size() - 1;
    buckets.back().members.push_back(i);
    buckets.back().length += padded(tensor);
  }

  bool fits(const at::Tensor& tensor, const Bucket& bucket, int64_t bucket_bytes) const {
    const at::Tensor& first = tensors[bucket.members.front()];
    return first.scalar_type() == tensor.scalar_type() && first.device() == tensor.device() &&
           (bucket.length + padded(tensor)) * tensor.element_size() <= bucket_bytes;
  }

  void lay_out(Bucket& bucket) {
    const at::NoGradGuard no_grad;
    bucket.flat = at::zeros({bucket.length}, tensors[bucket.members.front()].options().requires_grad(false));
    int64_t start = 0;
    for (const size_t i : bucket.members) {
      views[i] = bucket.flat.narrow(0, start, tensors[i].numel()).view(tensors[i].sizes());
      tensors[i].mutable_grad() = views[i];
      start += padded(tensors[i]);
    }
  }

  void expect_arrivals() {
    for (Parameter& parameter : parameters) parameter.arrived = 0;
    for (Bucket& bucket : buckets) bucket.waits_for = static_cast<int64_t>(bucket.members.size());
    reducing = true;
  }

  void arrive(size_t i) {
    if (!reducing) return;
    Parameter& parameter = parameters[i];
    FEM_CHECK(parameter.bucket >= next, "gradients: expected no more than ", parameter.expected,
              " gradients of parameter ", i, " ", shape_of(tensors[i]), " in one backward, as before, got another one ",
              "while they were being summed over the ranks; every step has to use a parameter equally often");
    if (++parameter.arrived == parameter.expected) --buckets[parameter.bucket].waits_for;
    if (!counted) return;
    while (next < buckets.size() && buckets[next].waits_for == 0) launch_next();
  }

  void launch_next() {
    buckets[next].sum = group->start_sum(buckets[next].flat);
    ++next;
  }

  void check_views() const {
    for (size_t i = 0; i < tensors.size(); ++i)
      FEM_CHECK(tensors[i].grad().is_same(views[i]), "gradients: expected parameter ", i, " ", shape_of(tensors[i]),
                " to keep the gradient it was given, a part of a bucket, got ",
                tensors[i].grad().defined() ? "another tensor" : "none",
                "; clear gradients by Gradients::zero and do not build a graph of them");
  }

  void finish() {
    check_views();
    if (group->size() == 1) return;
    while (next < buckets.size()) launch_next();
    for (Bucket& bucket : buckets) {
      bucket.sum->wait();
      bucket.sum.reset();
    }
    for (Parameter& parameter : parameters) parameter.expected = std::max(parameter.expected, parameter.arrived);
    counted = counted || reducing;
    reducing = false;
    next = 0;
  }

  const std::shared_ptr<ProcessGroup> group;
  std::vector<at::Tensor> tensors;
  std::vector<Parameter> parameters;
  std::vector<at::Tensor> views;
  std::vector<Bucket> buckets;
  size_t next = 0;  // the bucket to be summed next: every rank keeps to the order
  bool reducing = false;
  bool counted = false;  // the expected gradients are known
};

Gradients::Gradients(std::vector<at::Tensor> parameters, std::shared_ptr<ProcessGroup> group, int64_t bucket_bytes)
    : buckets_(std::make_shared<Buckets>(std::move(parameters), std::move(group), bucket_bytes)) {}

Gradients::~Gradients() = default;

void Gradients::zero() {
  const at::NoGradGuard no_grad;
  for (Buckets::Bucket& bucket : buckets_->buckets) bucket.flat.zero_();
}

void Gradients::reduce_in_next_backward() { buckets_->expect_arrivals(); }

void Gradients::finish() { buckets_->finish(); }

const std::vector<at::Tensor>& Gradients::views() const { return buckets_->views; }

}  // namespace fem
