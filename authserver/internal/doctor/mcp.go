package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/almonerhq/almoner/shared/crypt/credential"
)

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

// An rpcResponse is a JSON-RPC response.
type rpcResponse struct {
	ID     any             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    float64 `json:"code"`
		Message string  `json:"message"`
	} `json:"error"`
}

// hasResponse returns a function that reports whether the data so far contains the response with an id.
func hasResponse(id int) func([]byte) bool {
	return func(body []byte) bool {
		if !bytes.HasSuffix(bytes.TrimRight(body, "\r\n "), []byte("}")) {
			return false // incomplete: do not parse everything again for each byte
		}
		_, ok := findRPC(body, id)
		return ok
	}
}

// findRPC finds a response in a body that is one JSON object or a stream of events (MCP, Streamable
// HTTP).
func findRPC(body []byte, id int) (rpcResponse, bool) {
	candidates := [][]byte{body}
	for line := range bytes.Lines(body) {
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok && bytes.HasSuffix(line, []byte("\n")) {
			candidates = append(candidates, data)
		}
	}
	for _, one := range candidates {
		var r rpcResponse
		if json.Unmarshal(one, &r) == nil && r.ID == float64(id) {
			return r, true
		}
	}
	return rpcResponse{}, false
}
