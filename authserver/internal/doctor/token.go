package doctor

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/almonerhq/almoner/shared/crypt/credential"
)

// cleanUpTimeout bounds the clean-up, which also runs after the user has cancelled.
const cleanUpTimeout = 15 * time.Second

// tokens are the latest tokens.
type tokens struct {
	access, refresh credential.Secret
}

// exchange exchanges the code for tokens (RFC 6749, section 4.1.3, with PKCE and resource).
func (r *run) exchange(ctx context.Context) {
	form := r.codeForm(r.attempt.code.Reveal(), r.attempt.verifier.Reveal())
	resp, values := r.requestToken(ctx, "the code", "", form)
	r.takeTokens(resp, values, "exchange_refused")
}

func (r *run) codeForm(code, verifier string) url.Values {
	return url.Values{
		"grant_type":    {"authorization_code"},
		"client_id":     {r.ClientID},
		"code":          {code},
		"redirect_uri":  {r.redirect},
		"code_verifier": {verifier},
		"resource":      {r.resource.text("resource")},
	}
}

// requestToken sends a form to the token endpoint, with an Idempotency-Key unless it is "", and returns the object in
// the response. It registers the tokens as secrets.
func (r *run) requestToken(ctx context.Context, note, key string, form url.Values) (*response, object) {
	req := formRequest(r.server.text("token_endpoint"), note, form, tokenTimeout)
	if key != "" {
		req.header["Idempotency-Key"] = key
	}
	resp := r.send(ctx, req)
	values, _ := readObject(resp.body)
	for _, name := range []string{"access_token", "refresh_token", "id_token"} {
		r.secrets.add(credential.Secret(values.text(name)))
	}
	return resp, values
}

// takeTokens checks a response of the token endpoint (RFC 6749, section 5.1; connectors, Token) and stores its tokens.
// refused is the code of the finding if it is an error.
func (r *run) takeTokens(resp *response, values object, refused string) {
	access, refresh := credential.Secret(values.text("access_token")), credential.Secret(values.text("refresh_token"))
	switch {
	case resp.redirects():
		r.stop("token_redirects", resp)
	case resp.status != http.StatusOK:
		r.stop(refused, resp, resp.errorText())
	case access == "":
		r.stop("no_access_token", resp)
	}
	if refresh == "" {
		refresh = r.tokens.refresh // it remains valid unless it is replaced
	}
	r.tokens = tokens{access, refresh}
	kind := values.text("token_type")
	seconds, _ := values["expires_in"].(float64)
	scope, hasScope := values["scope"].(string)
	if !r.findAll(resp, []check{
		{!strings.EqualFold(kind, "Bearer"), "token_type", "token_type is " + quote(kind)},
		{seconds <= 0, "no_expires_in", ""},
		{refresh == "", "no_refresh_token", ""},
		{!hasScope, "no_scope_told", ""},
		{!strings.Contains(strings.ToLower(resp.header.Get("Cache-Control")), "no-store"), "token_cached", ""},
		{!resp.isJSON(), "token_content_type", ""},
	}) {
		lasts := time.Duration(min(seconds, 1e9)) * time.Second
		r.find("token_ok", resp, fmt.Sprintf("expires in %s, scope %s", lasts, quote(scope)))
	}
}

// refresh gets new tokens and checks what became of the old ones (RFC 6749, section 6; OAuth 2.1, section
// 4.3.1).
func (r *run) refresh(ctx context.Context) {
	former := r.tokens
	if former.refresh == "" {
		r.find("nothing_to_refresh", nil)
		return
	}
	key := ""
	if r.server.has("token_endpoint_idempotency_key_supported") {
		key = rand.Text()
		r.secrets.add(credential.Secret(key))
	}
	resp, values := r.requestToken(ctx, "refresh", key, r.refreshForm(former.refresh))
	r.takeTokens(resp, values, "refresh_refused")
	rotated := r.tokens.refresh != former.refresh
	r.find(either(rotated, "refresh_ok", "refresh_not_rotated"), resp)
	r.checkTokens(ctx, former.access)
	if key != "" && rotated {
		r.repeat(ctx, former.refresh, key)
	}
	if r.Replay && rotated {
		r.replay(ctx, former.refresh)
	}
}

// repeat sends the same request with the same Idempotency-Key, as a client does after a lost response. It runs only
// if the server's metadata offers this: otherwise the request would be a replay.
func (r *run) repeat(ctx context.Context, used credential.Secret, key string) {
	note := "the same request, with its Idempotency-Key"
	resp, values := r.requestToken(ctx, note, key, r.refreshForm(used))
	switch {
	case resp.status != http.StatusOK:
		r.stop("repeat_refused", resp, resp.errorText())
	case credential.Secret(values.text("refresh_token")) != r.tokens.refresh:
		r.find("repeat_other_token", resp)
	default:
		r.find("repeat_ok", resp)
		r.tokens.access = credential.Secret(values.text("access_token"))
	}
}

func (r *run) refreshForm(token credential.Secret) url.Values {
	return url.Values{
		"grant_type":    {"refresh_token"},
		"client_id":     {r.ClientID},
		"refresh_token": {token.Reveal()},
		"resource":      {r.resource.text("resource")},
	}
}

// checkTokens tries the new access token and the old one.
func (r *run) checkTokens(ctx context.Context, former credential.Secret) {
	resp, works := r.tryToken(ctx, "the new token", r.tokens.access)
	if !works {
		r.stop("new_token_refused", resp)
	}
	r.find("new_token_ok", resp)
	resp, works = r.tryToken(ctx, "the previous token", former)
	r.find(either(works, "former_token_works", "former_token_ended"), resp)
}

func (r *run) tryToken(ctx context.Context, note string, token credential.Secret) (resp *response, works bool) {
	req := r.initialize(note, token.Reveal())
	req.timeout = callTimeout
	resp = r.send(ctx, req)
	return resp, resp.status == http.StatusOK
}

// replay presents the used refresh token again, as an attacker would: the grant must end (RFC 9700, section
// 4.14.2).
func (r *run) replay(ctx context.Context, used credential.Secret) {
	resp, values := r.requestToken(ctx, "the used refresh token again", "", r.refreshForm(used))
	if values["access_token"] != nil || resp.status == http.StatusOK {
		r.find("replay_taken", resp)
		return
	}
	if resp.oauthError() != "invalid_grant" {
		r.find("replay_error", resp, resp.errorText())
	}
	note := "the newest refresh token, after the replay"
	resp, _ = r.requestToken(ctx, note, "", r.refreshForm(r.tokens.refresh))
	if resp.status == http.StatusOK {
		r.find("replay_ends_nothing", resp)
		return
	}
	resp, works := r.tryToken(ctx, "the access token, after the replay", r.tokens.access)
	r.find(either(works, "replay_leaves_access", "replay_ok"), resp)
}

// cleanUp revokes the grant and signs out, so that nothing is left behind (D4).
func (r *run) cleanUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, cleanUpTimeout)
	defer cancel()
	if r.tokens.access != "" {
		perform(func() { r.revoke(ctx) })
	}
	if r.signOut != nil {
		b := browser{run: r, origin: origin(r.signOut.action)}
		if resp, ok := r.try(ctx, b.submit(*r.signOut, "sign out")); ok {
			r.find(either(resp.status < 400, "signed_out", "not_signed_out"), resp)
		}
	}
}

// revoke revokes the grant (RFC 7009) and checks that the token no longer works.
func (r *run) revoke(ctx context.Context) {
	endpoint := r.server.text("revocation_endpoint")
	if endpoint == "" {
		r.find("no_revocation", nil)
		return
	}
	token, hint := r.tokens.refresh, "refresh_token"
	if token == "" {
		token, hint = r.tokens.access, "access_token"
	}
	form := url.Values{"client_id": {r.ClientID}, "token": {token.Reveal()}, "token_type_hint": {hint}}
	resp := r.send(ctx, formRequest(endpoint, "revoke", form, tokenTimeout))
	if resp.status != http.StatusOK {
		r.find("revocation_refused", resp, resp.errorText())
		return
	}
	if again, works := r.tryToken(ctx, "the access token, after revocation", r.tokens.access); works {
		r.find("revoked_token_works", again)
	} else {
		r.find("revoked", resp)
	}
}

// mcpSession is the state of a session with the MCP server.
type mcpSession struct {
	id      string // Mcp-Session-Id, "" for none
	version string
	calls   int
}

// A tool is one entry of tools/list.
type tool struct {
	Name        string `json:"name"`
	Title       string `json:"title"`
	InputSchema struct {
		Required []string `json:"required"`
	} `json:"inputSchema"`
	Annotations *struct {
		Title           string `json:"title"`
		ReadOnlyHint    bool   `json:"readOnlyHint"`
		DestructiveHint *bool  `json:"destructiveHint"`
	} `json:"annotations"`
}

// described reports whether a tool has a title and hints.
func (t tool) described() bool {
	return t.Annotations != nil && (t.Title != "" || t.Annotations.Title != "") &&
		(t.Annotations.ReadOnlyHint || t.Annotations.DestructiveHint != nil)
}

// call makes the first calls with the token, and one with an invalid token.
func (r *run) call(ctx context.Context) {
	r.openSession(ctx)
	r.callTool(ctx, r.listTools(ctx))
	r.callWithWrongToken(ctx)
}

// rpc makes a request with the current token, and returns its id. Without params it is a notification, which has no
// id.
func (r *run) rpc(method, params string) (request, int) {
	r.session.calls++
	id := r.session.calls + 1
	req := r.initialize("", r.tokens.access.Reveal())
	req.note, req.timeout = method, callTimeout
	if params == "" {
		req.body, req.complete = fmt.Sprintf(`{"jsonrpc":"2.0","method":%q}`, method), nil
	} else {
		req.body = fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params)
		req.complete = hasResponse(id)
	}
	if r.session.version != "" {
		req.header["MCP-Protocol-Version"] = r.session.version
	}
	if r.session.id != "" {
		req.header["Mcp-Session-Id"] = r.session.id
	}
	return req, id
}

// result sends a request and parses the result in its response, or ends the step if there is none.
func (r *run) result(ctx context.Context, req request, id int, result any) *response {
	resp := r.send(ctx, req)
	switch resp.status {
	case http.StatusOK:
	case http.StatusUnauthorized:
		r.stop("own_token_refused", resp)
	case http.StatusForbidden:
		r.stop("call_forbidden", resp, resp.errorText())
	default:
		r.stop("call_fails", resp)
	}
	found, ok := findRPC(resp.body, id)
	if ok && found.Error != nil {
		r.stop("mcp_error", resp, fmt.Sprintf("%.0f %s", found.Error.Code, found.Error.Message))
	}
	if !ok || found.Result == nil || json.Unmarshal(found.Result, result) != nil {
		r.stop("not_mcp", resp)
	}
	return resp
}

func (r *run) openSession(ctx context.Context) {
	req := r.initialize("with the token", r.tokens.access.Reveal())
	req.timeout = callTimeout
	var result struct {
		ProtocolVersion string `json:"protocolVersion"`
		ServerInfo      struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"serverInfo"`
	}
	resp := r.result(ctx, req, 1, &result)
	if result.ProtocolVersion == "" {
		r.stop("not_mcp", resp)
	}
	r.session.version, r.session.id = result.ProtocolVersion, resp.header.Get("Mcp-Session-Id")
	r.secrets.add(credential.Secret(r.session.id))
	about := result.ServerInfo
	r.find("initialize_ok", resp, fmt.Sprintf("%s %s, protocol %s", about.Name, about.Version, r.session.version))
	notification, _ := r.rpc("notifications/initialized", "")
	if resp = r.send(ctx, notification); !resp.succeeded() {
		r.find("notification_refused", resp)
	}
}

func (r *run) listTools(ctx context.Context) []tool {
	req, id := r.rpc("tools/list", "{}")
	var result struct {
		Tools []tool `json:"tools"`
	}
	resp := r.result(ctx, req, id, &result)
	var names, bare []string
	for _, t := range result.Tools {
		names = append(names, t.Name)
		if !t.described() {
			bare = append(bare, t.Name)
		}
	}
	r.findFirst(resp, []check{
		{len(names) == 0, "no_tools", ""},
		{len(bare) > 0, "tools_without_hints", strings.Join(bare, ", ")},
		{true, "tools_ok", strings.Join(names, ", ")},
	})
	return result.Tools
}

// callTool calls a read-only tool without required arguments: whoami if there is one.
func (r *run) callTool(ctx context.Context, tools []tool) {
	chosen := ""
	for _, t := range tools {
		harmless := t.Annotations != nil && t.Annotations.ReadOnlyHint && len(t.InputSchema.Required) == 0
		if harmless && (chosen == "" || t.Name == "whoami") {
			chosen = t.Name
		}
	}
	if chosen == "" {
		r.find("nothing_to_try", nil)
		return
	}
	name, _ := json.Marshal(chosen) // a string has a JSON
	req, id := r.rpc("tools/call", `{"name":`+string(name)+`,"arguments":{}}`)
	req.note += " " + chosen
	var result struct {
		IsError bool `json:"isError"`
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		Structured map[string]any `json:"structuredContent"`
	}
	resp := r.result(ctx, req, id, &result)
	text := ""
	if len(result.Content) > 0 && (chosen == "whoami" || result.IsError) {
		text = result.Content[0].Text
	}
	workspace := workspaceOf(result.Structured)
	r.findFirst(resp, []check{
		{result.IsError, "tool_error", text},
		{chosen == "whoami" && workspace != "", "workspace_told", "workspace " + quote(workspace)},
		{true, "tool_ok", text},
	})
}

// workspaceOf returns the name of the workspace in the result of whoami.
func workspaceOf(content object) string {
	if workspace, ok := content["workspace"].(map[string]any); ok {
		return object(workspace).text("name")
	}
	return content.text("workspace")
}

// callWithWrongToken expects 401 with a challenge: a client refreshes only after that.
func (r *run) callWithWrongToken(ctx context.Context) {
	resp := r.send(ctx, r.initialize("an unknown token", "almoner-doctor-was-never-issued"))
	challenge := bearerChallenge(resp.header)
	r.findFirst(resp, []check{
		{resp.succeeded(), "any_token_taken", ""},
		{resp.status != http.StatusUnauthorized, "wrong_token_status", ""},
		{challenge["resource_metadata"] == "", "wrong_token_no_challenge", ""},
		{challenge["error"] != "invalid_token", "wrong_token_no_error", ""},
		{true, "wrong_token_ok", ""},
	})
}
