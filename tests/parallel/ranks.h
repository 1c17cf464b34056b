#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "parallel/process_group.h"

namespace fem::testing {

// Keeps a port of this machine to itself.
struct BoundSocket {
  BoundSocket() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    socklen_t length = sizeof address;
    if (bind(socket, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
        getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) != 0)
      throw std::runtime_error("no port is free");
    port = ntohs(address.sin_port);
  }
  ~BoundSocket() { close(socket); }
  BoundSocket(const BoundSocket&) = delete;
  BoundSocket& operator=(const BoundSocket&) = delete;

  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  int port = 0;
};

inline int unused_port() { return BoundSocket().port; }

using Member = std::function<void(const std::shared_ptr<ProcessGroup>&)>;

// Every rank a thread of this process, with connections of its own. An error of one is thrown when all have ended.
inline void run_ranks(int64_t size, const Member& member, std::chrono::seconds timeout = std::chrono::seconds(60)) {
  const int port = unused_port();
  std::vector<std::exception_ptr> errors(size);
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        member(ProcessGroup::connect({.rank = rank, .size = size, .address = "127.0.0.1", .port = port}, timeout));
      } catch (...) {
        errors[rank] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace fem::testing
