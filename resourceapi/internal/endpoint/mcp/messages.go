package mcp

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/almonerhq/almoner/resourceapi/internal/body"
)

// Bounds of one request. Calls are small, and an answer holds up to 200 programmes a call.
const (
	maxBody  = 64 << 10
	maxBatch = 10
)

// Codes of JSON-RPC 2.0, section 5.1.
const (
	parseError     = -32700
	invalidRequest = -32600
	methodNotFound = -32601
)

// A message is what is read of one JSON-RPC message: enough to know what it asks for.
type message struct {
	id        json.RawMessage // nil: a notification
	method    string          // "": an answer of the client's
	tool      string          // of tools/call
	arguments json.RawMessage // of tools/call; nil where there are none
}

// A fault is a request that is no JSON-RPC, or asks for what is not offered. It is answered with 400 and a JSON-RPC
// error, and echoes nothing but the id.
type fault struct {
	id      json.RawMessage
	code    int
	message string
}

var (
	notMessage = &fault{code: invalidRequest, message: "The body must be a JSON-RPC 2.0 message: one JSON object in UTF-8, with each key at most once, and \"jsonrpc\":\"2.0\"."}
	notJSON    = &fault{code: parseError, message: "The body is not JSON."}
	overBatch  = &fault{code: invalidRequest, message: "A batch must hold 1 to 10 messages."}
	mixedBatch = &fault{code: invalidRequest, message: "Send calls that need different permissions one by one."}
)

func (f *fault) serve(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusBadRequest)
	_, _ = w.Write(f.body()) // a caller who has left is no error of ours
}

func (f *fault) body() []byte {
	id := f.id
	if id == nil {
		id = json.RawMessage("null")
	}
	content, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": f.code, "message": f.message}}) // never fails
	return content
}

// readMessages reads the body of a POST.
func readMessages(content []byte) ([]message, *fault) {
	content = bytes.TrimLeft(content, " \t\r\n")
	if !json.Valid(content) {
		return nil, notJSON
	}
	if content[0] != '[' {
		m, f := readMessage(content)
		return []message{m}, f
	}
	var batch []json.RawMessage
	if err := json.Unmarshal(content, &batch); err != nil {
		return nil, notJSON
	}
	if len(batch) == 0 || len(batch) > maxBatch {
		return nil, overBatch
	}
	messages := make([]message, len(batch))
	for i, raw := range batch {
		var f *fault
		if messages[i], f = readMessage(raw); f != nil {
			return nil, f
		}
	}
	return messages, nil
}

func readMessage(content []byte) (message, *fault) {
	object, err := body.ReadObject(content)
	if err != nil {
		return message{}, notMessage
	}
	if version, _ := object.Text("jsonrpc"); version != "2.0" {
		return message{}, notMessage
	}
	m := message{id: object["id"]}
	if !object.Has("method") {
		return m, nil
	}
	method, ok := object.Text("method")
	if !ok {
		return message{}, notMessage
	}
	m.method = method
	switch {
	case method == "tools/call":
		return m.readCall(object["params"])
	case strings.HasPrefix(method, "subscriptions/"):
		// The SDK would hold the answer open for as long as the client likes.
		return message{}, &fault{m.id, methodNotFound, "There is nothing to subscribe to: what the tools are does not change, and what they answer is read at each call."}
	}
	return m, nil
}

func (m message) readCall(params json.RawMessage) (message, *fault) {
	object, err := body.ReadObject(params)
	if err != nil {
		return message{}, notMessage
	}
	if m.tool, _ = object.Text("name"); m.tool == "" {
		return message{}, notMessage
	}
	m.arguments = object["arguments"]
	return m, nil
}
