"""Replicas of `ibid serve` as a deployment of Ray Serve (tried with Ray 2.60, `pip install 'ray[serve]'`).

    python -m ibid.ray MODEL --replicas 2 --port 8000 -- --ctx 8192 --threads 4

Each replica is an actor that owns a server and passes requests to it, streams included; what follows `--` are flags of
`ibid serve`. Where a server ends, its replica is unhealthy and Ray starts another. An answer that it was in breaks off;
ibid.resume.stream() goes on with it through the same address.
"""

# Without `from __future__ import annotations`: FastAPI reads the annotations of pass_on(), whose names are imported with it.

import argparse
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

# Of a hop: they are about one connection, and the next one has its own.
_OF_ONE_HOP = {"connection", "content-length", "host", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade"}


def application(model: str = "default", replicas: int = 1, flags: Sequence[str] = (), cpus: float = 1) -> Any:
    """What `serve.run` takes, for programs that start Ray Serve themselves.

    Args:
        model: as of `ibid serve`.
        replicas: servers.
        flags: of each `ibid serve`.
        cpus: that Ray sets aside for each; `--threads` among the flags says what it uses.
    """
    import aiohttp
    from fastapi import FastAPI, Request
    from ray import serve
    from starlette.responses import JSONResponse, Response, StreamingResponse

    from ibid._child import Child

    routes = FastAPI(openapi_url=None)  # all paths are the server's

    @serve.deployment(name="ibid", num_replicas=replicas, ray_actor_options={"num_cpus": cpus}, health_check_period_s=1,
                      health_check_timeout_s=30, max_ongoing_requests=1000)
    @serve.ingress(routes)
    class Ibid:
        def __init__(self) -> None:
            self.child = Child(model, list(flags))
            self.session: aiohttp.ClientSession | None = None

        def check_health(self) -> None:
            # Not /health: a long step is no fault, and a replica that is replaced loses its answers.
            if not self.child.is_alive():
                raise RuntimeError(f"ibid serve ended: {self.child.last_line()}")

        @routes.api_route("/{path:path}", methods=["GET", "POST", "DELETE"])  # type: ignore[untyped-decorator,unused-ignore]
        async def pass_on(self, path: str, request: Request) -> Response:
            if self.session is None:
                self.session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None), auto_decompress=False)
            headers = {name: value for name, value in request.headers.items() if name not in _OF_ONE_HOP}
            try:
                answer = await self.session.request(request.method, f"http://127.0.0.1:{self.child.port}/{path}", headers=headers,
                                                    params=request.query_params, data=await request.body())
            except aiohttp.ClientError:
                error = {"message": "The replica's server has ended; another one answers.", "type": "service_unavailable"}
                return JSONResponse({"error": error}, 503, {"Retry-After": "1"})

            async def parts() -> AsyncIterator[bytes]:
                try:
                    async for part in answer.content.iter_any():
                        yield part
                finally:
                    answer.close()  # a client that has gone ends the request

            back = {name: value for name, value in answer.headers.items() if name.lower() not in _OF_ONE_HOP}
            return StreamingResponse(parts(), status_code=answer.status, headers=back)

    return Ibid.bind()  # type: ignore[attr-defined,unused-ignore]  # the decorator adds it


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m ibid.ray", usage="%(prog)s [MODEL] [options] [-- flags of ibid serve]",
                                     description="Replicas of ibid as a deployment of Ray Serve.")
    parser.add_argument("model", nargs="?", default="default", help="as of ibid serve (default: its default model)")
    parser.add_argument("--replicas", type=int, default=1, help="servers (default: 1)")
    parser.add_argument("--host", default="127.0.0.1", help="address of Ray Serve's proxy (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="its port (default: 8000)")
    parser.add_argument("--cpus", type=float, default=1, help="CPUs that Ray sets aside for each replica (default: 1)")
    words = list(sys.argv[1:] if argv is None else argv)
    own, flags = (words[:words.index("--")], words[words.index("--") + 1:]) if "--" in words else (words, [])
    args = parser.parse_args(own)
    from ray import serve
    from ibid.ray import application as imported  # by its name: actors do not have this program's __main__

    serve.start(http_options={"host": args.host, "port": args.port})
    serve.run(imported(args.model, args.replicas, flags, args.cpus), name="ibid", route_prefix="/")
    print(f"Serving {args.model} by {args.replicas} replicas on http://{args.host}:{args.port}", flush=True)
    try:
        signal.sigwait({signal.SIGINT, signal.SIGTERM})
    finally:
        serve.shutdown()


if __name__ == "__main__":
    main()
