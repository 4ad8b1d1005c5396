// Writes the stacks of all threads of this process to a descriptor, for a process that hangs.
//
// Each thread gets a real-time signal whose handler walks its own stack. Nothing here takes a lock
// or allocates while a thread is stopped in its handler; a thread that does not answer within
// kStackWait is named and left out. Frames are module and offset, for addr2line.
#pragma once

#include <memory>

namespace quire {

inline constexpr int kStackWaitMillis = 200;  // per thread
inline constexpr int kMaxStackFrames = 64;

class ThreadStacks {
 public:
  // Installs the handler, once in this process. One object lives as long as the process does: a
  // late thread may still answer.
  ThreadStacks();
  ~ThreadStacks();

  // Any one thread at a time. The caller's own stack is included.
  void Write(int descriptor);

 private:
  struct Exchange;
  std::unique_ptr<Exchange> exchange_;
};

}  // namespace quire
