// Generation for languages that hold the parameters themselves: torch.classes.fem.Generator.
#include <torch/custom_class.h>

#include <nlohmann/json.hpp>

#include "bindings/language_model.h"
#include "bindings/library.h"
#include "models/generator.h"

namespace fem {
namespace {

using Tokens = std::vector<int64_t>;

struct GenerateOptionsHandle : torch::CustomClassHolder {
  GenerateOptionsHandle(int64_t max_tokens, double temperature, std::optional<int64_t> top_k,
                        std::optional<double> top_p, double repetition_penalty, std::optional<int64_t> end,
                        int64_t seed)
      : options{.max_tokens = max_tokens,
                .temperature = temperature,
                .top_k = top_k,
                .top_p = top_p,
                .repetition_penalty = repetition_penalty,
                .end = end,
                .seed = static_cast<uint64_t>(seed)} {
    check_generate_options(options);
  }
  const GenerateOptions options;
};
using GenerateOptionsPtr = c10::intrusive_ptr<GenerateOptionsHandle>;

// max_tokens, temperature, repetition_penalty, seed.
std::tuple<int64_t, double, double, int64_t> generate_defaults() {
  const GenerateOptions options;
  return {options.max_tokens, options.temperature, options.repetition_penalty, static_cast<int64_t>(options.seed)};
}

struct GeneratorHandle : torch::CustomClassHolder {
  GeneratorHandle(const GenerateOptionsPtr& options, const std::vector<Tokens>& prompts, const std::string& config,
                  const std::vector<at::Tensor>& parameters, int64_t tokens)
      : generator(bound_language_model(config, parameters)->limited(tokens), prompts, options->options) {}
  Generator generator;
};
using GeneratorPtr = c10::intrusive_ptr<GeneratorHandle>;

std::vector<std::tuple<int64_t, int64_t>> next_tokens(const GeneratorPtr& self) {
  std::vector<std::tuple<int64_t, int64_t>> made;
  for (const auto& [row, token] : self->generator.next()) made.emplace_back(row, token);
  return made;
}

}  // namespace

void register_generation(torch::Library& library) {
  library.class_<GenerateOptionsHandle>("GenerateOptions")
      .def(torch::init<int64_t, double, std::optional<int64_t>, std::optional<double>, double, std::optional<int64_t>,
                       int64_t>())
      .def_static("defaults", generate_defaults);
  library.class_<GeneratorHandle>("Generator")
      .def(torch::init<GenerateOptionsPtr, std::vector<Tokens>, std::string, std::vector<at::Tensor>, int64_t>())
      .def("next", next_tokens)
      .def("stop", [](const GeneratorPtr& self, int64_t row) { self->generator.stop(row); });
}

}  // namespace fem
