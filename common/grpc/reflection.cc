#include "common/grpc/reflection.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "grpc/health/v1/health.pb.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "grpc/reflection/v1alpha/reflection.pb.h"

namespace quire {
namespace {

using Request = grpc::reflection::v1::ServerReflectionRequest;
using Response = grpc::reflection::v1::ServerReflectionResponse;
using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;

void AddFile(const FileDescriptor& file, std::set<const FileDescriptor*>& seen, Response& out) {
  if (!seen.insert(&file).second) return;
  google::protobuf::FileDescriptorProto described;
  file.CopyTo(&described);
  out.mutable_file_descriptor_response()->add_file_descriptor_proto(described.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) AddFile(*file.dependency(i), seen, out);
}

void AnswerNotFound(const char* what, Response& out) {
  out.mutable_error_response()->set_error_code(static_cast<int>(absl::StatusCode::kNotFound));
  out.mutable_error_response()->set_error_message(std::string(what) + " not found.");
}

void AnswerFile(const FileDescriptor* file, const char* what, Response& out) {
  if (file == nullptr) return AnswerNotFound(what, out);
  std::set<const FileDescriptor*> seen;
  AddFile(*file, seen, out);
}

void AnswerExtension(const grpc::reflection::v1::ExtensionRequest& request, Response& out) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  const auto* type = pool.FindMessageTypeByName(request.containing_type());
  const auto* extension =
      type == nullptr ? nullptr : pool.FindExtensionByNumber(type, request.extension_number());
  AnswerFile(extension == nullptr ? nullptr : extension->file(), "Extension", out);
}

void AnswerExtensionNumbers(const std::string& name, Response& out) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  const auto* type = pool.FindMessageTypeByName(name);
  if (type == nullptr) return AnswerNotFound("Type", out);
  std::vector<const google::protobuf::FieldDescriptor*> extensions;
  pool.FindAllExtensions(type, &extensions);
  auto& numbers = *out.mutable_all_extension_numbers_response();
  numbers.set_base_type_name(name);
  for (const auto* extension : extensions) numbers.add_extension_number(extension->number());
}

Response AnswerOf(const Request& request, const GrpcMethods& methods) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  Response out;
  out.set_valid_host(request.host());
  *out.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case Request::kFileByFilename:
      AnswerFile(pool.FindFileByName(request.file_by_filename()), "File", out);
      break;
    case Request::kFileContainingSymbol:
      AnswerFile(pool.FindFileContainingSymbol(request.file_containing_symbol()), "Symbol", out);
      break;
    case Request::kFileContainingExtension:
      AnswerExtension(request.file_containing_extension(), out);
      break;
    case Request::kAllExtensionNumbersOfType:
      AnswerExtensionNumbers(request.all_extension_numbers_of_type(), out);
      break;
    case Request::kListServices:
      for (const std::string& service : methods.services()) {
        out.mutable_list_services_response()->add_service()->set_name(service);
      }
      break;
    case Request::MESSAGE_REQUEST_NOT_SET:
      out.mutable_error_response()->set_error_code(
          static_cast<int>(absl::StatusCode::kUnimplemented));
      break;
  }
  return out;
}

// One request is read at a time, and none while an answer waits to be read.
class ReflectionCall final : public GrpcCallHandler {
 public:
  ReflectionCall(const GrpcMethods& methods, std::shared_ptr<GrpcCall> call)
      : methods_(methods), call_(std::move(call)) {}

  Step Read(std::string_view message) override {
    Request request;
    if (!request.ParseFromArray(message.data(), static_cast<int>(message.size()))) return {};
    return [this, request = std::move(request)] {
      call_->SetReading(false);
      call_->Send(AnswerOf(request, methods_));
    };
  }
  void OnDrained() override { call_->SetReading(true); }
  void OnHalfClose() override { call_->Finish(absl::OkStatus()); }

 private:
  const GrpcMethods& methods_;
  const std::shared_ptr<GrpcCall> call_;
};

}  // namespace

void AddReflection(GrpcMethods& methods) {
  // Naming the messages links their descriptors into the program, where the look-up finds them.
  QUIRE_CHECK(grpc::health::v1::HealthCheckRequest::descriptor() != nullptr &&
              grpc::reflection::v1alpha::ServerReflectionRequest::descriptor() != nullptr);
  const GrpcMethod method = {.many_messages = true,
                             .begin =
                                 [&methods](std::shared_ptr<GrpcCall> call) {
                                   return std::make_shared<ReflectionCall>(methods,
                                                                           std::move(call));
                                 },
                             .keeps_metadata = false,
                             .max_message_bytes = kMaxReflectionQuestionBytes};
  for (const std::string version : {"v1", "v1alpha"}) {
    methods.Add("grpc.reflection." + version + ".ServerReflection", "ServerReflectionInfo", method);
  }
}

}  // namespace quire
