// Options of TCP sockets that the network library does not name, and names of threads.
#pragma once

namespace base::os {

// Small writes leave at once; a peer that vanished without a word is noticed after about
// `dead_seconds`; the kernel holds little that was not sent yet. Best effort: an option that the
// system lacks is no error.
void TuneConnection(int socket, double dead_seconds);

// The name of the calling thread in debuggers and `top` (15 characters).
void NameThread(const char* name);

}  // namespace base::os
