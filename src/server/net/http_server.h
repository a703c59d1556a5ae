// HttpServer: the sockets. Listens, reads requests, hands them to the FrontDoor, writes answers; keeps the limits in
// bytes, connections and seconds of ServerOptions. A pool of I/O threads; each connection on a strand of its own.
#pragma once

#include <memory>

#include "server/observe/request_log.h"
#include "server/request/options.h"
#include "server/routes/front_door.h"

namespace ibid {

class HttpServer {
 public:
  HttpServer(const ServerOptions& options, FrontDoor& front, RequestLog& log);
  ~HttpServer();

  // Binds and listens; kExhausted: the port is in use. start() begins to answer.
  Status listen();
  void start();
  int port() const;

  // Takes no more connections, closes those that wait for a request, lets the others end.
  void drain();
  // Ends what still runs, with its answer where there is one to end.
  void cancel_all();
  // Closes everything and joins the threads.
  void stop();
  int64_t n_connections() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace ibid
