// Likelihoods but for the model, for languages that hold the model themselves: torch.classes.fem.ScoredRows.
#include "text/scoring.h"

#include <torch/custom_class.h>

#include "bindings/library.h"

namespace fem {
namespace {

using Tokens = std::vector<int64_t>;

std::vector<ScoredTokens> sequences_of(const std::vector<std::tuple<Tokens, int64_t>>& given) {
  std::vector<ScoredTokens> sequences;
  for (const auto& [tokens, begin] : given) sequences.push_back({tokens, begin});
  return sequences;
}

struct ScoredRowsHandle : torch::CustomClassHolder {
  ScoredRowsHandle(const std::vector<std::tuple<Tokens, int64_t>>& sequences, int64_t batch_tokens, int64_t vocab_size)
      : rows(sequences_of(sequences), batch_tokens, vocab_size) {}
  ScoredRows rows;
};
using ScoredRowsPtr = c10::intrusive_ptr<ScoredRowsHandle>;

std::vector<std::tuple<double, bool>> results_of(const ScoredRowsPtr& self) {
  std::vector<std::tuple<double, bool>> results;
  for (const Likelihood& result : self->rows.results()) results.emplace_back(result.log_probability, result.greedy);
  return results;
}

std::tuple<Tokens, int64_t> pair_of(int64_t separator, const Tokens& context, const Tokens& whole) {
  ScoredTokens sequence = scored_pair(separator, context, whole);
  return {std::move(sequence.tokens), sequence.begin};
}

std::tuple<std::string, std::string> parted(const std::string& context, const std::string& continuation) {
  Continuation text = parted_before_space({context, continuation});
  return {std::move(text.context), std::move(text.continuation)};
}

}  // namespace

void register_scoring(torch::Library& library) {
  library.class_<ScoredRowsHandle>("ScoredRows")
      .def(torch::init<std::vector<std::tuple<Tokens, int64_t>>, int64_t, int64_t>())
      .def_static("pair", pair_of)
      .def_static("parted_before_space", parted)
      .def("next", [](const ScoredRowsPtr& self) { return self->rows.next(); })
      .def("tokens", [](const ScoredRowsPtr& self) { return self->rows.tokens(); })
      .def("cu_seqlens", [](const ScoredRowsPtr& self) { return self->rows.cu_seqlens(); })
      .def("places", [](const ScoredRowsPtr& self) { return self->rows.places(); })
      .def("at_once", [](const ScoredRowsPtr& self) { return self->rows.at_once(); })
      .def("add", [](const ScoredRowsPtr& self, const at::Tensor& logits) { self->rows.add(logits); })
      .def("results", results_of);
}

}  // namespace fem
