#include "evaluate/trained_model.h"

#include "fem/io/model_folder.h"
#include "util/check.h"

namespace fem {

TrainedModel load_trained_model(const std::filesystem::path& path) {
  TrainedModel trained;
  FEM_CHECK(std::filesystem::is_directory(path), "model folder: expected a folder that fem train made, but ",
            path.string(), " is none");
  trained.folder = model_folder(path);
  // First what is read at once: an error need not wait for the parameters.
  const int64_t expected = load_language_model_options(trained.folder).vocab_size;
  trained.tokenizer = load_tokenizer(trained.folder);
  FEM_CHECK(trained.tokenizer->vocab_size() == expected, "model folder: the tokenizer in ", trained.folder.string(),
            " knows ", trained.tokenizer->vocab_size(), " tokens, but the model ", expected,
            "; put the tokenizer there that the model was trained with");
  trained.model = load_language_model(trained.folder);
  return trained;
}

}  // namespace fem
