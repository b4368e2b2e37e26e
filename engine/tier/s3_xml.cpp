#include "engine/tier/s3_xml.h"

#include <ctime>
#include <sstream>

#include <fmt/format.h>
#include <pugixml.hpp>

#include "engine/tier/object_key.h"
#include "engine/tier/s3_checksum.h"

namespace fpfs {
namespace {

// The root of a document of this name.
Result<pugi::xml_node> parse_root(pugi::xml_document& document, const std::string& text, const char* name) {
  const pugi::xml_parse_result parsed = document.load_buffer(text.data(), text.size());
  const pugi::xml_node root = document.document_element();
  if (!parsed)
    return Status::error(root && std::string_view(root.name()) != name && std::string_view(root.name()) != "Error"
                             ? StatusCode::kWrongStore
                             : StatusCode::kCorruption,
                         fmt::format("the answer is no whole XML document ({} at byte {} of {})", parsed.description(),
                                     parsed.offset, text.size()));
  if (std::string_view(root.name()) != name)
    return Status::error(StatusCode::kWrongStore,
                         fmt::format("what answers is not S3: it says <{}>, not <{}>", root.name(), name));
  return root;
}

std::string decoded(const std::string& text, bool is_encoded) {
  if (!is_encoded) return text;
  std::string spaced = text;  // as in forms
  for (char& c : spaced)
    if (c == '+') c = ' ';
  const Result<std::string> plain = percent_decode(spaced);
  return plain.is_ok() ? *plain : text;
}

std::string value_of(const pugi::xml_node& node, const char* name) {
  return node.child(name).text().as_string();
}

int64_t seconds_of(const std::string& iso8601) {  // 2026-11-24T23:36:13.000Z
  struct tm parts {};
  const char* end = strptime(iso8601.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  return end == nullptr ? 0 : static_cast<int64_t>(timegm(&parts));
}

// A document of one of these names, or an error in place of it.
Result<S3Written> parse_written(const std::string& text, std::initializer_list<const char*> names, S3ErrorText& error) {
  error = parse_s3_error(text);
  if (!error.code.empty()) return Status::error(StatusCode::kRefused, error.code + ": " + error.message);
  pugi::xml_document document;
  Result<pugi::xml_node> root = Status::error(StatusCode::kWrongStore, "no name");
  for (const char* name : names)
    if (!root.is_ok()) root = parse_root(document, text, name);
  if (!root.is_ok()) return root.status();
  return S3Written{without_quotes(value_of(*root, "ETag")), value_of(*root, kS3ChecksumElement)};
}

std::string written(const pugi::xml_document& document) {
  std::ostringstream stream;
  document.save(stream, "", pugi::format_raw);
  return stream.str();
}

}  // namespace

std::string without_quotes(const std::string& tag) {
  if (tag.size() >= 2 && tag.front() == '"' && tag.back() == '"') return tag.substr(1, tag.size() - 2);
  return tag;
}

S3ErrorText parse_s3_error(const std::string& text) {
  pugi::xml_document document;
  const pugi::xml_parse_result parsed = document.load_buffer(text.data(), text.size());
  const pugi::xml_node root = document.child("Error");
  if (!parsed || !root) return {};
  return {value_of(root, "Code"), value_of(root, "Message"), value_of(root, "Region")};
}

Result<S3ListPage> parse_s3_list(const std::string& text) {
  pugi::xml_document document;
  FPFS_ASSIGN_OR_RETURN(const pugi::xml_node root, parse_root(document, text, "ListBucketResult"));
  const bool encoded = value_of(root, "EncodingType") == "url";
  S3ListPage page;
  for (const pugi::xml_node& node : root.children("Contents")) {
    ObjectInfo info;
    info.key = decoded(value_of(node, "Key"), encoded);
    info.size = node.child("Size").text().as_ullong();
    info.tag = without_quotes(value_of(node, "ETag"));
    info.modified_s = seconds_of(value_of(node, "LastModified"));
    page.objects.push_back(std::move(info));
  }
  for (const pugi::xml_node& node : root.children("CommonPrefixes"))
    page.directories.push_back(decoded(value_of(node, "Prefix"), encoded));
  if (value_of(root, "IsTruncated") == "true") {
    page.next_token = value_of(root, "NextContinuationToken");
    if (page.next_token.empty())
      return Status::error(StatusCode::kCorruption, "the list goes on, and the answer does not say where");
  }
  return page;
}

Result<S3UploadPage> parse_s3_uploads(const std::string& text) {
  pugi::xml_document document;
  FPFS_ASSIGN_OR_RETURN(const pugi::xml_node root, parse_root(document, text, "ListMultipartUploadsResult"));
  const bool encoded = value_of(root, "EncodingType") == "url";
  S3UploadPage page;
  for (const pugi::xml_node& node : root.children("Upload"))
    page.uploads.push_back({decoded(value_of(node, "Key"), encoded),
                            (value_of(node, "ChecksumAlgorithm") == kS3ChecksumAlgorithm ? kS3ChecksummedUpload : "") +
                                value_of(node, "UploadId")});
  if (value_of(root, "IsTruncated") == "true") {
    page.next_key = decoded(value_of(root, "NextKeyMarker"), encoded);
    page.next_id = value_of(root, "NextUploadIdMarker");
    if (page.next_key.empty())
      return Status::error(StatusCode::kCorruption, "the list goes on, and the answer does not say where");
  }
  return page;
}

Result<S3PartPage> parse_s3_parts(const std::string& text) {
  pugi::xml_document document;
  FPFS_ASSIGN_OR_RETURN(const pugi::xml_node root, parse_root(document, text, "ListPartsResult"));
  S3PartPage page;
  for (const pugi::xml_node& node : root.children("Part"))
    page.parts.push_back({node.child("PartNumber").text().as_uint(), node.child("Size").text().as_ullong(),
                          without_quotes(value_of(node, "ETag")), value_of(node, kS3ChecksumElement)});
  if (value_of(root, "IsTruncated") == "true") page.next_part = value_of(root, "NextPartNumberMarker");
  return page;
}

Result<std::string> parse_s3_upload_id(const std::string& text) {
  pugi::xml_document document;
  FPFS_ASSIGN_OR_RETURN(const pugi::xml_node root, parse_root(document, text, "InitiateMultipartUploadResult"));
  std::string id = value_of(root, "UploadId");
  if (id.empty()) return Status::error(StatusCode::kCorruption, "the answer names no upload");
  return id;
}

Result<S3Written> parse_s3_completed(const std::string& text, S3ErrorText& error) {
  return parse_written(text, {"CompleteMultipartUploadResult"}, error);
}

Result<S3Written> parse_s3_copied(const std::string& text, S3ErrorText& error) {
  FPFS_ASSIGN_OR_RETURN(S3Written written, parse_written(text, {"CopyObjectResult", "CopyPartResult"}, error));
  if (written.tag.empty()) return Status::error(StatusCode::kCorruption, "the answer has no ETag");
  return written;
}

bool is_s3_error_for_now(const S3ErrorText& error) {
  return error.code == "InternalError" || error.code == "SlowDown" || error.code == "ServiceUnavailable";
}

Result<std::vector<S3RemoveError>> parse_s3_removed(const std::string& text) {
  pugi::xml_document document;
  FPFS_ASSIGN_OR_RETURN(const pugi::xml_node root, parse_root(document, text, "DeleteResult"));
  std::vector<S3RemoveError> errors;
  for (const pugi::xml_node& node : root.children("Error"))
    errors.push_back({value_of(node, "Key"), {value_of(node, "Code"), value_of(node, "Message"), ""}});
  return errors;
}

std::string write_s3_complete(const std::vector<StoredPart>& parts) {
  pugi::xml_document document;
  pugi::xml_node root = document.append_child("CompleteMultipartUpload");
  for (const StoredPart& part : parts) {
    pugi::xml_node node = root.append_child("Part");
    node.append_child("PartNumber").text().set(part.number);
    node.append_child("ETag").text().set(("\"" + part.tag + "\"").c_str());
    if (!part.checksum.empty()) node.append_child(kS3ChecksumElement).text().set(part.checksum.c_str());
  }
  return written(document);
}

std::string write_s3_remove(const std::vector<std::string>& keys) {
  pugi::xml_document document;
  pugi::xml_node root = document.append_child("Delete");
  for (const std::string& key : keys) root.append_child("Object").append_child("Key").text().set(key.c_str());
  root.append_child("Quiet").text().set("true");
  return written(document);
}

}  // namespace fpfs
