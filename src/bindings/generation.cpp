// Generation but for the model, for languages that hold the model themselves: torch.classes.fem.Generation.
#include "models/generation.h"

#include <torch/custom_class.h>

#include "bindings/library.h"

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

struct GenerationHandle : torch::CustomClassHolder {
  GenerationHandle(const GenerateOptionsPtr& options, const std::vector<Tokens>& prompts, int64_t vocab_size)
      : generation(options->options, prompts, vocab_size) {}
  Generation generation;
};
using GenerationPtr = c10::intrusive_ptr<GenerationHandle>;

std::tuple<at::Tensor, std::optional<at::Tensor>, std::optional<at::Tensor>> padded_texts(
    const std::vector<Tokens>& texts) {
  PaddedTexts all = padded(texts);
  return {std::move(all.tokens), std::move(all.mask), std::move(all.places)};
}

}  // namespace

void register_generation(torch::Library& library) {
  library.class_<GenerateOptionsHandle>("GenerateOptions")
      .def(torch::init<int64_t, double, std::optional<int64_t>, std::optional<double>, double, std::optional<int64_t>,
                       int64_t>());
  library.class_<GenerationHandle>("Generation")
      .def(torch::init<GenerateOptionsPtr, std::vector<Tokens>, int64_t>())
      .def_static("padded", padded_texts)
      .def_static("prompt_piece", [] { return kPromptPiece; })
      .def("rows", [](const GenerationPtr& self) { return self->generation.rows(); })
      .def("choose",
           [](const GenerationPtr& self, const at::Tensor& logits) { return self->generation.choose(logits); })
      .def("stop", [](const GenerationPtr& self, int64_t row) { self->generation.stop(row); })
      .def("advance", [](const GenerationPtr& self) { return self->generation.advance(); })
      .def("newest", [](const GenerationPtr& self) { return self->generation.newest(); });
}

}  // namespace fem
