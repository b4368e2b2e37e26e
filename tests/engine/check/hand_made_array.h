// A small array of real directories whose sidecars and objects are made by hand, byte by byte, without engine/file.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/array/array.h"
#include "engine/check/check.h"
#include "engine/codec/hash.h"
#include "engine/index/sidecar.h"
#include "engine/io/posix_environment.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_data.h"

namespace fpfs {

// Files, generations, chunks and members are plain numbers here, as they stand on the drives.
class HandMadeArray {
 public:
  static constexpr uint32_t kChunkSize = 64 * 1024;
  static constexpr uint16_t kMembers = 3;

  explicit HandMadeArray(const std::string& place = test::quick_place()) : directory_(place) {
    for (const char* name : {"a", "b", "c"}) directories.push_back(directory_ / name);
    FormatOptions options;
    options.chunk_size = kChunkSize;
    const Status status = Array::format(environment, directories, options);
    EXPECT_TRUE(status.is_ok()) << status.message();
    const auto array = open(true);
    id = array->id();
    for (const MemberIndex m : range_to(MemberIndex(kMembers))) members.push_back(array->member(m).path);
  }

  // A file made of raw chunks, as one commit leaves it.
  struct Spec {
    uint64_t file = 1;
    uint32_t generation = 0;
    uint64_t size = 0;
    uint64_t seed = 1;
  };

  FileImage add_file(const std::string& path, const Spec& spec) {
    FileImage image;
    SidecarRecord record;
    record.sequence = 1;
    record.generation = Generation(spec.generation);
    record.size = spec.size;
    for (uint64_t offset = 0; offset < spec.size; offset += kChunkSize)
      record.extents.emplace_back(offset / kChunkSize, write_chunk(spec, offset / kChunkSize));
    write_sidecar(path, spec.file, {record});
    for (const auto& [chunk, extent] : record.extents) image.extents.set(chunk, extent);
    image.file_id = FileId(spec.file);
    image.generation = Generation(spec.generation);
    return image;
  }

  // Stores one chunk of a file in its natural place.
  Extent write_chunk(const Spec& spec, uint64_t chunk) {
    std::vector<std::byte> data(std::min<uint64_t>(kChunkSize, spec.size - chunk * kChunkSize));
    test::fill(data, spec.seed, chunk * kChunkSize);
    return store_chunk(spec, chunk, data, Codec::kRaw, static_cast<uint32_t>(data.size()));
  }
  // The same with any stored bytes, which `codec` says to be `raw_length` bytes.
  Extent store_chunk(const Spec& spec, uint64_t chunk, std::vector<std::byte> stored, Codec codec,
                     uint32_t raw_length) {
    const StripeMap stripes{kChunkSize, kMembers};
    Extent extent;
    extent.codec = codec;
    extent.member = stripes.member_of(FileId(spec.file), ChunkIndex(chunk));
    extent.slot = stripes.natural_slot(ChunkIndex(chunk));
    extent.stored_length = static_cast<uint32_t>(stored.size());
    extent.raw_length = extent.visible_length = raw_length;
    extent.checksum =
        hash_bytes(stored, chunk_seed(id.data(), FileId(spec.file), Generation(spec.generation), ChunkIndex(chunk)));
    stored.resize(extent.allocated());
    write_at(object(extent.member, spec.file, spec.generation), offset_of(extent.slot, kChunkSize).value(), stored);
    return extent;
  }

  // Returns the bytes of the sidecar.
  std::vector<std::byte> write_sidecar(const std::string& path, uint64_t file,
                                       const std::vector<SidecarRecord>& records) {
    const SidecarHeader header{id, FileId(file), kChunkSize};
    std::vector<std::byte> bytes = encode_sidecar_header(header);
    for (const SidecarRecord& record : records)
      encode_sidecar_record(header, record, SidecarOffset(bytes.size()), SidecarOffset(0), bytes);
    const std::string where = sidecar(path);
    std::filesystem::create_directories(std::filesystem::path(where).parent_path());
    std::filesystem::remove(where);
    write_at(where, 0, bytes);
    return bytes;
  }

  static void write_at(const std::string& file, uint64_t offset, std::span<const std::byte> data) {
    if (!std::filesystem::exists(file)) std::ofstream(file).flush();
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekp(static_cast<std::streamoff>(offset));
    stream.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
    EXPECT_TRUE(stream.good()) << file;
  }
  static void flip_bit(const std::string& file, uint64_t offset, unsigned bit = 3) {
    std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(offset));
    const char byte = static_cast<char>(stream.get() ^ (1 << bit));
    stream.seekp(static_cast<std::streamoff>(offset));
    stream.put(byte);
    EXPECT_TRUE(stream.good()) << file;
  }

  std::string sidecar(const std::string& path) const { return members[0] + "/tree" + path; }
  std::string object(MemberIndex member, uint64_t file, uint32_t generation) const {
    return members[member.value()] + "/objects/" + Array::object_path(FileId(file), Generation(generation));
  }

  // As a mount that did not end cleanly leaves it. `earlier`: it began before everything that is there was written.
  void leave_dirty(bool earlier = true) const {
    const std::string state = members[0] + "/state";
    std::ofstream(state) << "dirty\n";
    if (!earlier) return;
    const auto a_day_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(24);
    std::filesystem::last_write_time(state, a_day_ago);
  }

  std::unique_ptr<Array> open(bool read_only) {
    ArrayOptions options;
    options.read_only = read_only;
    options.buffered_members = true;
    auto array = Array::open(environment, directories, options);
    EXPECT_TRUE(array.is_ok()) << array.status().message();
    return std::move(array).value();
  }
  Result<CheckReport> try_check(CheckOptions options) {
    options.buffered_members = true;
    return check_array(environment, directories, options);
  }
  CheckReport check(Repair repair = Repair::kNone, bool verify_data = false) {
    CheckOptions options;
    options.repair = repair;
    options.verify_data = verify_data;
    auto report = try_check(options);
    EXPECT_TRUE(report.is_ok()) << report.status().message();
    return report.is_ok() ? std::move(report).value() : CheckReport();
  }

  PosixEnvironment environment{2};
  std::vector<std::string> directories;  // in the order given to format
  std::vector<std::string> members;      // by member index
  Uuid id{};

 private:
  test::TemporaryDirectory directory_;
};

// "kind path chunk member; ..." of all errors: what tests compare.
inline std::string summary(const CheckReport& report) {
  std::string text;
  for (const CheckError& error : report.errors) {
    text += text.empty() ? "" : "; ";
    text += error.kind + " " + (error.path.empty() ? "-" : error.path) + " " + std::to_string(error.chunk) + " " +
            std::to_string(error.member) + (error.repaired ? " repaired" : "");
  }
  return text;
}

}  // namespace fpfs
