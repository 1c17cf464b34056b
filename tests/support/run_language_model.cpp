// run_language_model FOLDER IN.safetensors OUT.safetensors: the logits of "tokens" (and "cu_seqlens") by a model
// folder, for comparison with the Python package.
#include <ATen/ATen.h>

#include <cstdio>

#include "fem/io/model_folder.h"
#include "fem/io/safetensors.h"

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "usage: run_language_model FOLDER IN OUT\n"), 2;
  try {
    const at::NoGradGuard no_grad;
    fem::LanguageModel model = fem::load_language_model(argv[1]);
    const fem::Safetensors in = fem::load_safetensors(argv[2]);
    fem::Batch batch;
    if (in.tensors.count("cu_seqlens")) batch.cu_seqlens = in.tensors.at("cu_seqlens");
    fem::save_safetensors(argv[3], {{{"logits", model(in.tensors.at("tokens"), batch)}}, {}});
  } catch (const c10::Error& error) {
    std::fprintf(stderr, "run_language_model: %s\n", error.what_without_backtrace());
    return 1;
  }
}
