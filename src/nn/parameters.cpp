#include "nn/parameters.h"

#include <ATen/ATen.h>

#include <map>
#include <utility>

#include "util/check.h"

namespace fem {

using Init = ParameterSpec::Init;

void declare_linear(std::vector<ParameterSpec>& specs, const std::string& name, int64_t in, int64_t out, bool bias) {
  specs.push_back({name + ".weight", {out, in}, Init::kNormal, kLinearDeviation, {}, /*decays=*/true});
  if (bias) specs.push_back({name + ".bias", {out}, Init::kConstant, 0.0});
}

at::Tensor initial_value(const ParameterSpec& spec, std::optional<at::Generator> generator) {
  switch (spec.init) {
    case Init::kNormal:
      return at::empty(spec.shape).normal_(0.0, spec.value, std::move(generator));
    case Init::kConstant:
      break;
    case Init::kValues:
      return at::tensor(spec.values(), at::kDouble).view(spec.shape).to(c10::get_default_dtype_as_scalartype());
  }
  return at::empty(spec.shape).fill_(spec.value);
}

void check_stored(const SafetensorsHeader& header, const std::vector<ParameterSpec>& specs, const std::string& source) {
  std::map<std::string, const std::vector<int64_t>*> stored;
  for (const SafetensorsEntry& entry : header.entries) stored[entry.name] = &entry.shape;
  for (const ParameterSpec& spec : specs) {
    const auto found = stored.find(spec.name);
    FEM_CHECK(found != stored.end(), "it has no ", spec.name, ", asked for by ", source);
    FEM_CHECK(*found->second == spec.shape, "expected ", spec.name, " of shape ", at::IntArrayRef(spec.shape),
              " as asked for by ", source, ", got ", at::IntArrayRef(*found->second));
    stored.erase(found);
  }
  FEM_CHECK(stored.empty(), "it holds ", stored.begin()->first, ", not asked for by ", source);
}

at::Tensor& register_dotted(torch::nn::Module& root, const std::string& name, at::Tensor parameter) {
  const size_t dot = name.find('.');
  if (dot == std::string::npos) return root.register_parameter(name, std::move(parameter));
  const std::string head = name.substr(0, dot);
  const auto children = root.named_children();
  const auto child =
      children.contains(head) ? children[head] : root.register_module(head, std::make_shared<torch::nn::Module>(head));
  return register_dotted(*child, name.substr(dot + 1), std::move(parameter));
}

std::vector<at::Tensor> register_parameters(torch::nn::Module& root, const std::vector<ParameterSpec>& specs) {
  std::vector<at::Tensor> parameters;
  for (const ParameterSpec& spec : specs) parameters.push_back(register_dotted(root, spec.name, initial_value(spec)));
  return parameters;
}

}  // namespace fem
