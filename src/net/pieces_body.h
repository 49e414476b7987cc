// How the server and the client take bodies in. Beast is slow to compile: only sources
// include this.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/optional.hpp>
#include <cstdint>
#include <functional>
#include <string_view>

namespace net {

// A body of a Beast message that goes to a function piece by piece: what a Content-Length claims is
// not allocated on its word. The function says false to break off.
struct PiecesBody {
  using value_type = std::function<bool(std::string_view)>;
  struct reader {
    value_type& take;
    template <bool kRequest, class Fields>
    reader(boost::beast::http::header<kRequest, Fields>&, value_type& b) : take(b) {}
    void init(const boost::optional<uint64_t>&, boost::system::error_code& ec) { ec = {}; }
    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& ec) {
      ec = {};
      size_t size = 0;
      for (auto it = boost::asio::buffer_sequence_begin(buffers);
           it != boost::asio::buffer_sequence_end(buffers); ++it) {
        const boost::asio::const_buffer part(*it);
        if (!take({static_cast<const char*>(part.data()), part.size()}))
          ec = boost::asio::error::operation_aborted;
        size += part.size();
      }
      return size;
    }
    void finish(boost::system::error_code& ec) { ec = {}; }
  };
};

}  // namespace net
