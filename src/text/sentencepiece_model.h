#pragma once

#include <string>
#include <string_view>

namespace fem {

// Throws a clause unless the library can read the bytes of a SentencePiece model without leaving them. Version 0.1.97
// trusts the table of normalisations (precompiled_charsmap) in the file: a trie whose nodes it follows and texts it
// reads up to a zero, neither of them bounded (docs/decisions/0026-outside-bytes.md).
void check_sentencepiece_model(std::string_view model);

// The model with this add_dummy_prefix, and without samples of what it made with its own.
std::string with_dummy_prefix(std::string_view model, bool adds_space);

}  // namespace fem
