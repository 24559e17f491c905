# The gateway: Caddy, its configuration, and a place for certificates that a user other than root may write to. The file's capability to use
# ports below 1024 is taken from the program: without the capability to pass on, nobody else could start it.
FROM caddy:2.10
RUN setcap -r /usr/bin/caddy && mkdir -p /state && chown 65532:65532 /state
COPY deploy/gateway/Caddyfile /etc/caddy/Caddyfile
ENV XDG_CONFIG_HOME=/state/config XDG_DATA_HOME=/state/data GATEWAY_HTTP_PORT=8080 GATEWAY_HTTPS_PORT=8443
USER 65532:65532
EXPOSE 8080 8443
