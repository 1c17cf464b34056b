#include "priors/part.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "nn/parameters.h"
#include "util/check.h"

namespace fem {
namespace {

ParameterSpec started(std::string name, std::vector<int64_t> shape, const Start& start) {
  using Init = ParameterSpec::Init;
  if (const double* everywhere = std::get_if<double>(&start))
    return {std::move(name), std::move(shape), Init::kConstant, *everywhere, {}};
  return {std::move(name), std::move(shape), Init::kValues, 0.0, std::get<1>(start)};
}

// In one call.
void project_parts(const at::Tensor& input, const std::vector<AppliedPart*>& parts) {
  if (parts.empty()) return;
  std::vector<LinearWeights> layers;
  for (const AppliedPart* part : parts) layers.push_back(part->weights);
  const std::vector<at::Tensor> projected = project(input, layers);
  for (size_t i = 0; i < projected.size(); ++i) parts[i]->projected = projected[i];
}

}  // namespace

std::vector<ParameterSpec> parameters_of(const Part& part) {
  const std::string name = part.name->text;
  if (part.kind == Part::Kind::kParameter) return {started(name, part.shape, part.start)};
  std::vector<ParameterSpec> specs;
  declare_linear(specs, name, part.shape[1], part.shape[0], part.bias);
  if (part.bias) specs.back() = started(name + ".bias", {part.shape[0]}, part.start);
  return specs;
}

AppliedParts::AppliedParts(const MixerInput& in, std::vector<AppliedPart> parts, const Modulation& c)
    : parts_(std::move(parts)) {
  std::vector<AppliedPart*> projections, of_x, of_query, conditioned;  // the last in the order of c's columns
  std::vector<int64_t> widths;
  for (AppliedPart& part : parts_) {
    if (part.kind != Part::Kind::kProjection) continue;
    projections.push_back(&part);
    (part.is_query && in.query.defined() ? of_query : of_x).push_back(&part);
  }
  project_parts(in.x, of_x);
  project_parts(in.query, of_query);
  if (!c.defined()) return;

  for (const Conditioned place : {Conditioned::kBeforeGates, Conditioned::kGate, Conditioned::kAfterGates})
    for (AppliedPart* part : projections)
      if (part->conditioned == place) conditioned.push_back(part), widths.push_back(part->shape[0]);
  const std::vector<at::Tensor> slices = c.weight.split_with_sizes(widths, -1);
  for (size_t i = 0; i < slices.size(); ++i) conditioned[i]->modulation = {c.hidden, slices[i], conditioned[i]->added};
}

const AppliedPart& AppliedParts::operator[](const PartName& name) const {
  const auto found = std::find_if(parts_.begin(), parts_.end(), [&](const auto& part) { return part.name == &name; });
  FEM_CHECK(found != parts_.end(), "mix: expected a part ", name.text,
            ", but the layer with these options declares none");
  return *found;
}

}  // namespace fem
