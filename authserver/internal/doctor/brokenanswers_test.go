package doctor_test

import (
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/doctor"
)

func discoverySymptoms() []symptom {
	return []symptom{
		of("mcp_redirects", at("/mcp", location(307, "/mcp/"))),
		of("challenge_on_200", at("/mcp", status(200))),
		of("open_to_all", at("/mcp", unchallenged(200))),
		of("challenge_on_403", at("/mcp", status(403))),
		of("refused_403", at("/mcp", unchallenged(403))),
		of("nothing_there", at("/mcp", status(404))),
		of("no_post", at("/mcp", status(405))),
		of("rate_limited", at("/mcp", status(429))),
		of("server_fails", at("/mcp", status(502))),
		of("judged_before_401", at("/mcp", status(400))),
		of("no_challenge", challenge("")),
		of("no_resource_metadata", challenge(`Bearer realm="x", scope="read"`)),
		of("no_scope_in_challenge", at("/mcp", when(noToken, func(s *sound, _ request, a answer) {
			a.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+s.URL+resourceDoc+`"`)
		}))),
		of("error_in_first_challenge", at("/mcp", when(noToken, func(_ *sound, _ request, a answer) {
			a.Header().Set("WWW-Authenticate", a.Header().Get("WWW-Authenticate")+`, error="invalid_token"`)
		}))),
		of("offline_access_in_challenge", challenge(`Bearer scope="read offline_access"`)),
		of("no_cors", at("/mcp", header("Access-Control-Allow-Origin", ""))),
		of("challenge_not_exposed", at("/mcp", header("Access-Control-Expose-Headers", "Mcp-Session-Id"))),
		of("origin_refused",
			at("/mcp", when(func(r request) bool { return r.Header.Get("Origin") != "" }, status(403)))),
		of("not_an_address", challenge(`Bearer resource_metadata="/.well-known/x", scope="read"`)),
		of("names_http", challenge(`Bearer resource_metadata="http://api.example.org/x", scope="read"`)),
		of("challenge_leads_nowhere", at(resourceDoc, status(404))),
		of("document_redirects", at(resourceDoc, location(301, "/elsewhere"))),
		of("document_status", at(resourceDoc, status(403))),
		of("document_not_json", at(resourceDoc, answers(200, "<!doctype html><title>Start</title>"))),
		of("document_not_json", at(resourceDoc, body(200, "application/json", "[]"))),
		of("document_not_json", at(resourceDoc, body(200, "application/json", "null"))),
		of("document_content_type", at(resourceDoc, header("Content-Type", "text/plain"))),
		of("document_no_cors", at(resourceDoc, header("Access-Control-Allow-Origin", ""))),
		of("no_resource_document", resources(status(404))),
		of("no_root_document", at(rootDoc, status(404))),
		of("resource_documents_differ", at(rootDoc, set("resource", "https://other.example/mcp"))),
		of("no_resource", resources(set("resource", nil))),
		of("resource_differs",
			resources(func(s *sound, r request, a answer) { set("resource", s.URL+"/mcp/")(s, r, a) })),
		of("no_authorization_servers", resources(set("authorization_servers", []string{}))),
		of("no_authorization_servers", resources(set("authorization_servers", "https://one.example"))),
		of("several_authorization_servers", resources(func(s *sound, r request, a answer) {
			set("authorization_servers", []string{s.URL, "https://two.example"})(s, r, a)
		})),
		of("offline_access_in_resource", resources(set("scopes_supported", []string{"read", "offline_access"}))),
		of("no_server_document", everywhere(status(404))),
		of("document_redirects", at(serverDoc, location(302, "/elsewhere"))),
		of("document_not_json", at(serverDoc, answers(200, "<html></html>"))),
		of("no_issuer", everywhere(set("issuer", nil))),
		of("issuer_differs", everywhere(func(s *sound, r request, a answer) { set("issuer", s.URL+"/")(s, r, a) })),
		of("no_iss", everywhere(set("authorization_response_iss_parameter_supported", nil))),
		of("no_iss_no_document", everywhere(set("authorization_response_iss_parameter_supported", "true")),
			unknown("chatgpt")),
		of("no_authorization_endpoint", everywhere(set("authorization_endpoint", nil))),
		of("no_token_endpoint", everywhere(set("token_endpoint", 7))),
		of("not_an_address", everywhere(set("token_endpoint", "file:///etc/passwd"))),
		of("no_pkce", everywhere(set("code_challenge_methods_supported", nil))),
		of("no_s256", everywhere(set("code_challenge_methods_supported", []string{"plain"}))),
		of("no_public_clients",
			everywhere(set("token_endpoint_auth_methods_supported", []string{"client_secret_basic"}))),
		of("no_code", everywhere(set("response_types_supported", nil))),
		of("no_refresh", everywhere(set("grant_types_supported", []string{"authorization_code"}))),
		of("no_offline_access", everywhere(set("scopes_supported", []string{"read", "write"}))),
		of("scopes_disagree", everywhere(set("scopes_supported", []string{"read", "offline_access"}))),
		of("alias_differs", at(openIDDoc, set("token_endpoint", "https://other.example/token"))),
		of("alias_missing", at(serverDoc+"/mcp", status(404)), as("chatgpt")),
		of("alias_strange", at(serverDoc+"/mcp", location(302, "/"))),
		of("guess_authorize", at("/authorize", status(404)), as("claude")),
		of("guess_token", at("/token", answers(404, "no")), as("claude")),
		of("guess_token_redirects", at("/token", location(307, "/oauth/token")), as("claude")),
		of("guess_register", at("/register", status(200)), as("claude")),
		of("no_client_id", nil, unknown("generic")),
		of("needs_registration", nil, unknown("opencode")),
		of("unknown_client", everywhere(set("client_id_metadata_document_supported", false)), unknown("vscode")),
		of("registration_broken", registers),
		of("registration_ok", both(registers, at("/register", status(400)))),
		of("not_on_the_internet", nil, as("claude")),
		of("too_large", at(resourceDoc, body(200, "application/json", `{"x":"`+strings.Repeat("x", 300<<10)+`"}`))),
	}
}

func consentSymptoms() []symptom {
	return []symptom{
		of("token_redirects", at("/oauth/token", location(308, "/oauth/token/"))),
		of("token_no_oauth_error", at("/oauth/token", answers(403, "<h1>Are you a robot?</h1>"))),
		of("token_unknown_client",
			both(unknownClient, at("/oauth/authorize", answers(400, "<h1>Unknown application</h1>")))),
		// A sign-in comes before the check of the client.
		of("token_unknown_client", both(unknownClient, at("/oauth/authorize", location(302, "/login")))),
		of("confidential_client", unknownClient),
		of("port_not_registered", at("/oauth/authorize", answers(400, "<h1>This redirect URI is not registered</h1>")),
			func(_ *sound, o *doctor.Options) { o.As, o.RedirectURI = "codex", "" }),
		of("other_resource",
			at("/oauth/authorize", location(302, callback+"?error=invalid_target&error_description=other"))),
		of("token_probe_status", at("/oauth/token", refuses(500, "server_error"))),
		of("authorize_307", at("/oauth/authorize", location(307, "/login"))),
		of("authorize_refused", at("/oauth/authorize", answers(400, "<h1>This redirect URI is not registered</h1>"))),
		of("authorize_error",
			at("/oauth/authorize", location(302, callback+"?error=invalid_scope&error_description=offline_access"))),
		of("document_not_taken", at("/oauth/authorize", answers(503, "<h1>We cannot check this application</h1>")),
			unknown("vscode")),
		of("token_probe_ok", unknownClient, unknown("vscode")),
		of("authorize_fails", at("/oauth/authorize", status(500))),
		of("code_without_consent", at("/oauth/authorize", location(302, callback+"?code=0123456789"))),
		// The authorization server is at another address than the API.
		of("password_not_sent", nil, func(s *sound, o *doctor.Options) { o.URL = newSoundAt(s) + "/mcp" }),
		of("sign_in_failed", nil, func(_ *sound, o *doctor.Options) { o.Password = "another password" }),
		of("consent_refused",
			consent(answers(403, `<h1>You are no member</h1><form method="post" action="/logout"></form>`))),
		of("page_not_understood", consent(answers(200, "<h1>One more thing</h1>"))),
		of("page_fails", consent(status(500))),
		of("endless_pages", consent(location(302, "/oauth/authorize"))),
		of("led_elsewhere", at("/login", location(302, "https://idp.example.org/"))),
		of("workspace_not_chosen", choosing(), in("Nowhere")),
		of("callback_ok", choosing(), in("Harbour Kitchen of a Trust")),
		of("callback_ok", choosing(), in("w1")),
		of("workspace_not_chosen", choosing(), in("Harbour Kitchen")),
		of("form_action", at("/oauth/authorize", header("Content-Security-Policy", "form-action 'self'"))),
		of("form_action", consent(header(
			"Content-Security-Policy", "default-src 'self', FORM-ACTION 'self' http://127.0.0.1:33420"))),
		of("form_action", at("/oauth/authorize", header("Content-Security-Policy", "base-uri 'none'; form-action *"))),
		of("approval_307", at("/oauth/authorize", when(posted, status(307)))),
		of("approval_301", at("/oauth/authorize", when(posted, status(301)))),
		of("state_differs", inCallback("state=", "state=x")),
		of("iss_missing", inCallback("iss=", "was=")),
		of("iss_differs", inCallback("iss=http", "iss=https")),
		of("iss_not_advertised", everywhere(set("authorization_response_iss_parameter_supported", nil))),
		of("callback_twice", inCallback("?", "?state=again&")),
		of("callback_twice", afterCallback("&state=again")),
		of("callback_error", inCallback("code=", "error=access_denied&was=")),
		of("callback_without_code", inCallback("code=", "was=")),
		of("exchange_refused", exchange(refuses(400, "invalid_grant"))),
		of("callback_elsewhere", nil, pasted("https://elsewhere.example/?code=0123456789&state=x\n")),
		of("callback_unreadable", nil, pasted("http://[::1\n")),
		of("nobody_consented", nil, pasted("")),
		of("cannot_listen", nil, func(s *sound, o *doctor.Options) {
			o.Email, o.Password, o.Browser, o.RedirectURI = "", "", true, s.URL+"/callback"
		}),
	}
}

func useSymptoms() []symptom {
	return []symptom{
		of("no_access_token", exchange(set("access_token", nil))),
		of("token_type", exchange(set("token_type", "DPoP"))),
		of("no_expires_in", exchange(set("expires_in", nil))),
		of("no_expires_in", exchange(set("expires_in", "3600"))),
		of("no_refresh_token", exchange(set("refresh_token", nil))),
		of("nothing_to_refresh", exchange(set("refresh_token", nil))),
		of("no_scope_told", exchange(set("scope", nil))),
		of("token_cached", exchange(header("Cache-Control", ""))),
		of("token_content_type", exchange(header("Content-Type", "text/html"))),
		of("own_token_refused", calls(status(401))),
		of("call_forbidden", calls(status(403))),
		of("call_fails", calls(status(500))),
		of("not_mcp", calls(answers(200, "<h1>Welcome</h1>"))),
		of("mcp_error",
			calls(body(200, "application/json", `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"oh"}}`))),
		of("notification_refused", calls(func(_ *sound, _ request, a answer) {
			if a.Code == 202 {
				a.Code = 400
			}
		})),
		of("no_tools", calls(inResult("tools", []any{}))),
		of("tools_without_hints", calls(inResult("tools", []any{map[string]any{"name": "bare"}}))),
		of("nothing_to_try", calls(inResult("tools", []any{map[string]any{"name": "bare"}}))),
		of("tool_ok", calls(inResult("structuredContent", nil))),
		of("tool_error", calls(inResult("isError", true))),
		of("any_token_taken", wrongToken(status(200))),
		of("wrong_token_status", wrongToken(status(403))),
		of("wrong_token_no_challenge", wrongToken(header("WWW-Authenticate", `Bearer error="invalid_token"`))),
		of("wrong_token_no_error", wrongToken(func(s *sound, _ request, a answer) {
			a.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+s.URL+resourceDoc+`"`)
		})),
		of("refresh_refused", refreshed(refuses(400, "invalid_grant"))),
		of("refresh_not_rotated", refreshed(set("refresh_token", nil))),
		of("new_token_refused", refreshed(set("access_token", "access-of-nobody-0123456789"))),
		of("former_token_ended", refreshed(endsTheFormer)),
		of("repeat_refused", at("/oauth/token", ifRepeated(status(400)))),
		of("repeat_other_token", at("/oauth/token", ifRepeated(set("refresh_token", "refresh-0123456789")))),
		of("replay_taken", refreshed(func(_ *sound, _ request, a answer) {
			if a.Code == 400 {
				replace(a, 200, "application/json", `{"access_token":"access-again-0123456789"}`)
			}
		})),
		of("replay_error", refreshed(func(_ *sound, _ request, a answer) {
			if a.Code == 400 {
				replace(a, 400, "application/json", `{"error":"invalid_request"}`)
			}
		})),
		of("replay_ends_nothing", refreshed(forgives)),
		of("replay_leaves_access", refreshed(leavesAccess)),
		of("no_revocation", everywhere(set("revocation_endpoint", nil))),
		of("revocation_refused", at("/oauth/revoke", status(400))),
		of("revoked_token_works", at("/oauth/revoke", leavesAccess),
			func(_ *sound, o *doctor.Options) { o.Replay = false }),
		of("not_signed_out", at("/logout", status(500))),
	}
}
