# Caddy with storage_mux and relay_breaker, from this checkout.
#
#   docker build -t caddy-storage-mux .

FROM golang:1.27-alpine AS build
RUN apk add --no-cache bash git
WORKDIR /src
COPY . .
RUN ./xcaddy-build.sh

FROM caddy:2.11-alpine
COPY --from=build /src/caddy /usr/bin/caddy
