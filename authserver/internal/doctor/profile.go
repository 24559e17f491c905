package doctor

// A profile describes one connector: what it sends and what it requires.
type profile struct {
	name        string
	title       string
	hosted      bool   // calls from its maker's servers, not from the user's computer
	document    string // its client id metadata document, "" for none
	redirectURI string // the port can be replaced
	origin      string // of its pages, for requests from a browser
	rootFirst   bool   // reads the resource's document without the path first
	wantsIss    bool   // uses its metadata document only if iss is advertised
	clientID    string // setting for a client_id, of a client that otherwise only registers itself; "" for others
	port        string // setting for the port of redirectURI, of a client that otherwise uses any; "" for others
}

// The connectors (their makers' documentation and public issue threads, autumn 2026).
func profiles() []profile {
	return []profile{
		{
			name:        "claude",
			title:       "Claude",
			hosted:      true,
			document:    "https://claude.ai/oauth/mcp-oauth-client-metadata",
			redirectURI: "https://claude.ai/api/mcp/auth_callback",
			origin:      "https://claude.ai",
		},
		{
			name:        "claude-code",
			title:       "Claude Code",
			document:    "https://claude.ai/oauth/claude-code-client-metadata",
			redirectURI: "http://localhost:33419/callback",
			origin:      "https://claude.ai",
			port:        "callbackPort, in oauth of the server's entry in .mcp.json",
		},
		{
			name:        "chatgpt",
			title:       "ChatGPT",
			hosted:      true,
			document:    "https://chatgpt.com/oauth/client.json",
			redirectURI: "https://chatgpt.com/connector_platform_oauth_redirect",
			origin:      "https://chatgpt.com",
			rootFirst:   true,
			wantsIss:    true,
		},
		{
			name:        "vscode",
			title:       "VS Code",
			document:    "https://vscode.dev/oauth/client-metadata.json",
			redirectURI: "http://127.0.0.1:33418/",
			origin:      "https://vscode.dev",
		},
		{
			name:        "codex",
			title:       "Codex",
			document:    "https://chatgpt.com/oauth/codex/client.json",
			redirectURI: "http://127.0.0.1:33421/callback",
			origin:      "https://chatgpt.com",
			port:        "mcp_oauth_callback_port, in config.toml",
		},
		{
			name:        "cursor",
			title:       "Cursor",
			redirectURI: "cursor://anysphere.cursor-mcp/oauth/callback",
			origin:      "http://localhost:6274",
			clientID:    "auth.CLIENT_ID, in the server's entry in mcp.json",
		},
		{
			name:        "opencode",
			title:       "opencode",
			redirectURI: "http://127.0.0.1:19876/mcp/oauth/callback",
			origin:      "http://localhost:4096",
			clientID:    "oauth.clientId, in the server's entry in opencode.json",
		},
		{
			name:        "gemini-cli",
			title:       "Gemini CLI",
			redirectURI: "http://localhost:7777/oauth/callback",
			origin:      "http://localhost:6274",
			clientID:    "oauth.clientId, in the server's entry in settings.json",
		},
		{
			name:        "generic",
			title:       "the client",
			redirectURI: "http://127.0.0.1:33420/callback",
			origin:      "http://localhost:6274",
		},
	}
}

func profileNamed(name string) (profile, bool) {
	for _, p := range profiles() {
		if p.name == name {
			return p, true
		}
	}
	return profile{}, false
}
