#include "kernels/libraries/shared_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace quire::kernels {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxFolderEntries = 1024;  // of a folder whose names are looked at

// Names of `folder` that begin so, sorted; empty where there is none or it cannot be read.
std::vector<std::string> Entries(const std::string& folder, const std::string& beginning) {
  std::vector<std::string> names;
  std::error_code error;
  size_t seen = 0;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (++seen > kMaxFolderEntries) break;
    std::string name = it->path().filename().string();
    if (name.starts_with(beginning)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool IsFile(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

void AddWheels(const std::string& prefix, const std::string& name,
               std::vector<std::string>& candidates) {
  for (const std::string& python : Entries(prefix + "/lib", "python3")) {
    for (const char* packages : {"site-packages", "dist-packages"}) {
      const std::string vendor = prefix + "/lib/" + python + "/" + packages + "/nvidia";
      for (const std::string& package : Entries(vendor, "")) {
        candidates.push_back(vendor + "/" + package + "/lib/" + name);
      }
    }
  }
}

// In one line, without the repetition of the path that the loader's message begins with.
std::string LoaderError(const std::string& path) {
  const char* said = dlerror();
  std::string text = said == nullptr ? "cannot be opened" : said;
  if (text.starts_with(path + ": ")) text.erase(0, path.size() + 2);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

std::vector<std::string> PythonPrefixes(std::string_view search_path) {
  std::vector<std::string> prefixes;
  const auto add = [&prefixes](const fs::path& program) {
    const std::string prefix = program.parent_path().parent_path().string();
    if (prefix.empty() || prefix == "/") return;
    if (std::find(prefixes.begin(), prefixes.end(), prefix) == prefixes.end()) {
      prefixes.push_back(prefix);
    }
  };
  for (size_t i = 0; i < kMostSearched && !search_path.empty(); ++i) {
    const size_t colon = std::min(search_path.find(':'), search_path.size());
    const fs::path program = fs::path(search_path.substr(0, colon)) / "python3";
    search_path.remove_prefix(std::min(colon + 1, search_path.size()));
    if (!program.is_absolute() || !IsFile(program.string())) continue;
    add(program);
    std::error_code error;
    const fs::path under = fs::canonical(program, error);
    if (!error) add(under);
  }
  return prefixes;
}

LibraryPlaces UsualPlaces(const std::string& program_folder, std::string_view search_path) {
  LibraryPlaces places;
  places.program_folder = program_folder;
  places.wheel_prefixes = PythonPrefixes(search_path);
  for (const char* usual : {"/usr/local", "/usr", "/opt/venv"}) {
    auto& prefixes = places.wheel_prefixes;
    if (std::find(prefixes.begin(), prefixes.end(), usual) == prefixes.end()) {
      prefixes.emplace_back(usual);
    }
  }
  places.toolkit_folders = {"/usr/local/cuda", "/usr/local/cuda-13", "/opt/cuda"};
  return places;
}

SharedLibrary::~SharedLibrary() { dlclose(handle_); }

void* SharedLibrary::Symbol(const char* name) const { return dlsym(handle_, name); }

std::unique_ptr<SharedLibrary> OpenLibraryFile(const std::string& path, std::string& error) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    error = LoaderError(path);
    return nullptr;
  }
  return std::unique_ptr<SharedLibrary>(new SharedLibrary(path, handle));
}

std::vector<std::string> LibraryCandidates(const std::string& name, const LibraryPlaces& places) {
  if (!places.named.empty()) {
    std::error_code error;
    const bool folder = fs::is_directory(places.named, error);
    return {folder ? places.named + "/" + name : places.named};
  }
  std::vector<std::string> all;
  if (!places.program_folder.empty()) {
    all.push_back(places.program_folder + "/" + name);
    all.push_back(places.program_folder + "/../lib/" + name);
  }
  for (const std::string& prefix : places.wheel_prefixes) AddWheels(prefix, name, all);
  for (const std::string& toolkit : places.toolkit_folders) {
    all.push_back(toolkit + "/lib64/" + name);
    all.push_back(toolkit + "/lib/" + name);
  }
  if (places.loader_cache) all.push_back(name);
  return all;
}

std::unique_ptr<SharedLibrary> FindLibrary(const std::string& name, const LibraryPlaces& places,
                                           const LibraryCheck& check, std::string& error) {
  std::string tried;
  for (const std::string& path : LibraryCandidates(name, places)) {
    const bool bare = path.find('/') == std::string::npos;
    // Places of the table are mostly empty: the message names only those that exist.
    if (!bare && places.named.empty() && !IsFile(path)) continue;
    std::string why;
    std::unique_ptr<SharedLibrary> library = OpenLibraryFile(path, why);
    if (library != nullptr) {
      why = check(*library);
      if (why.empty()) return library;
    }
    if (!tried.empty()) tried += "; ";
    tried += (bare ? "the loader's cache" : path) + ": " + why;
  }
  if (tried.empty()) tried = "it is in none of the places that are looked at";
  error = name + " cannot be used (" + tried + ")";
  return nullptr;
}

}  // namespace quire::kernels
