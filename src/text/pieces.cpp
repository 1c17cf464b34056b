#include "text/pieces.h"

#include <dlfcn.h>

#include "util/check.h"

namespace fem {
namespace {

const SentencePieceLibrary* opened() {
  // What it defines itself it shall find before what torch defines. The address sanitizer, which does not allow that,
  // goes without.
  const int own_names_first = ::dlsym(RTLD_DEFAULT, "__asan_init") ? 0 : RTLD_DEEPBIND;
  void* const library = ::dlopen("libfem_sentencepiece.so", RTLD_NOW | RTLD_LOCAL | own_names_first);
  FEM_CHECK(library, "tokenizer: SentencePiece cannot be loaded: ", ::dlerror(),
            "; libfem_sentencepiece.so belongs beside libfem.so, and needs SentencePiece installed");
  using Get = const SentencePieceLibrary* (*)();
  const auto get = reinterpret_cast<Get>(::dlsym(library, "fem_sentencepiece"));
  FEM_CHECK(get, "tokenizer: SentencePiece cannot be loaded: ", ::dlerror(), "; install fem anew");
  return get();
}

}  // namespace

const SentencePieceLibrary& sentencepiece_library() {
  static const SentencePieceLibrary* const library = opened();
  return *library;
}

}  // namespace fem
