package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/doctor/wire"
	"github.com/almonerhq/almoner/shared/credential"
)

// mcpSession is the state of a session with the MCP server.
type mcpSession struct {
	id       string // Mcp-Session-Id, "" for none
	version  string
	nextCall int
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

// call makes the first calls with the token, and one with an invalid token.
func (w *run) call(ctx context.Context) error {
	if err := w.enter(ctx); err != nil {
		return err
	}
	tools, err := w.tools(ctx)
	if err != nil {
		return err
	}
	if err := w.oneTool(ctx, tools); err != nil {
		return err
	}
	return w.wrongToken(ctx)
}

// rpc makes a request with the current token. A notification has no id.
func (w *run) rpc(method, params string, notification bool) (wire.Request, int) {
	w.session.nextCall++
	id := w.session.nextCall + 1
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, id, method, params)
	if notification {
		body = fmt.Sprintf(`{"jsonrpc":"2.0","method":%q}`, method)
	}
	r := w.initialize("", w.tokens.access.Reveal())
	r.Note, r.Body, r.Within, r.Enough = method, body, callLimit, hasResponse(id)
	if w.session.version != "" {
		r.Header["MCP-Protocol-Version"] = w.session.version
	}
	if w.session.id != "" {
		r.Header["Mcp-Session-Id"] = w.session.id
	}
	return r, id
}

// result sends a request and returns the result in its response, or records a finding if there is none.
func (w *run) result(ctx context.Context, r wire.Request, id int) (*wire.Answer, json.RawMessage, error) {
	answer, err := w.send(ctx, r)
	if err != nil {
		return answer, nil, err
	}
	switch {
	case answer.Status == http.StatusUnauthorized:
		w.find("own_token_refused", answer)
		return answer, nil, errStop
	case answer.Status == http.StatusForbidden:
		w.find("call_forbidden", answer, w.described(answer))
		return answer, nil, errStop
	case answer.Status != http.StatusOK:
		w.find("call_fails", answer)
		return answer, nil, errStop
	}
	response, ok := findResponse(answer.Body, id)
	if !ok || (response.Error == nil && response.Result == nil) {
		w.find("not_mcp", answer)
		return answer, nil, errStop
	}
	if response.Error != nil {
		w.find("mcp_error", answer, fmt.Sprintf("%.0f %s", response.Error.Code, response.Error.Message))
		return answer, nil, errStop
	}
	return answer, response.Result, nil
}

func (w *run) enter(ctx context.Context) error {
	r := w.initialize("with the token", w.tokens.access.Reveal())
	r.Within = callLimit
	answer, raw, err := w.result(ctx, r, 1)
	if err != nil {
		return err
	}
	var result struct {
		ProtocolVersion string `json:"protocolVersion"`
		ServerInfo      struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"serverInfo"`
	}
	if err := json.Unmarshal(raw, &result); err != nil || result.ProtocolVersion == "" {
		w.find("not_mcp", answer)
		return errStop
	}
	w.session.version, w.session.id = result.ProtocolVersion, answer.Header.Get("Mcp-Session-Id")
	w.secrets.Add(credential.Secret(w.session.id))
	w.find(
		"initialize_ok",
		answer,
		fmt.Sprintf("%s %s, protocol %s", result.ServerInfo.Name, result.ServerInfo.Version, result.ProtocolVersion),
	)
	note, _ := w.rpc("notifications/initialized", "", true)
	note.Enough = nil
	answer, err = w.send(ctx, note)
	if err != nil {
		return err
	}
	if answer.Status < 200 || answer.Status > 299 {
		w.find("notification_refused", answer)
	}
	return nil
}

func (w *run) tools(ctx context.Context) ([]tool, error) {
	r, id := w.rpc("tools/list", "{}", false)
	answer, raw, err := w.result(ctx, r, id)
	if err != nil {
		return nil, err
	}
	var result struct {
		Tools []tool `json:"tools"`
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		w.find("not_mcp", answer)
		return nil, errStop
	}
	var names, bare []string
	for _, t := range result.Tools {
		names = append(names, t.Name)
		if t.Annotations == nil || (t.Title == "" && t.Annotations.Title == "") ||
			(!t.Annotations.ReadOnlyHint && t.Annotations.DestructiveHint == nil) {
			bare = append(bare, t.Name)
		}
	}
	switch {
	case len(names) == 0:
		w.find("no_tools", answer)
	case len(bare) > 0:
		w.find("tools_without_hints", answer, strings.Join(bare, ", "))
	default:
		w.find("tools_ok", answer, strings.Join(names, ", "))
	}
	return result.Tools, nil
}

// oneTool calls a read-only tool without required arguments: whoami if there is one.
func (w *run) oneTool(ctx context.Context, tools []tool) error {
	chosen := ""
	for _, t := range tools {
		harmless := t.Annotations != nil && t.Annotations.ReadOnlyHint && len(t.InputSchema.Required) == 0
		if harmless && (chosen == "" || t.Name == "whoami") {
			chosen = t.Name
		}
	}
	if chosen == "" {
		w.find("nothing_to_try", nil)
		return nil
	}
	name, err := json.Marshal(chosen)
	if err != nil {
		return err
	}
	r, id := w.rpc("tools/call", `{"name":`+string(name)+`,"arguments":{}}`, false)
	r.Note += " " + chosen
	answer, raw, err := w.result(ctx, r, id)
	if err != nil {
		return err
	}
	var result struct {
		IsError bool `json:"isError"`
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		Structured map[string]any `json:"structuredContent"`
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		w.find("not_mcp", answer)
		return errStop
	}
	text := ""
	if len(result.Content) > 0 && (chosen == "whoami" || result.IsError) {
		text = result.Content[0].Text
	}
	switch name := workspaceOf(result.Structured); {
	case result.IsError:
		w.find("tool_error", answer, text)
	case chosen == "whoami" && name != "":
		w.find("workspace_told", answer, "workspace "+quote(name))
	default:
		w.find("tool_ok", answer, text)
	}
	return nil
}

// workspaceOf returns the name of the workspace in the result of whoami.
func workspaceOf(content map[string]any) string {
	switch name := content["workspace"].(type) {
	case string:
		return name
	case map[string]any:
		text, _ := name["name"].(string)
		return text
	}
	return ""
}

// wrongToken expects 401 with a challenge: a client refreshes only after that.
func (w *run) wrongToken(ctx context.Context) error {
	answer, err := w.send(ctx, w.initialize("an unknown token", "almoner-doctor-was-never-issued"))
	if err != nil {
		return err
	}
	challenge, challenged := wire.Bearer(answer.Header)
	switch {
	case answer.Status >= 200 && answer.Status < 300:
		w.find("any_token_taken", answer)
	case answer.Status != http.StatusUnauthorized:
		w.find("wrong_token_status", answer)
	case !challenged || challenge.Parameters["resource_metadata"] == "":
		w.find("wrong_token_no_challenge", answer)
	case challenge.Parameters["error"] != "invalid_token":
		w.find("wrong_token_no_error", answer)
	default:
		w.find("wrong_token_ok", answer)
	}
	return nil
}

// A response is a JSON-RPC response.
type response struct {
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
		_, ok := findResponse(body, id)
		return ok
	}
}

// findResponse finds a response in a body that is one JSON object or a stream of events (MCP, Streamable
// HTTP).
func findResponse(body []byte, id int) (response, bool) {
	candidates := [][]byte{body}
	for line := range bytes.Lines(body) {
		if data, ok := bytes.CutPrefix(line, []byte("data:")); ok && bytes.HasSuffix(line, []byte("\n")) {
			candidates = append(candidates, data)
		}
	}
	for _, one := range candidates {
		var r response
		if json.Unmarshal(one, &r) == nil && r.ID == float64(id) {
			return r, true
		}
	}
	return response{}, false
}
