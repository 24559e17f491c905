package doctor_test

import (
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/doctor"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

func discoverySymptoms() []symptom {
	return []symptom{
		{"mcp_redirects", at("/mcp", location(307, "/mcp/")), nil},
		{"challenge_on_200", at("/mcp", status(200)), nil},
		{"open_to_all",
			at("/mcp", func(_ *sound, _ request, a answer) { a.Header().Del("WWW-Authenticate"); a.Code = 200 }), nil},
		{"challenge_on_403", at("/mcp", status(403)), nil},
		{"refused_403",
			at("/mcp", func(_ *sound, _ request, a answer) { a.Header().Del("WWW-Authenticate"); a.Code = 403 }), nil},
		{"nothing_there", at("/mcp", status(404)), nil},
		{"no_post", at("/mcp", status(405)), nil},
		{"rate_limited", at("/mcp", status(429)), nil},
		{"server_fails", at("/mcp", status(502)), nil},
		{"judged_before_401", at("/mcp", status(400)), nil},
		{"no_challenge", challenge(""), nil},
		{"no_resource_metadata", challenge(`Bearer realm="x", scope="read"`), nil},
		{"no_scope_in_challenge", at("/mcp", when(noToken, func(s *sound, _ request, a answer) {
			a.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+s.URL+resourceDoc+`"`)
		})), nil},
		{"error_in_first_challenge", at("/mcp", when(noToken, func(_ *sound, _ request, a answer) {
			a.Header().Set("WWW-Authenticate", a.Header().Get("WWW-Authenticate")+`, error="invalid_token"`)
		})), nil},
		{"offline_access_in_challenge", challenge(`Bearer scope="read offline_access"`), nil},
		{"no_cors", at("/mcp", header("Access-Control-Allow-Origin", "")), nil},
		{"challenge_not_exposed", at("/mcp", header("Access-Control-Expose-Headers", "Mcp-Session-Id")), nil},
		{"origin_refused", at("/mcp", when(func(r request) bool { return r.Header.Get("Origin") != "" }, status(403))),
			nil},
		{"not_an_address", challenge(`Bearer resource_metadata="/.well-known/x", scope="read"`), nil},
		{"names_http", challenge(`Bearer resource_metadata="http://api.example.org/x", scope="read"`), nil},
		{"challenge_leads_nowhere", at(resourceDoc, status(404)), nil},
		{"document_redirects", at(resourceDoc, location(301, "/elsewhere")), nil},
		{"document_status", at(resourceDoc, status(403)), nil},
		{"document_not_json", at(resourceDoc, answers(200, "<!doctype html><title>Start</title>")), nil},
		{"document_not_json", at(resourceDoc, body(200, "application/json", "[]")), nil},
		{"document_not_json", at(resourceDoc, body(200, "application/json", "null")), nil},
		{"document_content_type", at(resourceDoc, header("Content-Type", "text/plain")), nil},
		{"document_no_cors", at(resourceDoc, header("Access-Control-Allow-Origin", "")), nil},
		{"no_resource_document", resources(status(404)), nil},
		{"no_root_document", at(rootDoc, status(404)), nil},
		{"resource_documents_differ", at(rootDoc, set("resource", "https://other.example/mcp")), nil},
		{"no_resource", resources(set("resource", nil)), nil},
		{"resource_differs", resources(func(s *sound, r request, a answer) { set("resource", s.URL+"/mcp/")(s, r, a) }),
			nil},
		{"no_authorization_servers", resources(set("authorization_servers", []string{})), nil},
		{"no_authorization_servers", resources(set("authorization_servers", "https://one.example")), nil},
		{"several_authorization_servers", resources(func(s *sound, r request, a answer) {
			set("authorization_servers", []string{s.URL, "https://two.example"})(s, r, a)
		}), nil},
		{"offline_access_in_resource", resources(set("scopes_supported", []string{"read", "offline_access"})), nil},
		{"no_server_document", everywhere(status(404)), nil},
		{"document_redirects", at(serverDoc, location(302, "/elsewhere")), nil},
		{"document_not_json", at(serverDoc, answers(200, "<html></html>")), nil},
		{"no_issuer", everywhere(set("issuer", nil)), nil},
		{"issuer_differs", everywhere(func(s *sound, r request, a answer) { set("issuer", s.URL+"/")(s, r, a) }), nil},
		{"no_iss", everywhere(set("authorization_response_iss_parameter_supported", nil)), nil},
		{"no_iss_no_document", everywhere(set("authorization_response_iss_parameter_supported", "true")),
			unknown("chatgpt")},
		{"no_authorization_endpoint", everywhere(set("authorization_endpoint", nil)), nil},
		{"no_token_endpoint", everywhere(set("token_endpoint", 7)), nil},
		{"not_an_address", everywhere(set("token_endpoint", "file:///etc/passwd")), nil},
		{"no_pkce", everywhere(set("code_challenge_methods_supported", nil)), nil},
		{"no_s256", everywhere(set("code_challenge_methods_supported", []string{"plain"})), nil},
		{"no_public_clients", everywhere(set("token_endpoint_auth_methods_supported", []string{"client_secret_basic"})),
			nil},
		{"no_code", everywhere(set("response_types_supported", nil)), nil},
		{"no_refresh", everywhere(set("grant_types_supported", []string{"authorization_code"})), nil},
		{"no_offline_access", everywhere(set("scopes_supported", []string{"read", "write"})), nil},
		{"scopes_disagree", everywhere(set("scopes_supported", []string{"read", "offline_access"})), nil},
		{"alias_differs", at(openIDDoc, set("token_endpoint", "https://other.example/token")), nil},
		{"alias_missing", at(serverDoc+"/mcp", status(404)), as("chatgpt")},
		{"alias_strange", at(serverDoc+"/mcp", location(302, "/")), nil},
		{"guess_authorize", at("/authorize", status(404)), as("claude")},
		{"guess_token", at("/token", answers(404, "no")), as("claude")},
		{"guess_token_redirects", at("/token", location(307, "/oauth/token")), as("claude")},
		{"guess_register", at("/register", status(200)), as("claude")},
		{"no_client_id", nil, unknown("generic")},
		{"needs_registration", nil, unknown("opencode")},
		{"unknown_client", everywhere(set("client_id_metadata_document_supported", false)), unknown("vscode")},
		{
			"registration_broken",
			everywhere(
				func(s *sound, r request, a answer) { set("registration_endpoint", s.URL+"/register")(s, r, a) },
			),
			nil,
		},
		{"registration_ok", func(s *sound, r request, a answer) {
			everywhere(set("registration_endpoint", s.URL+"/register"))(s, r, a)
			at("/register", status(400))(s, r, a)
		}, nil},
		{"not_on_the_internet", nil, as("claude")},
		{"too_large", at(resourceDoc, body(200, "application/json", `{"x":"`+strings.Repeat("x", 300<<10)+`"}`)), nil},
	}
}

func consentSymptoms() []symptom {
	return []symptom{
		{"token_redirects", at("/oauth/token", location(308, "/oauth/token/")), nil},
		{"token_no_oauth_error", at("/oauth/token", answers(403, "<h1>Are you a robot?</h1>")), nil},
		{"token_unknown_client", func(s *sound, r request, a answer) {
			at("/oauth/token", refuses(400, "invalid_client"))(s, r, a)
			at("/oauth/authorize", answers(400, "<h1>Unknown application</h1>"))(s, r, a)
		}, nil},
		{"token_unknown_client", func(s *sound, r request, a answer) { // a sign-in comes before the check of the client
			at("/oauth/token", refuses(400, "invalid_client"))(s, r, a)
			at("/oauth/authorize", location(302, "/login"))(s, r, a)
		}, nil},
		{"confidential_client", at("/oauth/token", refuses(400, "invalid_client")), nil},
		{"port_not_registered",
			at("/oauth/authorize", answers(400, "<h1>This redirect URI is not registered</h1>")),
			func(_ *sound, o *doctor.Options) { o.As, o.RedirectURI = "codex", "" }},
		{"other_resource",
			at("/oauth/authorize", location(302, callback+"?error=invalid_target&error_description=other")), nil},
		{"token_probe_status", at("/oauth/token", refuses(500, "server_error")), nil},
		{"authorize_307", at("/oauth/authorize", location(307, "/login")), nil},
		{"authorize_refused",
			at("/oauth/authorize", answers(400, "<h1>This redirect URI is not registered</h1>")), nil},
		{"authorize_error",
			at("/oauth/authorize", location(302, callback+"?error=invalid_scope&error_description=offline_access")),
			nil},
		{"document_not_taken",
			at("/oauth/authorize", answers(503, "<h1>We cannot check this application</h1>")),
			unknown("vscode")},
		{"token_probe_ok", at("/oauth/token", refuses(400, "invalid_client")), unknown("vscode")},
		{"authorize_fails", at("/oauth/authorize", status(500)), nil},
		{"code_without_consent", at("/oauth/authorize", location(302, callback+"?code=0123456789")), nil},
		{"password_not_sent", nil, func(s *sound, o *doctor.Options) {
			// The authorization server is at another address than the API.
			other := newSoundAt(s)
			o.URL = other + "/mcp"
		}},
		{"sign_in_failed", nil,
			func(_ *sound, o *doctor.Options) { o.Password = credential.Secret("another password") }},
		{"consent_refused",
			consent(answers(403, `<h1>You are no member</h1><form method="post" action="/logout"></form>`)), nil},
		{"page_not_understood", consent(answers(200, "<h1>One more thing</h1>")), nil},
		{"page_fails", consent(status(500)), nil},
		{"endless_pages", consent(location(302, "/oauth/authorize")), nil},
		{"led_elsewhere", at("/login", location(302, "https://idp.example.org/")), nil},
		{"workspace_not_chosen", choosing(), func(_ *sound, o *doctor.Options) { o.Workspace = "Nowhere" }},
		{"callback_ok", choosing(), func(_ *sound, o *doctor.Options) { o.Workspace = "Harbour Kitchen of a Trust" }},
		{"callback_ok", choosing(), func(_ *sound, o *doctor.Options) { o.Workspace = "w1" }},
		{"workspace_not_chosen", choosing(), func(_ *sound, o *doctor.Options) { o.Workspace = "Harbour Kitchen" }},
		{"form_action", at("/oauth/authorize", header("Content-Security-Policy", "form-action 'self'")), nil},
		{"form_action", consent(header(
			"Content-Security-Policy", "default-src 'self', FORM-ACTION 'self' http://127.0.0.1:33420")), nil},
		{"form_action", at("/oauth/authorize", header("Content-Security-Policy", "base-uri 'none'; form-action *")),
			nil},
		{"approval_307", at("/oauth/authorize", when(posted, status(307))), nil},
		{"approval_301", at("/oauth/authorize", when(posted, status(301))), nil},
		{"state_differs", callbackWith(func(l string) string { return strings.Replace(l, "state=", "state=x", 1) }),
			nil},
		{"iss_missing", callbackWith(func(l string) string { return strings.Replace(l, "iss=", "was=", 1) }), nil},
		{"iss_differs", callbackWith(func(l string) string { return strings.Replace(l, "iss=http", "iss=https", 1) }),
			nil},
		{"iss_not_advertised", everywhere(set("authorization_response_iss_parameter_supported", nil)), nil},
		{"callback_twice", callbackWith(func(l string) string { return l + "&state=again" }), nil},
		{"callback_error",
			callbackWith(func(l string) string { return strings.Replace(l, "code=", "error=access_denied&was=", 1) }),
			nil},
		{"callback_without_code", callbackWith(func(l string) string { return strings.Replace(l, "code=", "was=", 1) }),
			nil},
		{"exchange_refused", exchange(refuses(400, "invalid_grant")), nil},
		{"callback_elsewhere", nil, pasted("https://elsewhere.example/?code=0123456789&state=x\n")},
		{"callback_unreadable", nil, pasted("http://[::1\n")},
		{"nobody_consented", nil, pasted("")},
		{"cannot_listen", nil, func(s *sound, o *doctor.Options) {
			o.Email, o.Password, o.Browser, o.RedirectURI = "", "", true, s.URL+"/callback"
		}},
	}
}

func useSymptoms() []symptom {
	return []symptom{
		{"no_access_token", exchange(set("access_token", nil)), nil},
		{"token_type", exchange(set("token_type", "DPoP")), nil},
		{"no_expires_in", exchange(set("expires_in", nil)), nil},
		{"no_expires_in", exchange(set("expires_in", "3600")), nil},
		{"no_refresh_token", exchange(set("refresh_token", nil)), nil},
		{"nothing_to_refresh", exchange(set("refresh_token", nil)), nil},
		{"no_scope_told", exchange(set("scope", nil)), nil},
		{"token_cached", exchange(header("Cache-Control", "")), nil},
		{"token_content_type", exchange(header("Content-Type", "text/html")), nil},
		{"own_token_refused", calls(status(401)), nil},
		{"call_forbidden", calls(status(403)), nil},
		{"call_fails", calls(status(500)), nil},
		{"not_mcp", calls(answers(200, "<h1>Welcome</h1>")), nil},
		{"mcp_error",
			calls(body(200, "application/json", `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"oh"}}`)),
			nil},
		{"notification_refused", calls(func(_ *sound, _ request, a answer) {
			if a.Code == 202 {
				a.Code = 400
			}
		}), nil},
		{"no_tools", calls(inResult("tools", []any{})), nil},
		{"tools_without_hints", calls(inResult("tools", []any{map[string]any{"name": "bare"}})), nil},
		{"nothing_to_try", calls(inResult("tools", []any{map[string]any{"name": "bare"}})), nil},
		{"tool_ok", calls(inResult("structuredContent", nil)), nil},
		{"tool_error", calls(inResult("isError", true)), nil},
		{"any_token_taken", wrongToken(status(200)), nil},
		{"wrong_token_status", wrongToken(status(403)), nil},
		{"wrong_token_no_challenge", wrongToken(header("WWW-Authenticate", `Bearer error="invalid_token"`)), nil},
		{"wrong_token_no_error", wrongToken(func(s *sound, _ request, a answer) {
			a.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+s.URL+resourceDoc+`"`)
		}), nil},
		{"refresh_refused", refreshed(refuses(400, "invalid_grant")), nil},
		{"refresh_not_rotated", refreshed(set("refresh_token", nil)), nil},
		{"new_token_refused", refreshed(set("access_token", "access-of-nobody-0123456789")), nil},
		{"former_token_ended", refreshed(endsTheFormer), nil},
		{"repeat_refused", at("/oauth/token", ifRepeated(status(400))), nil},
		{"repeat_other_token", at("/oauth/token", ifRepeated(set("refresh_token", "refresh-0123456789"))), nil},
		{"replay_taken", refreshed(func(_ *sound, _ request, a answer) {
			if a.Code == 400 {
				replace(a, 200, "application/json", `{"access_token":"access-again-0123456789"}`)
			}
		}), nil},
		{"replay_error", refreshed(func(_ *sound, _ request, a answer) {
			if a.Code == 400 {
				replace(a, 400, "application/json", `{"error":"invalid_request"}`)
			}
		}), nil},
		{"replay_ends_nothing", refreshed(forgives), nil},
		{"replay_leaves_access", refreshed(leavesAccess), nil},
		{"no_revocation", everywhere(set("revocation_endpoint", nil)), nil},
		{"revocation_refused", at("/oauth/revoke", status(400)), nil},
		{"revoked_token_works", at("/oauth/revoke", leavesAccess),
			func(_ *sound, o *doctor.Options) { o.Replay = false }},
		{"not_signed_out", at("/logout", status(500)), nil},
	}
}
