// Tokenizers and streamed text as classes that torch hands to other languages. Bytes that need not be UTF-8 travel as
// uint8 tensors.
#include "fem/text/tokenizer.h"

#include <ATen/ATen.h>
#include <torch/custom_class.h>

#include <cstring>

#include "bindings/library.h"
#include "fem/text/streamed_text.h"
#include "text/sentencepiece.h"
#include "util/check.h"

namespace fem {
namespace {

using Tokens = std::vector<int64_t>;

at::Tensor tensor_of(const std::string& bytes) {
  const at::Tensor tensor = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  std::memcpy(tensor.mutable_data_ptr(), bytes.data(), bytes.size());
  return tensor;
}

std::string bytes_of(const at::Tensor& tensor) {
  FEM_CHECK(tensor.dim() == 1 && tensor.scalar_type() == at::kByte, "text: expected bytes as uint8 [N], got ",
            tensor.scalar_type(), " ", shape_of(tensor));
  const at::Tensor bytes = tensor.cpu().contiguous();
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

struct TokenizerHandle : torch::CustomClassHolder {
  explicit TokenizerHandle(TokenizerPtr own) : tokenizer(std::move(own)) {}
  const TokenizerPtr tokenizer;
};
using TokenizerHandlePtr = c10::intrusive_ptr<TokenizerHandle>;

TokenizerHandlePtr handle_of(TokenizerPtr tokenizer) {
  return c10::make_intrusive<TokenizerHandle>(std::move(tokenizer));
}

struct CertainTextHandle : torch::CustomClassHolder {
  explicit CertainTextHandle(std::vector<std::string> stops) : text(std::move(stops)) {}
  CertainText text;
};
using CertainTextPtr = c10::intrusive_ptr<CertainTextHandle>;

}  // namespace

void register_text(torch::Library& library) {
  library.class_<TokenizerHandle>("Tokenizer")
      .def_static("bytes", [] { return handle_of(byte_tokenizer()); })
      .def_static("sentencepiece", [](const std::string& path) { return handle_of(sentencepiece_tokenizer(path)); })
      .def_static("train_sentencepiece",
                  [](const std::vector<std::string>& texts, int64_t vocab_size) {
                    return handle_of(train_sentencepiece(texts, vocab_size));
                  })
      .def_static("load", [](const std::string& folder) { return handle_of(load_tokenizer(folder)); })
      .def("encode",
           [](const TokenizerHandlePtr& self, const std::string& text) { return self->tokenizer->encode(text); })
      .def("decode", [](const TokenizerHandlePtr& self,
                        const Tokens& tokens) { return tensor_of(self->tokenizer->decode(tokens)); })
      .def("continuation", [](const TokenizerHandlePtr& self, int64_t last,
                              int64_t token) { return tensor_of(self->tokenizer->continuation(last, token)); })
      .def("vocab_size", [](const TokenizerHandlePtr& self) { return self->tokenizer->vocab_size(); })
      .def("separator", [](const TokenizerHandlePtr& self) { return self->tokenizer->separator(); })
      .def("fingerprint", [](const TokenizerHandlePtr& self) { return self->tokenizer->fingerprint(); })
      .def("save", [](const TokenizerHandlePtr& self, const std::string& folder) { self->tokenizer->save(folder); })
      .def("model", [](const TokenizerHandlePtr& self) { return tensor_of(self->tokenizer->model()); })
      .def_static("of_model", [](const at::Tensor& model) { return handle_of(tokenizer_of_model(bytes_of(model))); });
  library.class_<CertainTextHandle>("CertainText")
      .def(torch::init<std::vector<std::string>>())
      .def("add", [](const CertainTextPtr& self, const at::Tensor& bytes) { return self->text.add(bytes_of(bytes)); })
      .def("finish", [](const CertainTextPtr& self) { return self->text.finish(); })
      .def("stopped", [](const CertainTextPtr& self) { return self->text.stopped(); });
}

}  // namespace fem
