// From a string to a string with a model that `fem train` made. Usage: continue MODEL PROMPT
#include <fem/fem.h>

#include <exception>
#include <iostream>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: continue MODEL PROMPT\n";
    return 2;
  }
  try {
    const std::string prompt = argv[2];
    fem::TextModel model = fem::load_text_model(argv[1]);
    const fem::TextOptions options{{.max_tokens = 100, .temperature = 0}, {"\n"}};

    // As it is made: whole characters, a few at a time.
    std::cout << prompt;
    const std::string text = fem::generate_texts(model, {prompt}, options, [](size_t, const std::string& some) {
                               std::cout << some << std::flush;
                               return true;
                             }).front();
    if (text.empty()) return 0;

    const fem::Likelihood likelihood =
        fem::likelihoods(model.model, *model.tokenizer, {{prompt, text}}, /*batch_tokens=*/4096).front();
    std::cout << "\n" << -likelihood.log_probability << " nats" << (likelihood.greedy ? ", the likeliest\n" : "\n");
  } catch (const c10::Error& error) {
    std::cerr << error.what_without_backtrace() << "\n";
    return 1;
  }
}
