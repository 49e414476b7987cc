// Options of TCP sockets that the network library does not name, and names of threads.
#pragma once

#include <cstddef>

namespace base::os {

// Small writes leave at once; a peer that vanished without a word is noticed after about
// `dead_seconds`; the kernel holds little that was not sent yet. Best effort: an option that the
// system lacks is no error.
void TuneConnection(int socket, double dead_seconds);

// Lets this process hold `count` connections at a time, as far as the system allows: the usual
// limit of open files is 1,024.
void AllowConnections(size_t count);

// The name of the calling thread in debuggers and `top` (15 characters).
void NameThread(const char* name);

}  // namespace base::os
