#include "base/os/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>

namespace base::os {
namespace {

void Set(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

}  // namespace

void TuneConnection(int socket, double dead_seconds) {
  Set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  const int seconds = static_cast<int>(std::clamp(dead_seconds, 1.0, 86400.0));
  Set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
#ifdef __linux__
  Set(socket, IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, seconds / 2));
  Set(socket, IPPROTO_TCP, TCP_KEEPINTVL, std::max(1, seconds / 8));
  Set(socket, IPPROTO_TCP, TCP_KEEPCNT, 4);
  Set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, seconds * 1000);
  // Enough for full speed; what a slow reader leaves lying stays in our queue, which is bounded.
  Set(socket, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 128 << 10);
#endif
}

void AllowConnections(size_t count) {
  constexpr size_t kOthers = 256;  // files of the model, libraries, logs
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = std::min<rlim_t>(count + kOthers, limit.rlim_max);
  if (wanted <= limit.rlim_cur) return;
  limit.rlim_cur = wanted;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void NameThread(const char* name) {
#ifdef __linux__
  ::pthread_setname_np(::pthread_self(), name);
#else
  (void)name;
#endif
}

}  // namespace base::os
