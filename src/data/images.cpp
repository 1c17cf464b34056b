#include "data/images.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cctype>
#include <cstring>

#include "data/idx.h"
#include "data/picture.h"
#include "models/pixels.h"
#include "util/check.h"
#include "util/checksum.h"
#include "util/grouped.h"
#include "util/memory.h"

namespace fem {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostClasses = 1 << 16;

// The file of that name, packed or not; nothing if there is none.
fs::path packed_or_plain(const fs::path& folder, const std::string& name) {
  std::error_code none;
  for (const char* ending : {"", ".gz"})
    if (fs::exists(folder / (name + ending), none)) return folder / (name + ending);
  return {};
}

LabelledImages read_idx_part(const fs::path& folder, const std::string& part) {
  const fs::path pixels = packed_or_plain(folder, part + "-images-idx3-ubyte"),
                 labels = packed_or_plain(folder, part + "-labels-idx1-ubyte");
  FEM_CHECK(!pixels.empty() && !labels.empty(), "images: expected ", part, "-images-idx3-ubyte and ", part,
            "-labels-idx1-ubyte in ", folder.string(), ", packed by gzip or not; one of them is missing");
  LabelledImages read{read_idx(pixels, 3).unsqueeze(1), read_idx(labels, 1).to(at::kLong)};
  FEM_CHECK(read.pixels.size(0) == read.count(), "images: ", pixels.string(), " has ", grouped(read.pixels.size(0)),
            " pictures, but ", labels.string(), " has ", grouped(read.count()), " labels");
  return read;
}

ImageSet read_idx_set(const ImageFolder& from) {
  ImageSet set;
  set.train = read_idx_part(from.folder, "train");
  const bool tested = !packed_or_plain(from.folder, "t10k-images-idx3-ubyte").empty();
  if (tested) set.test = read_idx_part(from.folder, "t10k");
  FEM_CHECK(!tested || set.test.pixels.sizes().slice(1) == set.train.pixels.sizes().slice(1),
            "images: the test pictures in ", from.folder.string(), " have ", size_text(set.test.pixels),
            ", those of training ", size_text(set.train.pixels));
  const int64_t classes =
      1 + std::max(set.train.labels.max().item<int64_t>(), tested ? set.test.labels.max().item<int64_t>() : int64_t{0});
  set.classes = from.classes;
  FEM_CHECK(set.classes.empty() || static_cast<int64_t>(set.classes.size()) >= classes, "images: expected names of ",
            classes, " classes for the labels in ", from.folder.string(), ", got ", set.classes.size());
  for (auto i = static_cast<int64_t>(set.classes.size()); i < classes; ++i) set.classes.push_back(std::to_string(i));
  for (LabelledImages* part : {&set.train, &set.test}) {
    if (!part->labels.defined()) continue;
    std::vector<at::Tensor> converted;
    if (from.size > 0 || (from.channels > 0 && from.channels != 1)) {
      for (const at::Tensor& one : part->pixels.unbind(0)) {
        const at::Tensor coloured = with_channels(one, from.channels > 0 ? from.channels : 1);
        converted.push_back(from.size > 0 ? fitted(coloured, from.size, from.size) : coloured);
      }
      part->pixels = at::stack(converted);
    }
  }
  return set;
}

bool is_picture_name(const fs::path& path) {
  std::string ending = path.extension().string();
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

// Names in a folder that are not hidden, sorted.
std::vector<fs::path> entries_of(const fs::path& folder, bool folders) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error); !error && entry != fs::end(entry); entry.increment(error)) {
    std::error_code none;
    if (!entry->path().filename().string().starts_with('.') && entry->is_directory(none) == folders)
      found.push_back(entry->path());
  }
  FEM_CHECK(!error, "images: the folder ", folder.string(), " cannot be read: ", error.message());
  std::sort(found.begin(), found.end());
  return found;
}

struct FoundPicture {
  fs::path path;
  int64_t label;
};

// The pictures of the class folders in one folder, whose names are known if another part had them.
std::vector<FoundPicture> find_pictures(const fs::path& folder, std::vector<std::string>& classes, int64_t& others) {
  const std::vector<fs::path> folders = entries_of(folder, /*folders=*/true);
  FEM_CHECK(folders.size() <= kMostClasses, "images: ", folder.string(), " has ", folders.size(),
            " folders, expected at most ", kMostClasses, " classes");
  const bool first = classes.empty();
  std::vector<FoundPicture> found;
  for (const fs::path& own : folders) {
    const std::string name = own.filename().string();
    if (first) classes.push_back(name);
    const auto place = std::find(classes.begin(), classes.end(), name);
    FEM_CHECK(place != classes.end(), "images: ", own.string(), " is a class that the training pictures have not");
    const size_t before = found.size();
    for (const fs::path& path : picture_files(own)) found.push_back({path, place - classes.begin()});
    others += static_cast<int64_t>(entries_of(own, /*folders=*/false).size() - (found.size() - before));
    FEM_CHECK(found.size() > before, "images: the folder ", own.string(), " has no .png, .jpg or .jpeg file");
  }
  return found;
}

// Reads pictures one after another into one tensor, as large as the first of them.
class PictureReader {
 public:
  PictureReader(const ImageFolder& from, int64_t all, const std::function<void(int64_t, int64_t)>& on_picture)
      : from_(from), all_(all), on_picture_(on_picture) {}

  LabelledImages read(const std::vector<FoundPicture>& pictures) {
    LabelledImages read{{}, at::empty({static_cast<int64_t>(pictures.size())}, at::kLong)};
    for (size_t i = 0; i < pictures.size(); ++i) {
      const at::Tensor pixels = one(pictures[i].path);
      if (i == 0) read.pixels = at::empty({read.count(), pixels.size(0), pixels.size(1), pixels.size(2)}, at::kByte);
      const auto place = static_cast<int64_t>(i);
      read.pixels[place].copy_(pixels);
      read.labels.data_ptr<int64_t>()[place] = pictures[i].label;
      if (on_picture_) on_picture_(++done_, all_);
    }
    return read;
  }

 private:
  at::Tensor one(const fs::path& path) {
    at::Tensor pixels = read_picture(path);
    if (from_.channels > 0) pixels = with_channels(pixels, from_.channels);
    if (from_.size > 0) pixels = fitted(pixels, from_.size, from_.size);
    if (first_.empty()) {
      first_ = path.string();
      sizes_ = pixels.sizes().vec();
      const int64_t bytes = all_ * pixels.numel(), most = memory_limits().available / 2;
      FEM_CHECK(bytes <= most, "images: ", grouped(all_), " pictures of ", size_text(pixels), " take ",
                grouped(bytes >> 20), " MB, more than half of the ", grouped(most >> 19),
                " MB of memory that are free; scale them down with --size");
    }
    FEM_CHECK(pixels.size(0) == sizes_[0], "images: ", path.string(), " has ", size_text(pixels), ", but ", first_,
              " is in ", sizes_[0] == 1 ? "grey" : "colour",
              "; convert all with --set data.channels=3 (colour) or =1 (grey)");
    FEM_CHECK(pixels.sizes() == at::IntArrayRef(sizes_), "images: ", path.string(), " has ", size_text(pixels),
              ", but ", first_, " ", sizes_[2], " x ", sizes_[1],
              "; scale all with --size N, or make them equally large");
    return pixels;
  }

  const ImageFolder& from_;
  const int64_t all_;
  const std::function<void(int64_t, int64_t)>& on_picture_;
  int64_t done_ = 0;
  std::string first_;
  std::vector<int64_t> sizes_;
};

ImageSet read_picture_set(const ImageFolder& from, const std::function<void(int64_t, int64_t)>& on_picture) {
  FEM_CHECK(from.classes.empty(), "images: the classes of ", from.folder.string(),
            " are the names of its folders; leave data.classes out");
  std::error_code none;
  ImageSet set;
  int64_t others = 0;
  const bool parted = fs::is_directory(from.folder / "train", none);
  const fs::path train = parted ? from.folder / "train" : from.folder;
  std::vector<FoundPicture> learned = find_pictures(train, set.classes, others), tested;
  FEM_CHECK(set.classes.size() >= 2, "images: expected IDX files, or folders of pictures named after at least two ",
            "classes, in ", train.string(), "; found ", set.classes.size(), " such folders");
  for (const char* name : {"test", "val"})
    if (parted && tested.empty() && fs::is_directory(from.folder / name, none))
      tested = find_pictures(from.folder / name, set.classes, others);
  PictureReader reader(from, static_cast<int64_t>(learned.size() + tested.size()), on_picture);
  set.train = reader.read(learned);
  if (!tested.empty()) set.test = reader.read(tested);
  if (others > 0)
    set.notes.push_back(grouped(others) + " files that are not called .png, .jpg or .jpeg were passed over");
  return set;
}

std::string checksum_of(const ImageSet& set) {
  Checksum checksum;
  for (const std::string& name : set.classes) checksum.add(name + '\n');
  for (const LabelledImages* part : {&set.train, &set.test}) {
    if (!part->labels.defined()) continue;
    for (const at::Tensor& tensor : {part->pixels, part->labels})
      checksum.add({static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()});
  }
  return checksum.text();
}

}  // namespace

std::vector<fs::path> picture_files(const fs::path& folder) {
  std::vector<fs::path> files = entries_of(folder, /*folders=*/false);
  std::erase_if(files, [](const fs::path& path) { return !is_picture_name(path); });
  return files;
}

LabelledImages LabelledImages::at(const at::Tensor& places) const {
  return {pixels.index_select(0, places), labels.index_select(0, places)};
}

ImageSet read_images(const ImageFolder& from, const std::function<void(int64_t, int64_t)>& on_picture) {
  FEM_CHECK(from.size >= 0 && from.size <= kLargestSide, "images: expected size from 0 to ", kLargestSide, ", got ",
            from.size);
  FEM_CHECK(from.channels == 0 || from.channels == 1 || from.channels == 3,
            "images: expected channels 1 (grey), 3 (colour) or 0 (as they are), got ", from.channels);
  std::error_code none;
  FEM_CHECK(fs::is_directory(from.folder, none), "images: expected a folder of pictures, got ", from.folder.string(),
            fs::exists(from.folder, none) ? ", which is none" : ", which does not exist");
  const bool idx = !packed_or_plain(from.folder, "train-images-idx3-ubyte").empty();
  ImageSet set = idx ? read_idx_set(from) : read_picture_set(from, on_picture);
  if (!set.test.labels.defined()) set.test = {set.train.pixels.slice(0, 0, 0), set.train.labels.slice(0, 0, 0)};
  set.checksum = checksum_of(set);
  return set;
}

}  // namespace fem
