#pragma once

#include <string>

#include "fem/text/tokenizer.h"

namespace fem {

// A tokenizer by its model(): empty for bytes. `name` is what errors call the model.
TokenizerPtr tokenizer_of_model(std::string model, const std::string& name = "the model");

}  // namespace fem
