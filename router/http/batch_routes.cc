#include "router/http/batch_routes.h"

#include <atomic>
#include <charconv>
#include <functional>
#include <optional>
#include <utility>

#include "common/ascii.h"
#include "common/json/json.h"
#include "router/batches/multipart.h"
#include "router/batches/service.h"
#include "router/http/errors.h"
#include "router/http/file_content_call.h"
#include "router/http/object_path.h"
#include "router/keys/tenant_access.h"

namespace quire {
namespace {

using CallPtr = std::unique_ptr<Call>;
using batches::BatchObject;
using batches::FileObject;
using batches::Page;

constexpr std::string_view kFilesPath = "/v1/files/";
constexpr std::string_view kBatchesPath = "/v1/batches/";

CallPtr Answer(Exchange& exchange, const ApiError& error) {
  exchange.Reply(ErrorResponse(error));
  return nullptr;
}

CallPtr NotServedHere(Exchange& exchange) {
  return Answer(
      exchange,
      {ApiCode::kNotFound,
       "files and batches are not served here: the router needs --batches-dir DIR", "", 0});
}

HttpResponse JsonResponse(std::string body) {
  HttpResponse response;
  response.body = std::move(body);
  return response;
}

// Work on the disk, and the answer that it makes. The work is done also where the client leaves
// once it has begun.
class DiskCall final : public Call {
 public:
  struct Work {
    std::function<HttpResponse(batches::Service& batches)> run;
    size_t bytes = 0;         // of input
    bool scans = false;       // the whole folder of the tenant
    size_t descriptions = 0;  // that it may read then
    bool wakes = false;       // there may be a new batch, or one to end
  };

  static CallPtr Begin(HttpServices& services, const HttpRequest& request, Exchange& exchange,
                       Work work) {
    if (services.batches == nullptr) return NotServedHere(exchange);
    auto call = std::make_unique<DiskCall>();
    const auto response = std::make_shared<HttpResponse>();
    batches::Service& batches = *services.batches;
    const std::string tenant = NameOf(request.tenant);
    const size_t scan = work.scans ? batches.store.CostOf(tenant, work.descriptions) : 0;
    const bool taken = batches.disk.RunFor(
        {tenant, work.bytes + scan, call->left_},
        [response, run = work.run, &batches] { *response = run(batches); },
        [left = call->left_, response, wakes = work.wakes, &batches, &exchange] {
          if (wakes) batches.runner.Wake();
          if (!*left) exchange.Reply(std::move(*response));
        });
    if (taken) return call;
    return Answer(exchange, TooManyLargeRequests());
  }
  ~DiskCall() override { *left_ = true; }

 private:
  const std::shared_ptr<std::atomic<bool>> left_ = std::make_shared<std::atomic<bool>>(false);
};

template <class T>
HttpResponse ResponseOf(const Result<T>& result) {
  return result.ok() ? JsonResponse(Json(result.value())) : ErrorResponse(result.error());
}

// What a list's query asks for.
struct ListQuery {
  Page page;
  std::optional<ApiError> problem;
};

ListQuery ReadQuery(std::string_view query, size_t most, size_t usual, std::string_view prefix) {
  ListQuery read;
  read.page.limit = usual;
  while (!query.empty() && !read.problem) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const std::string_view key = pair.substr(0, pair.find('='));
    const std::string value =
        PercentDecode(pair.substr(std::min(pair.size(), key.size() + 1))).substr(0, 128);
    if (key == "limit") {
      size_t limit = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), limit);
      if (error != std::errc() || end != value.data() + value.size() || limit < 1 || limit > most) {
        read.problem = InvalidField("limit", "must be 1 to " + std::to_string(most));
      }
      read.page.limit = limit;
    } else if (key == "after") {
      read.page.after = value;
      if (!batches::IsId(value, prefix)) {
        read.problem = InvalidField("after", "must be an id from the list");
      }
    } else if (key == "order") {
      read.page.oldest_first = value == "asc";
      if (value != "asc" && value != "desc") {
        read.problem = InvalidField("order", "must be asc or desc");
      }
    } else if (key == "purpose") {
      read.page.purpose = value;
    }
  }
  return read;
}

template <class T>
HttpResponse ListResponse(const Result<batches::Listed<T>>& result) {
  if (!result.ok()) return ErrorResponse(result.error());
  const batches::Listed<T>& listed = result.value();
  std::string out = "{\"object\":\"list\",\"data\":[";
  for (const T& object : listed.objects) {
    if (!out.ends_with('[')) out += ',';
    out += Json(object);
  }
  out += "],\"has_more\":" + std::string(listed.has_more ? "true" : "false");
  const bool none = listed.objects.empty();
  out += ",\"first_id\":" + (none ? "null" : '"' + listed.objects.front().id + '"');
  out += ",\"last_id\":" + (none ? "null" : '"' + listed.objects.back().id + '"');
  return JsonResponse(out + "}");
}

CallPtr NotServedBelow(const HttpRequest& request, Exchange& exchange, const std::string& served) {
  return Answer(exchange, {ApiCode::kNotFound,
                           "nothing is served at " + request.method + " " +
                               request.path.substr(0, 128) + "; " + served,
                           "", 0});
}
constexpr char kServedOfFiles[] =
    "GET and DELETE are served at /v1/files/ID, and GET at /v1/files/ID/content";
constexpr char kServedOfBatches[] =
    "GET is served at /v1/batches/ID, and POST at /v1/batches/ID/cancel";

struct Upload {
  std::string filename;
  std::string_view data;
};

Result<Upload> ReadUpload(const HttpRequest& request) {
  const auto boundary = batches::BoundaryOf(request.content_type);
  if (!boundary.ok()) return ErrorFromStatus(boundary.status(), "");
  const auto form = batches::ReadForm(request.body, *boundary);
  if (!form.ok()) {
    return ApiError{ApiCode::kInvalidArgument, StatusMessage(form.status()), "", 0};
  }
  Upload upload;
  bool has_file = false, has_purpose = false;
  for (const batches::FormPart& part : *form) {
    if (part.name == "purpose") {
      if (std::exchange(has_purpose, true)) return InvalidField("purpose", "came twice");
      if (part.data != batches::kInputPurpose) {
        return InvalidField("purpose", "\"" + std::string(part.data.substr(0, 64)) +
                                           "\" is not served; only \"batch\" is");
      }
    } else if (part.name == "file") {
      if (std::exchange(has_file, true)) return InvalidField("file", "came twice");
      if (!part.is_file) return InvalidField("file", "must be a file, with a filename");
      if (part.filename.size() > batches::kMaxFileNameBytes) {
        return InvalidField("file", "its filename has more than " +
                                        std::to_string(batches::kMaxFileNameBytes) + " bytes");
      }
      upload = {part.filename, part.data};
    } else if (part.name.starts_with("expires_after")) {
      return InvalidField("expires_after",
                          "files here do not expire; leave it out, and delete them");
    } else {
      return InvalidField(part.name.substr(0, 64),
                          "is not a field of an upload; its fields are purpose and file");
    }
  }
  if (!has_purpose) return InvalidField("purpose", "is missing; send \"batch\"");
  if (!has_file) return InvalidField("file", "is missing");
  return upload;
}

}  // namespace

CallPtr UploadFile(HttpServices& services, HttpRequest request, Exchange& exchange) {
  const auto held = std::make_shared<HttpRequest>(std::move(request));
  const auto run = [held](batches::Service& batches) {
    const Result<Upload> upload = ReadUpload(*held);
    if (!upload.ok()) {
      batches.metrics.bad_uploads.Add();
      return ErrorResponse(upload.error());
    }
    return ResponseOf(
        batches.store.KeepFile(NameOf(held->tenant), upload.value().filename, upload.value().data));
  };
  return DiskCall::Begin(services, *held, exchange,
                         {.run = run, .bytes = held->body.size(), .scans = true});
}

CallPtr ListFiles(HttpServices& services, HttpRequest request, Exchange& exchange) {
  const ListQuery query = ReadQuery(request.query, 10'000, 10'000, batches::kFilePrefix);
  if (query.problem) return Answer(exchange, *query.problem);
  const Page& page = query.page;
  const auto run = [tenant = NameOf(request.tenant), page](batches::Service& batches) {
    return ListResponse(batches.store.Files(tenant, page));
  };
  // One purpose may be that of none.
  const size_t most = page.purpose.empty() ? page.limit + 1 : SIZE_MAX;
  return DiskCall::Begin(services, request, exchange,
                         {.run = run, .scans = true, .descriptions = most});
}

CallPtr ReadFile(HttpServices& services, HttpRequest request, Exchange& exchange) {
  const ObjectPath path(request.path, kFilesPath);
  if (path.rest == "/content") {
    if (services.batches == nullptr) return NotServedHere(exchange);
    return FileContentCall::Begin(services, std::move(request), path.id, exchange);
  }
  if (!path.rest.empty()) return NotServedBelow(request, exchange, kServedOfFiles);
  const auto run = [tenant = NameOf(request.tenant), id = path.id](batches::Service& batches) {
    return ResponseOf(batches.store.File(tenant, id));
  };
  return DiskCall::Begin(services, request, exchange, {.run = run});
}

CallPtr DeleteFile(HttpServices& services, HttpRequest request, Exchange& exchange) {
  const ObjectPath path(request.path, kFilesPath);
  if (!path.rest.empty()) return NotServedBelow(request, exchange, kServedOfFiles);
  const auto run = [tenant = NameOf(request.tenant), id = path.id](batches::Service& batches) {
    if (const auto problem = batches.store.DeleteFile(tenant, id)) return ErrorResponse(*problem);
    return JsonResponse("{\"id\":\"" + id + "\",\"object\":\"file\",\"deleted\":true}");
  };
  return DiskCall::Begin(services, request, exchange, {.run = run, .scans = true});
}

CallPtr CreateBatch(HttpServices& services, HttpRequest request, Exchange& exchange) {
  const auto held = std::make_shared<HttpRequest>(std::move(request));
  const auto run = [held](batches::Service& batches) {
    Result<BatchObject> batch = batches::ReadCreate(held->body);
    if (!batch.ok()) return ErrorResponse(batch.error());
    batch.value().creator = batches::Creator::Of(held->tenant.get());
    return ResponseOf(batches.store.Create(std::move(batch.value())));
  };
  return DiskCall::Begin(services, *held, exchange,
                         {.run = run, .bytes = held->body.size(), .scans = true, .wakes = true});
}

CallPtr ListBatches(HttpServices& services, HttpRequest request, Exchange& exchange) {
  const ListQuery query = ReadQuery(request.query, 100, 20, batches::kBatchPrefix);
  if (query.problem) return Answer(exchange, *query.problem);
  const Page& page = query.page;
  const auto run = [tenant = NameOf(request.tenant), page](batches::Service& batches) {
    return ListResponse(batches.store.Batches(tenant, page));
  };
  return DiskCall::Begin(services, request, exchange,
                         {.run = run, .scans = true, .descriptions = page.limit + 1});
}

CallPtr ReadBatch(HttpServices& services, HttpRequest request, Exchange& exchange) {
  const ObjectPath path(request.path, kBatchesPath);
  if (!path.rest.empty()) return NotServedBelow(request, exchange, kServedOfBatches);
  const auto run = [tenant = NameOf(request.tenant), id = path.id](batches::Service& batches) {
    return ResponseOf(batches.store.Batch(tenant, id));
  };
  return DiskCall::Begin(services, request, exchange, {.run = run});
}

CallPtr CancelBatch(HttpServices& services, HttpRequest request, Exchange& exchange) {
  const ObjectPath path(request.path, kBatchesPath);
  if (path.rest != "/cancel") return NotServedBelow(request, exchange, kServedOfBatches);
  const auto run = [tenant = NameOf(request.tenant), id = path.id](batches::Service& batches) {
    return ResponseOf(batches.store.Cancel(tenant, id));
  };
  return DiskCall::Begin(services, request, exchange, {.run = run, .wakes = true});
}

}  // namespace quire
