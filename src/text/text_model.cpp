#include "fem/text/text_model.h"

#include "fem/io/model_folder.h"
#include "fem/text/streamed_text.h"
#include "util/check.h"

namespace fem {

TextModel load_text_model(const std::filesystem::path& path) {
  TextModel loaded;
  FEM_CHECK(std::filesystem::is_directory(path), "model folder: expected a folder that fem train made, but ",
            path.string(), " is none");
  loaded.folder = model_folder(path);
  // First what is read at once: an error need not wait for the parameters.
  const int64_t most = load_language_model_options(loaded.folder).vocab_size;
  loaded.tokenizer = load_tokenizer(loaded.folder);
  FEM_CHECK(loaded.tokenizer->vocab_size() <= most, "model folder: the tokenizer in ", loaded.folder.string(),
            " knows ", loaded.tokenizer->vocab_size(), " tokens, but the model ", most,
            "; put the tokenizer there that the model was trained with");
  loaded.model = load_language_model(loaded.folder);
  loaded.model->limit_tokens(loaded.tokenizer->vocab_size());
  return loaded;
}

std::vector<std::string> generate_texts(TextModel& model, const std::vector<std::string>& prompts,
                                        const TextOptions& options, const OnText& on_text) {
  std::vector<std::vector<int64_t>> contexts;
  std::vector<StreamedText> streams;
  for (const std::string& prompt : prompts) {
    contexts.push_back(model.tokenizer->encode_prompt(prompt));
    streams.emplace_back(model.tokenizer, contexts.back().back(), options.stops);
  }
  GenerateOptions tokens = options.tokens;
  tokens.end = model.tokenizer->separator();
  std::vector<std::string> texts(prompts.size());
  std::vector<int64_t> counts(prompts.size());
  generate(model.model, contexts, tokens, [&](size_t row, int64_t token) {
    std::string text = streams[row].add(token);
    const bool last = ++counts[row] == tokens.max_tokens || token == tokens.end;
    if (last) text += streams[row].finish();
    texts[row] += text;
    const bool wanted = !on_text || on_text(row, text);
    return wanted && !streams[row].stopped();
  });
  // Of rows that were no longer wanted.
  for (size_t row = 0; row < texts.size(); ++row) texts[row] += streams[row].finish();
  return texts;
}

std::string generate_text(TextModel& model, const std::string& prompt, const TextOptions& options) {
  return generate_texts(model, {prompt}, options).front();
}

}  // namespace fem
