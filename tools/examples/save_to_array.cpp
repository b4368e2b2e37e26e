// Saves tensors to an array that is not mounted, and loads them again, with fastpersist-array:
//
//   g++ -std=c++20 save_to_array.cpp -o save_to_array $(pkg-config --cflags --libs fastpersist-array)
//   save_to_array save DIR:DIR... PATH [ELEMENTS [SEED]]
//   save_to_array load DIR:DIR... PATH
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <fastpersist/array.h>

namespace {

int fail(const fastpersist::Error& error) {
  std::fprintf(stderr, "save_to_array: %s\n", error.message.c_str());
  return 1;
}

std::vector<float> weights(uint64_t elements, uint64_t seed) {
  std::vector<float> made(elements);
  for (uint64_t i = 0; i < elements; ++i) made[i] = static_cast<float>((i * 31 + seed * 17) % 65521);
  return made;
}

fastpersist::Error save(fastpersist::Array& array, const std::string& path, uint64_t elements, uint64_t seed) {
  const std::vector<float> weight = weights(elements, seed);
  const int64_t step = static_cast<int64_t>(seed);
  if (const size_t slash = path.rfind('/'); slash != std::string::npos)
    if (fastpersist::Error error = array.make_directories(path.substr(0, slash)); !error.is_ok()) return error;
  // Durable when it has returned.
  return array.save(
      path,
      {{"weight", "F32", {elements}, weight.data(), elements * sizeof(float)}, {"step", "I64", {}, &step, sizeof step}},
      {.metadata = {{"seed", std::to_string(seed)}}});
}

fastpersist::Error load(fastpersist::Array& array, const std::string& path) {
  fastpersist::Contents contents;
  if (fastpersist::Error error = array.list(path, contents); !error.is_ok()) return error;
  const uint64_t seed = std::strtoull(contents.metadata["seed"].c_str(), nullptr, 10);
  uint64_t elements = 0;
  for (const auto& tensor : contents.tensors)
    if (tensor.name == "weight") elements = tensor.shape.at(0);
  std::vector<float> weight(elements);
  int64_t step = 0;
  fastpersist::Error error =
      array.load(path, {{"weight", weight.data(), elements * sizeof(float)}, {"step", &step, sizeof step}});
  if (!error.is_ok()) return error;
  if (weight != weights(elements, seed) || step != static_cast<int64_t>(seed))
    return {EIO, path + ": has other content"};
  std::printf("seed %llu, %llu elements\n", static_cast<unsigned long long>(seed),
              static_cast<unsigned long long>(elements));
  return {};
}

}  // namespace

int main(int count, char** words) {
  const std::string verb = count > 1 ? words[1] : "";
  if (count < 4 || (verb != "save" && verb != "load")) {
    std::fprintf(stderr, "usage: save_to_array save|load DIR:DIR... PATH [ELEMENTS [SEED]]\n");
    return 2;
  }
  fastpersist::Error error;
  const auto array = fastpersist::Array::open(words[2], {.read_only = verb == "load"}, error);
  if (array == nullptr) return fail(error);
  error = verb == "load" ? load(*array, words[3])
                         : save(*array, words[3], count > 4 ? std::strtoull(words[4], nullptr, 10) : 1'000'003,
                                count > 5 ? std::strtoull(words[5], nullptr, 10) : 1);
  if (!error.is_ok()) return fail(error);
  error = array->close();
  return error.is_ok() ? 0 : fail(error);
}
