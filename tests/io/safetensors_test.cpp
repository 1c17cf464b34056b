#include "fem/io/safetensors.h"

#include <ATen/ATen.h>

#include <cstring>

#include "io/temporary_folder.h"
#include "support/error_text.h"

namespace fem {
namespace {

using testing::fails_with;

// A file by hand: header length, header, data.
std::string bytes_of(const std::string& header, const std::string& data = "") {
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

class SafetensorsFile : public testing::TemporaryFolder {
 protected:
  ::testing::AssertionResult is_refused(const std::string& bytes, const std::string& text) {
    write(path(), bytes);
    const auto named = fails_with("load_safetensors: " + path().string(), [&] { load_safetensors(path()); });
    return named ? fails_with(text, [&] { load_safetensors(path()); }) : named;
  }
  std::filesystem::path path() const { return folder / "file.safetensors"; }
};

TEST_F(SafetensorsFile, KeepsEveryDtypeShapeAndValue) {
  Safetensors content;
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kShort,
                           at::kChar, at::kByte, at::kBool})
    content.tensors[std::string("a ") + c10::toString(dtype)] =
        at::arange(15).remainder(7).sub(2).view({3, 5}).to(dtype);
  content.tensors["scalar"] = at::scalar_tensor(2.5);
  content.tensors["empty"] = at::empty({0, 3});
  content.tensors["a view"] = at::arange(12).view({3, 4}).t().slice(0, 1, 3);
  content.metadata = {{"format", "pt"}, {"quoted", "\"\\\n"}, {"", "empty key"}};
  save_safetensors(path(), content);
  const Safetensors loaded = load_safetensors(path());
  EXPECT_EQ(loaded.metadata, content.metadata);
  ASSERT_EQ(loaded.tensors.size(), content.tensors.size());
  for (const auto& [name, tensor] : content.tensors) {
    EXPECT_EQ(loaded.tensors.at(name).scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(loaded.tensors.at(name), tensor)) << name;
  }
}

TEST_F(SafetensorsFile, KeepsBitsOfNanAndNegativeZero) {
  const at::Tensor bits = at::arange(0x10000, at::kInt).to(at::kShort);
  save_safetensors(path(), {{{"all", bits.view(at::kBFloat16)}}, {}});
  EXPECT_TRUE(at::equal(load_safetensors(path()).tensors.at("all").view(at::kShort), bits));
}

TEST_F(SafetensorsFile, AlignsHeaderAndTensors) {
  save_safetensors(path(),
                   {{{"a", at::ones({3}, at::kBool)}, {"b", at::ones({1}, at::kDouble)}, {"c", at::ones({1})}}, {}});
  const std::string bytes = read(path());
  uint64_t length;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  const std::string header = bytes.substr(8, length);
  EXPECT_NE(header.find(R"("b":{"data_offsets":[0,8])"), std::string::npos) << header;
  EXPECT_NE(header.find(R"("c":{"data_offsets":[8,12])"), std::string::npos) << header;
  EXPECT_NE(header.find(R"("a":{"data_offsets":[12,15])"), std::string::npos) << header;
  EXPECT_LT(header.find("\"a\""), header.find("\"b\""));
}

TEST_F(SafetensorsFile, EqualContentGivesEqualBytes) {
  const Safetensors content{{{"x", at::arange(5)}, {"y", at::ones({2})}}, {{"k", "v"}}};
  save_safetensors(path(), content);
  const std::string first = read(path());
  save_safetensors(path(), content);
  EXPECT_EQ(read(path()), first);
}

TEST_F(SafetensorsFile, MayHoldNothing) {
  save_safetensors(path(), {});
  EXPECT_TRUE(load_safetensors(path()).tensors.empty());
}

TEST_F(SafetensorsFile, RefusesWhatIsNoFile) {
  EXPECT_TRUE(fails_with((folder / "missing").string() + ": cannot be read: No such file",
                         [&] { load_safetensors(folder / "missing"); }));
  EXPECT_TRUE(fails_with(folder.string(), [&] { load_safetensors(folder); }));
}

TEST_F(SafetensorsFile, RefusesABrokenLength) {
  EXPECT_TRUE(is_refused("", "got 0 bytes, too few"));
  EXPECT_TRUE(is_refused("1234567", "got 7 bytes, too few"));
  EXPECT_TRUE(is_refused(std::string("\x03\0\0\0\0\0\0\0{}", 10), "header length of 3 bytes in a file of 10"));
  EXPECT_TRUE(is_refused(std::string(8, '\xff') + "{}", "header length of 18446744073709551615"));
}

TEST_F(SafetensorsFile, RefusesABrokenHeader) {
  EXPECT_TRUE(is_refused(bytes_of(""), "the header: expected JSON, but"));
  EXPECT_TRUE(is_refused(bytes_of("{"), "the header: expected JSON, but line 1, column 2"));
  EXPECT_TRUE(is_refused(bytes_of("[]"), "not a JSON object"));
  EXPECT_TRUE(is_refused(bytes_of("{} {}"), "the header: expected JSON, but line 1, column 4"));
  EXPECT_TRUE(is_refused(bytes_of("{\"\xff\":1}"), "ill-formed UTF-8"));
  EXPECT_TRUE(is_refused(bytes_of(R"({"__metadata__":{"k":1}})"), "not an object of strings"));
  EXPECT_TRUE(is_refused(bytes_of(R"({"__metadata__":[]})"), "not an object of strings"));
}

TEST_F(SafetensorsFile, RefusesAKeyThatAppearsTwice) {
  const std::string entry = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_TRUE(is_refused(bytes_of("{\"a\":" + entry + ",\"a\":" + entry + "}", "x"), "key \"a\" appears twice"));
  EXPECT_TRUE(is_refused(bytes_of(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"),
                         "key \"dtype\" appears twice"));
  EXPECT_TRUE(is_refused(bytes_of(R"({"__metadata__":{"k":"1","k":"2"}})"), "key \"k\" appears twice"));
  write(path(), bytes_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                         R"("b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                         "xy"));
  EXPECT_EQ(load_safetensors(path()).tensors.size(), 2u) << "equal keys of different objects are no duplicates";
}

TEST_F(SafetensorsFile, RefusesABrokenEntry) {
  const auto with = [](const std::string& entry) { return bytes_of("{\"a\":" + entry + "}", "xxxx"); };
  EXPECT_TRUE(is_refused(with("1"), "tensor \"a\" lacks"));
  EXPECT_TRUE(is_refused(with(R"({"dtype":"F32","shape":[1]})"), "tensor \"a\" lacks"));
  EXPECT_TRUE(is_refused(with(R"({"dtype":"F8_E4M3","shape":[4],"data_offsets":[0,4]})"), "unknown dtype \"F8_E4M3\""));
  EXPECT_TRUE(is_refused(with(R"({"dtype":32,"shape":[1],"data_offsets":[0,4]})"), "unknown dtype 32"));
  EXPECT_TRUE(is_refused(with(R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})"), "not a list of sizes"));
  EXPECT_TRUE(is_refused(with(R"({"dtype":"F32","shape":[1.0],"data_offsets":[0,4]})"), "not a list of sizes"));
  EXPECT_TRUE(is_refused(with(R"({"dtype":"F32","shape":1,"data_offsets":[0,4]})"), "not a list of sizes"));
  EXPECT_TRUE(is_refused(with(R"({"dtype":"F32","shape":[1],"data_offsets":[0]})"), "expected [begin, end]"));
  EXPECT_TRUE(is_refused(with(R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})"), "expected [begin, end]"));
  EXPECT_TRUE(is_refused(with(R"({"dtype":"F32","shape":[1],"data_offsets":[-4,0]})"), "expected [begin, end]"));
  EXPECT_TRUE(is_refused(with(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})"), "occupies 4 bytes, but"));
  EXPECT_TRUE(is_refused(with(R"({"dtype":"F32","shape":[0],"data_offsets":[0,4]})"), "occupies 4 bytes, but"));
}

TEST_F(SafetensorsFile, RefusesSizesThatOverflow) {
  // 2^62 * 4 * 4 bytes wrap around to 0, and 2^64 - 1 to a negative size.
  EXPECT_TRUE(is_refused(bytes_of(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})"),
                         "too large"));
  EXPECT_TRUE(
      is_refused(bytes_of(R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,0]}})"), "too large"));
  EXPECT_TRUE(is_refused(bytes_of(R"({"a":{"dtype":"U8","shape":[0,9223372036854775807,9],"data_offsets":[0,0]}})"),
                         "too large"));
}

TEST_F(SafetensorsFile, RefusesHolesOverlapsAndWrongEnds) {
  const auto two = [](const std::string& first, const std::string& second, const std::string& data) {
    return bytes_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + first +
                        R"(},"b":{"dtype":"U8","shape":[2],"data_offsets":)" + second + "}}",
                    data);
  };
  EXPECT_TRUE(is_refused(two("[0,2]", "[3,5]", "xxxxx"), "leaves a hole"));
  EXPECT_TRUE(is_refused(two("[1,3]", "[3,5]", "xxxxx"), "leaves a hole"));
  EXPECT_TRUE(is_refused(two("[0,2]", "[1,3]", "xxx"), "inside the tensor before"));
  EXPECT_TRUE(is_refused(two("[0,2]", "[0,2]", "xx"), "inside the tensor before"));
  EXPECT_TRUE(is_refused(two("[0,2]", "[2,4]", "xxx"), "ends at byte 4 of 3: the file is truncated"));
  EXPECT_TRUE(is_refused(two("[0,2]", "[2,4]", "xxxxx"), "1 bytes follow the last tensor"));
}

TEST_F(SafetensorsFile, RefusesABooleanThatIsNeither) {
  EXPECT_TRUE(is_refused(bytes_of(R"({"a":{"dtype":"BOOL","shape":[2],"data_offsets":[0,2]}})", "\x01\x02"),
                         "other than 0 and 1"));
}

TEST_F(SafetensorsFile, RefusesEveryTruncation) {
  save_safetensors(path(), {{{"x", at::arange(5)}, {"y", at::ones({2})}}, {{"k", "v"}}});
  const std::string whole = read(path());
  for (size_t length = 0; length < whole.size(); ++length) EXPECT_TRUE(is_refused(whole.substr(0, length), ""));
}

TEST_F(SafetensorsFile, DoesNotSaveWhatItCouldNotLoad) {
  const auto save = [&](const std::string& name, const at::Tensor& tensor) {
    return [=, this] { save_safetensors(path(), {{{name, tensor}}, {}}); };
  };
  EXPECT_TRUE(fails_with("cannot be named __metadata__", save("__metadata__", at::ones(1))));
  EXPECT_TRUE(fails_with("undefined or not dense", save("a", at::Tensor())));
  EXPECT_TRUE(fails_with("convert it first", save("a", at::ones(1, at::kComplexFloat))));
  EXPECT_TRUE(fails_with("must be UTF-8", save("\xff", at::ones(1))));
  EXPECT_EQ(files(), 0);
}

TEST_F(SafetensorsFile, AFailedSaveLeavesTheOldFile) {
  save_safetensors(path(), {{{"x", at::arange(5)}}, {}});
  const std::string old = read(path());
  EXPECT_TRUE(fails_with("save_safetensors", [&] { save_safetensors(path(), {{{"x", at::Tensor()}}, {}}); }));
  EXPECT_EQ(read(path()), old);
  EXPECT_TRUE(fails_with("save_safetensors: " + (folder / "no" / "x").string(),
                         [&] { save_safetensors(folder / "no" / "x", {}); }));
}

}  // namespace
}  // namespace fem
