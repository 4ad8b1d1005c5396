// Libraries that only some machines have: found by a table of places, opened when they are first
// needed.
//
// Any thread. A library stays open until its SharedLibrary is destroyed. 1. A place that the user
// named is the only one: a fault there is reported and not skipped. 2. Otherwise the first place
// counts whose library opens and is accepted; when none does, the error says why each was rejected.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace quire::kernels {

// Where to look; filled in by main.
struct LibraryPlaces {
  std::string named;           // by a flag: a file, or a folder that holds it; empty: not named
  std::string program_folder;  // of the running program: beside it, and in ../lib
  std::vector<std::string> wheel_prefixes;   // of Python: PREFIX/lib/python3*/site-packages
  std::vector<std::string> toolkit_folders;  // of CUDA: FOLDER/lib64, FOLDER/lib
  bool loader_cache = true;                  // where the system's loader looks, tried last
};

// Prefixes of the Python environments whose `python3` a shell with this PATH finds, in its order. A
// virtual environment has two: its own, and the one under it. At most kMostSearched folders of the
// path are looked at.
inline constexpr size_t kMostSearched = 64;
std::vector<std::string> PythonPrefixes(std::string_view search_path);

// The prefixes of PythonPrefixes, then the usual ones of a Linux machine, and the toolkits, with
// the program's own folder.
LibraryPlaces UsualPlaces(const std::string& program_folder, std::string_view search_path);

class SharedLibrary {
 public:
  ~SharedLibrary();
  SharedLibrary(const SharedLibrary&) = delete;
  SharedLibrary& operator=(const SharedLibrary&) = delete;

  const std::string& path() const { return path_; }
  // Null when it has no such symbol.
  void* Symbol(const char* name) const;

 private:
  friend std::unique_ptr<SharedLibrary> OpenLibraryFile(const std::string& path,
                                                        std::string& error);
  SharedLibrary(std::string path, void* handle) : path_(std::move(path)), handle_(handle) {}
  std::string path_;
  void* handle_;
};

// Looks up functions of a library by name.
class Symbols {
 public:
  explicit Symbols(const SharedLibrary& file) : file_(file) {}

  // False, and a null function, where the library has none of that name.
  template <class Function>
  bool Take(const char* name, Function& function) {
    function = reinterpret_cast<Function>(file_.Symbol(name));
    return function != nullptr;
  }
  // A required function.
  template <class Function>
  void Need(const char* name, Function& function) {
    if (!Take(name, function) && missing_ == nullptr) missing_ = name;
  }
  // "it has no NAME": the first required function that is missing; empty: none is.
  std::string Missing() const {
    return missing_ == nullptr ? "" : std::string("it has no ") + missing_;
  }

 private:
  const SharedLibrary& file_;
  const char* missing_ = nullptr;
};

// One file, or a bare name for the loader's own search. Null and one line when it does not open.
std::unique_ptr<SharedLibrary> OpenLibraryFile(const std::string& path, std::string& error);

// The files that `name` may mean, in the order in which they are tried; the last is the bare name,
// for the loader's cache. Wheels keep theirs in nvidia/*/lib.
std::vector<std::string> LibraryCandidates(const std::string& name, const LibraryPlaces& places);

// Why an opened library is not suitable; empty: it is.
using LibraryCheck = std::function<std::string(const SharedLibrary&)>;

// Null and one line: what was tried, and what was wrong with it.
std::unique_ptr<SharedLibrary> FindLibrary(const std::string& name, const LibraryPlaces& places,
                                           const LibraryCheck& check, std::string& error);

}  // namespace quire::kernels
