package settings

// A Gateway holds the variables of deploy/gateway/Caddyfile, which Caddy reads itself.
type Gateway struct {
	APIHost      string `env:"GATEWAY_API_HOST" envDefault:"api.example.org" doc:"Host of ALMONER_BASE_URL."`
	AppHost      string `env:"GATEWAY_APP_HOST" envDefault:"app.example.org" doc:"Host of ALMONER_APP_URL."`
	TLS          string `env:"GATEWAY_TLS,required" doc:"An e-mail address, to get certificates by ACME, which needs port 80; or the certificate file for both hosts and its key file, separated by a space; or internal, for testing: certificates of Caddy's own authority."`
	Authservers  string `env:"GATEWAY_AUTHSERVERS" envDefault:"authserver-1:8081 authserver-2:8081" doc:"Addresses of the processes of authserver, separated by spaces."`
	Resourceapis string `env:"GATEWAY_RESOURCEAPIS" envDefault:"resourceapi-1:8082 resourceapi-2:8082" doc:"Addresses of the processes of resourceapi, separated by spaces."`
	HTTPPort     int    `env:"GATEWAY_HTTP_PORT" envDefault:"80" doc:"Port for http."`
	HTTPSPort    int    `env:"GATEWAY_HTTPS_PORT" envDefault:"443" doc:"Port for https."`
	Bind         string `env:"GATEWAY_BIND" doc:"Address to listen on. Empty: all."`
	Admin        string `env:"GATEWAY_ADMIN" envDefault:"off" doc:"Address for caddy reload, like unix//run/caddy/admin.sock. off: a change, or a new certificate file, needs a restart."`
	Tracing      string `env:"GATEWAY_TRACING" doc:"tracing: a trace begins at Caddy (docs/gateway.md). Empty: no traces."`
}
