#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bar.h"
#include "commands.h"
#include "io/atomic_file.h"
#include "io/recipe.h"
#include "parallel/process_group.h"
#include "tasks/images/report.h"
#include "tasks/images/task.h"
#include "train/run.h"
#include "train/run_folder.h"
#include "util/check.h"
#include "util/plot.h"
#include "util/shell.h"
#include "util/table.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

struct ClassifyArguments {
  std::string recipe = "images/small", data, out, model, plot, json, part = "test";
  std::vector<std::string> files, changes;
  std::optional<int64_t> size, epochs;
  int64_t top = 3;
  bool resume = false, plain = false;
};

constexpr int64_t kPictureEpochs = 20;

void tell(const std::string& note) { std::cerr << "note: " << note << "\n"; }

ImageSet read_and_tell(const std::function<ImageSet(const std::function<void(int64_t, int64_t)>&)>& read) {
  ImageSet set = read(bar_of("read", "pictures"));
  for (const std::string& note : set.notes) tell(note);
  return set;
}

// The picture, and beside it what it was drawn from.
void draw_classes(const fs::path& picture, const Json& document) {
  const fs::path figures = fs::path(picture).replace_extension(".json");
  write_atomically(figures, [&](std::ostream& file) { file << document.dump() << "\n"; });
  const PlotCommand plot = plot_command("plot_classes.py", {figures.string(), "--out", picture.string()});
  std::cout << (draw(plot) ? "Picture: " + picture.string() : plot.by_hand()) << "\n";
}

nlohmann::json recipe_to_classify(const ClassifyArguments& arguments) {
  if (arguments.resume) {
    nlohmann::json recipe = recipe_of_run(arguments.out);
    if (!recipe.is_null()) return recipe;
  }
  nlohmann::json recipe = load_recipe(find_recipe(arguments.recipe));
  FEM_CHECK(!arguments.data.empty(), "classify: expected a folder of pictures; name it with --data DIR");
  recipe["data"]["folder"] = arguments.data;
  if (arguments.size) recipe["data"]["size"] = *arguments.size;
  return recipe;
}

std::string score_text(const ClassificationScore& score, const std::vector<std::string>& classes) {
  return "accuracy " + fixed(100 * score.accuracy(), 2) + " % (" + grouped(score.hits()) + " of " +
         grouped(score.pictures()) + "), loss " + fixed(score.loss(), 4) + "\n\n" + class_table(score, classes);
}

void show_classifier(const ClassifyArguments& arguments, const ImageData& data, const TrainResult& result) {
  TrainedClassifier trained = load_trained_classifier(arguments.out, {});
  const std::vector<std::string>& classes = trained.model->options.classes;
  const ClassificationScore score = score_images(trained.model, data.test, {.on_batch = bar_of("test", "pictures")});
  std::cout << "\nOn the " << grouped(data.test.count())
            << " pictures that were held back: " << score_text(score, classes) << "\nModel: " << trained.folder.string()
            << " (step " << grouped(result.measured_step) << ")\n";
  if (!arguments.plain) draw_classes(fs::path(arguments.out) / "confusion.png", score_document(score, classes));
}

// Steps, warm-up and validations by passes over the pictures, where nothing else was said.
Recipe recipe_for_pictures(nlohmann::json recipe, const ImageSet& set, int64_t epochs) {
  const nlohmann::json said = recipe.value("train", nlohmann::json::object());
  recipe["train"] =
      training_for(image_options_from_json(recipe), set, said.value("batch", TrainOptions().batch), epochs);
  recipe["train"].update(said);
  return recipe_from_json(recipe);
}

void train_classifier(const ClassifyArguments& arguments) {
  nlohmann::json recipe = recipe_to_classify(arguments);
  for (const std::string& change : arguments.changes) set_value(recipe, change);
  FEM_CHECK(recipe.value("task", nlohmann::json()) == images_entry().name,
            "classify: expected a recipe whose task is \"images\", got ",
            recipe.value("task", nlohmann::json()).dump());
  const ImageOptions options = image_options_from_json(recipe);
  const ImageSet set = read_and_tell([&](const auto& on_picture) { return images_of(options.data, on_picture); });
  const Recipe whole = recipe_for_pictures(recipe, set, arguments.epochs.value_or(kPictureEpochs));
  const TrainResult result = train([&](const fs::path&) { return image_task(options, set, whole.train); }, whole.train,
                                   {.out = arguments.out, .resume = arguments.resume}, std::cout);
  if (parallel_environment().rank != 0) return;
  if (!result.finished) {
    std::cout << "Stopped after step " << grouped(result.step)
              << ", which is saved. Go on with: fem classify train --out " << shell_word(arguments.out)
              << " --resume\n";
    return;
  }
  show_classifier(arguments, image_data(options.data, set), result);
}

void classify_pictures(const ClassifyArguments& arguments) {
  std::error_code none;
  for (const std::string& file : {arguments.out, arguments.plot})
    FEM_CHECK(file.empty() || !fs::exists(file, none), "classify: ", file,
              " exists; choose another name, or remove it");
  TrainedClassifier trained = load_trained_classifier(arguments.model, {});
  const std::vector<Classified> found = classify_files(trained, arguments.files, arguments.top, tell);
  if (arguments.out.empty()) {
    write_classified(std::cout, found);
  } else {
    write_atomically(arguments.out, [&](std::ostream& file) { write_classified(file, found); });
    std::cout << grouped(static_cast<int64_t>(found.size())) << " pictures: " << arguments.out << "\n";
  }
  if (!arguments.plot.empty()) draw_classes(arguments.plot, picture_document(found));
}

void evaluate_classifier(const ClassifyArguments& arguments) {
  if (!arguments.json.empty()) expect_appendable(arguments.json, "--json");
  TrainedClassifier trained = load_trained_classifier(arguments.model, arguments.data);
  const ImageSet set = read_and_tell([&](const auto& on_picture) { return images_for(trained, on_picture); });
  const ImageData data = image_data(trained.data, set);
  const LabelledImages& images = arguments.part == "test" ? data.test : data.validation;
  const ClassificationScore score =
      score_images(trained.model, images, {.on_batch = bar_of(arguments.part, "pictures")});
  std::cout << trained.folder.string() << " on the " << grouped(images.count()) << " " << arguments.part
            << " pictures of " << trained.data.folder.string() << ": "
            << score_text(score, trained.model->options.classes);
  Json line{{"model", trained.folder.string()}, {"data", trained.data.folder.string()}, {"part", arguments.part}};
  line.update(score_document(score, trained.model->options.classes));
  if (!arguments.json.empty()) append_jsonl(arguments.json, line);
  if (!arguments.plot.empty()) draw_classes(arguments.plot, line);
}

void add_classify_train(CLI::App& classify) {
  CLI::App* app = classify.add_subcommand("train", "Learn to tell the class of a picture");
  app->footer(
      "--data: IDX files under MNIST's names, packed by gzip or not; or a folder of PNG and JPEG files for every "
      "class; "
      "or such folders in train/ and test/. A tenth of the training pictures decides which model is kept; what is "
      "reported was held back.\n"
      "\n"
      "Writes to --out: checkpoints/, best (a model folder), metrics.jsonl, result.json, confusion.png. Ctrl-C saves a "
      "checkpoint first; --resume goes on bit by bit. What else --set may change: fem train --help\n"
      "\n"
      "Examples:\n"
      "  fem classify train --data pictures --size 64 --out runs/pictures\n"
      "  fem classify train --data pictures --recipe images/deit-tiny --set data.flip=true --epochs 100\n"
      "  fem classify train --out runs/pictures --resume");
  const auto arguments = std::make_shared<ClassifyArguments>();
  arguments->out = "runs/classify";
  app->add_option("--data", arguments->data, "The folder of the pictures")->type_name("DIR");
  app->add_option("--size", arguments->size,
                  "Scale and cut all pictures to so many pixels a side; default: as they are")
      ->type_name("N");
  app->add_option("--recipe", arguments->recipe, "A .toml file or a name in configs")
      ->type_name(kRecipeType)
      ->capture_default_str();
  app->add_option("--epochs", arguments->epochs, "Passes over the training pictures; default 20")->type_name("N");
  app->add_option("--out", arguments->out, "Folder of the run")->type_name("DIR")->capture_default_str();
  app->add_option("--set", arguments->changes, "Change a value of the recipe, such as data.mixup=0.2")
      ->allow_extra_args(false)
      ->type_name("NAME=VALUE");
  app->add_flag("--resume", arguments->resume, "Go on from the newest checkpoint of the run, if there is one");
  app->add_flag("--plain", arguments->plain, "No picture at the end");
  app->callback([arguments] { train_classifier(*arguments); });
}

void add_classifier(CLI::App& app, ClassifyArguments& arguments) {
  app.add_option("model", arguments.model, "A run of fem classify train, or a model folder")
      ->required()
      ->type_name("DIR");
  app.add_option("--plot", arguments.plot, "Draw a picture; its figures go beside it as .json")->type_name("PNG");
}

void add_classify_predict(CLI::App& classify) {
  CLI::App* app = classify.add_subcommand("predict", "Tell the classes of pictures");
  app->footer(
      "A picture of another size is scaled until it covers the model's, and cut in the middle.\n"
      "\n"
      "Example:\n"
      "  fem classify predict runs/pictures new/ other.jpg --out classes.csv --plot classes.png");
  const auto arguments = std::make_shared<ClassifyArguments>();
  add_classifier(*app, *arguments);
  app->add_option("files", arguments->files, "PNG and JPEG files, and folders of them")->required()->type_name("FILE");
  app->add_option("--top", arguments->top, "So many classes of each, the likeliest first")
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--out", arguments->out, "Where the table goes; default: the terminal")->type_name("FILE");
  app->callback([arguments] { classify_pictures(*arguments); });
}

void add_classify_eval(CLI::App& classify) {
  CLI::App* app = classify.add_subcommand("eval", "Measure a model class by class, on what was held back");
  app->footer(
      "Example:\n"
      "  fem classify eval runs/pictures --json accuracy.jsonl --plot confusion.png");
  const auto arguments = std::make_shared<ClassifyArguments>();
  add_classifier(*app, *arguments);
  app->add_option("--data", arguments->data, "The pictures; default: those it was trained on")->type_name("DIR");
  app->add_option("--part", arguments->part, "test or validation")
      ->check(CLI::IsMember({"test", "validation"}))
      ->type_name("NAME")
      ->capture_default_str();
  app->add_option("--json", arguments->json, "Append all figures, with the confusions, as a line of JSON")
      ->type_name("FILE");
  app->callback([arguments] { evaluate_classifier(*arguments); });
}

}  // namespace

void add_classify_command(CLI::App& app) {
  CLI::App* classify = app.add_subcommand("classify", "Tell the classes of pictures (PNG, JPEG, IDX)");
  classify->require_subcommand(1);
  classify->fallthrough();
  classify->footer("Example:\n  fem classify train --data pictures --size 64 --out runs/pictures");
  add_classify_train(*classify);
  add_classify_predict(*classify);
  add_classify_eval(*classify);
}

}  // namespace fem
