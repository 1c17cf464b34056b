// Language modelling: predict every token of a text from those before it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "data/corpus.h"
#include "fem/language_model.h"
#include "tasks/table.h"

namespace fem {

inline constexpr int64_t kLongestRow = 1 << 28;  // tokens

struct LanguageOptions {
  LanguageModelOptions model;  // [model]; a vocabulary of 0 is the tokenizer's
  CorpusOptions corpus;        // [data], with what follows
  int64_t length = 256;
  int64_t validation_tokens = 65536;
  int64_t final_validation_tokens = 1 << 20;
};

template <typename Options, typename Visitor>
void visit_language_data(Options& o, Visitor&& visit) {
  visit_corpus_options(o.corpus, visit);
  visit("length", o.length, "tokens of a row");
  visit("validation_tokens", o.validation_tokens, "most tokens of a validation between two steps; 0: all");
  visit("final_validation_tokens", o.final_validation_tokens, "most tokens of the validation at the end; 0: all");
}

LanguageOptions language_options_from_json(const nlohmann::json& recipe);

// How the run was trained that a checkpoint belongs to; none for a model folder by itself.
std::optional<LanguageOptions> language_options_of_run(const std::filesystem::path& model_folder);

// Makes the model and, from the corpus's files, the tokens; start as in TaskEntry::make.
std::unique_ptr<Task> language_task(const LanguageOptions& options, const TrainOptions& train,
                                    const std::filesystem::path& start = {});

const TaskEntry& language_entry();

}  // namespace fem
