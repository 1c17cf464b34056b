#include "tasks/language.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>

#include "data/sampler.h"
#include "evaluate/perplexity.h"
#include "fem/generate.h"
#include "fem/io/model_folder.h"
#include "fem/text/streamed_text.h"
#include "fem/text/text_model.h"
#include "io/json.h"
#include "io/language_model_config.h"
#include "io/options_json.h"
#include "tasks/trained_model.h"
#include "train/step_memory.h"
#include "util/shell.h"
#include "util/table.h"

namespace fem {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

LanguageOptions with_vocabulary(LanguageOptions options, int64_t vocabulary) {
  int64_t& size = options.model.vocab_size;
  FEM_CHECK(size == 0 || size >= vocabulary, "language: expected model.vocab_size of at least ", vocabulary,
            ", the tokenizer's, got ", size, "; leave it out to take the tokenizer's");
  if (size == 0) size = vocabulary;
  return options;
}

LanguageModel new_model(const LanguageModelOptions& options, int64_t tokens, const TrainOptions& train) {
  check_parameters_fit(parameter_count(language_model_parameters(options)));
  at::manual_seed(train.seed);
  LanguageModel model(options);
  model->limit_tokens(tokens);
  model->recompute = train.recompute;
  return model;
}

// What a run began with it goes on with: a tokenizer that was trained is not trained again, and weights of another
// model come with its tokenizer.
TokenizerPtr given_tokenizer(const LanguageOptions& options, const TrainOptions& train, const fs::path& start) {
  const bool given = !start.empty() && (options.corpus.trains_tokenizer() || !train.init_from.empty());
  return given ? load_tokenizer(start) : nullptr;
}

// As they are found from any other folder.
std::vector<std::string> absolute(std::vector<std::string> paths) {
  for (std::string& path : paths) path = fs::absolute(path).lexically_normal().string();
  return paths;
}

json json_of(const std::vector<TextSource>& sources) {
  json list = json::array();
  for (const TextSource& source : sources) list.push_back({{"name", source.name}, {"checksum", source.checksum}});
  return list;
}

class LanguageTask final : public Task {
 public:
  LanguageTask(const LanguageOptions& options, const TrainOptions& train, const fs::path& start)
      : corpus_(prepare_corpus(options.corpus, given_tokenizer(options, train, start))),
        options_(with_vocabulary(options, corpus_.tokenizer->vocab_size())),
        model_(new_model(options_.model, corpus_.tokenizer->vocab_size(), train)),
        sampler_(corpus_.train, options_.length, train.seed) {}

  std::vector<TrainedParameter> parameters() override {
    std::set<std::string> decayed;
    for (const ParameterSpec& spec : language_model_parameters(model_->options))
      if (spec.decays) decayed.insert(spec.name);
    std::vector<TrainedParameter> parameters;
    for (const auto& p : model_->named_parameters())
      parameters.push_back({p.key(), p.value(), decayed.contains(p.key())});
    return parameters;
  }

  Weighted loss(const Rows& which) override {
    model_->train();
    const PackedRows rows = sampler_.rows(which.first, which.count, which.stride);
    return {model_->surprise(rows.tokens, rows.targets, {.cu_seqlens = rows.cu_seqlens}).sum(),
            static_cast<double>(rows.targets.numel())};
  }

  std::vector<NamedTensor> trace(const Rows& which) override {
    const PackedRows rows = sampler_.rows(which.first, which.count, which.stride);
    return model_->trace(rows.tokens, {.cu_seqlens = rows.cu_seqlens});
  }

  NamedValues validation_sums(const ValidationPart& part) override {
    const Perplexity own =
        measure_perplexity(model_, corpus_.validation,
                           {.length = options_.length,
                            .batch_rows = part.batch_rows,
                            .max_tokens = part.whole ? options_.final_validation_tokens : options_.validation_tokens,
                            .part = part.part,
                            .parts = part.parts,
                            .on_read = part.on_batch});
    return {{"tokens", static_cast<double>(own.tokens)}, {"bytes", static_cast<double>(own.bytes)}, {"nats", own.nats}};
  }

  NamedValues measures(const NamedValues& sums) const override {
    const Perplexity all{static_cast<int64_t>(value_of(sums, "tokens")), static_cast<int64_t>(value_of(sums, "bytes")),
                         value_of(sums, "nats")};
    return {{"loss", all.loss()}, {"perplexity", all.perplexity()}, {"bits_per_byte", all.bits_per_byte()}};
  }

  Goal goal() const override { return {"loss", /*larger_is_better=*/false}; }

  json recipe() const override {
    json out{{"task", "language"}, {"model", to_json(options_.model)}};
    LanguageOptions found = options_;
    CorpusOptions& data = found.corpus;
    data.train = absolute(data.train);
    data.validation = absolute(data.validation);
    if (!data.cache.empty()) data.cache = absolute({data.cache.string()}).front();
    if (fs::exists(data.tokenizer)) data.tokenizer = absolute({data.tokenizer}).front();
    visit_language_data(
        found, [&](const char* name, const auto& value, const char*) { write_option(out["data"][name], value); });
    return out;
  }

  json identity() const override {
    const CorpusOptions& data = options_.corpus;
    json out{{"task", "language"}, {"model", to_json(options_.model)}, {"data", {{"length", options_.length}}}};
    // What lies in the files counts, not where they lie.
    if (data.trains_tokenizer()) out["data"]["tokenizer"] = data.tokenizer;
    if (data.validation.empty()) out["data"]["validation_fraction"] = data.validation_fraction;
    out["tokenizer"] = corpus_.tokenizer->fingerprint();
    out["tokens"] = {{"train", corpus_.train.size()}, {"validation", corpus_.validation.size()}};
    out["files"] = {{"training", json_of(corpus_.train_sources)}, {"validation", json_of(corpus_.validation_sources)}};
    return out;
  }

  json identity_defaults() const override { return {{"model", to_json(LanguageModelOptions())}}; }

  void save(const fs::path& folder) const override {
    save_language_model(folder, model_);
    corpus_.tokenizer->save(folder);
  }

  void load(const fs::path& folder) override {
    const LanguageModel saved = load_language_model(folder);
    take_parameters(*model_, to_json(options_.model), *saved, to_json(saved->options), "language", folder);
  }

  std::pair<std::string, int64_t> units_of_a_row() const override { return {"tokens", options_.length}; }

  std::string description() const override {
    std::string text = grouped(corpus_.train.size()) + " training and " + grouped(corpus_.validation.size()) +
                       " validation tokens (" + corpus_.tokenizer->fingerprint() + ")";
    const int64_t limit = options_.final_validation_tokens;
    if (limit > 0 && limit < corpus_.validation.size()) text += ", of which " + grouped(limit) + " are read at the end";
    return text;
  }

 private:
  const Corpus corpus_;
  const LanguageOptions options_;
  LanguageModel model_;
  Sampler sampler_;
};

// Where the parameters are, for any size: nothing is allocated.
std::vector<std::pair<std::string, int64_t>> parameters_of(const json& recipe) {
  const LanguageOptions options = language_options_from_json(recipe);
  LanguageModelOptions model = options.model;
  FEM_CHECK(model.vocab_size > 0 || options.corpus.tokenizer == "bytes",
            "train: --parameters needs the vocabulary; add --set model.vocab_size=N");
  if (model.vocab_size == 0) model.vocab_size = byte_tokenizer()->vocab_size();
  const std::vector<ParameterSpec> parameters = language_model_parameters(model);
  const auto sum_of = [&](const std::string& part) {
    std::vector<ParameterSpec> own;
    for (const ParameterSpec& spec : parameters)
      if (spec.name.find(part) != std::string::npos) own.push_back(spec);
    return parameter_count(own);
  };
  const int64_t all = parameter_count(parameters), mixers = sum_of(".mixer."), mlps = sum_of(".mlp.");
  const int64_t tokens = sum_of("embedding.") + sum_of("head.");
  return {{model.tie_embeddings ? "embedding (and head)" : "embedding and head", tokens},
          {"mixers", mixers},
          {"MLPs", mlps},
          {"norms", all - tokens - mixers - mlps}};
}

void show_sample(const fs::path& run, std::ostream& out) {
  TextModel trained = load_text_model(run);
  const int64_t start = trained.tokenizer->separator();
  StreamedText text(trained.tokenizer, start, {});
  const GenerateOptions options{.max_tokens = 200, .temperature = 0.8, .end = start};
  out << "A sample:\n";
  generate(trained.model, {{start}}, options, [&](size_t, int64_t token) {
    out << text.add(token) << std::flush;
    return true;
  });
  out << text.finish() << "\n\nMore: " << shell_command(std::array<std::string, 3>{"fem", "generate", run.string()})
      << " --prompt \"...\"\n";
}

// Bytes are what a recipe without a tokenizer means, but not one that names a vocabulary: it was made for another.
void check_tokenizer_is_named(const json& recipe) {
  const json data = recipe.value("data", json::object());
  const int64_t vocabulary = language_options_from_json(recipe).model.vocab_size;
  FEM_CHECK(vocabulary == 0 || vocabulary == byte_tokenizer()->vocab_size() || data.contains("tokenizer"),
            "train: the recipe's model.vocab_size of ", grouped(vocabulary),
            " needs the tokenizer it is meant for, and none is named; add --tokenizer FILE.model (SentencePiece), "
            "--tokenizer sentencepiece:",
            vocabulary, " to train one, or --set model.vocab_size=0 for bytes");
}

void list_settings(const SettingVisitor& visit) {
  const LanguageOptions defaults;
  visit_language_data(defaults, settings_of("data", visit));
  visit_language_model_options(defaults.model, settings_of("model", visit));
  const auto of_mixer = settings_of("model.mixer", visit);
  visit_mixer_options(defaults.model.mixer, [&](const char* name, const auto& value, const char* help) {
    if (std::find(kFromTheModel.begin(), kFromTheModel.end(), name) == kFromTheModel.end()) of_mixer(name, value, help);
  });
}

}  // namespace

LanguageOptions language_options_from_json(const json& recipe) {
  LanguageOptions options;
  if (recipe.contains("model")) options.model = language_model_options_from_json(recipe["model"]);
  const json data = recipe.value("data", json::object());
  OptionsReader reader("data", data);
  visit_language_data(options, reader);
  reader.finish();
  FEM_CHECK(options.length >= 1, "data: expected length of at least 1, got ", options.length);
  FEM_CHECK(options.length <= kLongestRow, "data: expected length of at most ", kLongestRow, ", got ", options.length);
  for (const auto& [name, value] : {std::pair{"validation_tokens", options.validation_tokens},
                                    {"final_validation_tokens", options.final_validation_tokens}})
    FEM_CHECK(value >= 0, "data: expected ", name, " of at least 0, got ", value);
  return options;
}

std::optional<LanguageOptions> language_options_of_run(const fs::path& model_folder) {
  const json recipe = trained_folder(model_folder, language_entry().name).recipe;
  return recipe.is_null() ? std::nullopt : std::optional(language_options_from_json(recipe));
}

std::unique_ptr<Task> language_task(const LanguageOptions& options, const TrainOptions& train, const fs::path& start) {
  FEM_CHECK(!options.corpus.train.empty(), "train: expected --data with files, folders or globs of text, got none");
  return std::make_unique<LanguageTask>(options, train, start);
}

const TaskEntry& language_entry() {
  static const TaskEntry entry{
      .name = "language",
      .summary = "predict every token of a text from those before it",
      .make =
          [](const json& recipe, const TrainOptions& train, const fs::path& start) {
            check_tokenizer_is_named(recipe);
            return language_task(language_options_from_json(recipe), train, start);
          },
      .parameters = parameters_of,
      .settings = list_settings,
      .show = show_sample,
  };
  return entry;
}

}  // namespace fem
