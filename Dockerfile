# weir, and nothing else that listens, writes or runs: no shell is used, the root filesystem may be
# read-only, and no capability is needed.
#
#   docker build -t weir .
#   docker run --read-only --cap-drop ALL -v ./api:/etc/weir:ro -p 8080:8080 weir
#
# The configuration is /etc/weir/weir.json; its server.address must be 0.0.0.0 to be reached from
# outside. docker-compose.yml is a whole example.

FROM debian:trixie-slim AS build
RUN apt-get update -q \
    && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
        cmake gcc libc6-dev libjansson-dev libmicrohttpd-dev libpq-dev libuv1-dev ninja-build pkg-config
WORKDIR /weir
COPY . .
RUN cmake -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF -DQUICK_HEALTH=ON \
    && cmake --build /build \
    && DESTDIR=/installed cmake --install /build --strip

FROM debian:trixie-slim
RUN apt-get update -q \
    && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
        libjansson4 libmicrohttpd12t64 libpq5 libuv1t64 \
    && rm -rf /var/cache/* /var/lib/apt/lists/* /var/log/*
COPY --from=build /installed/ /

ARG VERSION=0.1.0
ARG REVISION=
LABEL org.opencontainers.image.title="weir" \
      org.opencontainers.image.description="SQL files as REST endpoints, behind bulkheads and circuit breakers" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.base.name="docker.io/library/debian:trixie-slim"

ENV WEIR_CONFIG=/etc/weir/weir.json
USER 65532:65532
EXPOSE 8080
STOPSIGNAL SIGTERM
# Asks this configuration's admin port, which only this container can reach. Often, as what waits for
# it waits that much longer, and one takes a few milliseconds.
HEALTHCHECK --interval=2s --timeout=3s --start-period=10s --retries=2 CMD ["weir", "health"]
ENTRYPOINT ["weir"]
CMD ["serve"]
