package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"

	"github.com/almonerhq/almoner/authserver/internal/doctor/wire"
)

// A document is a JSON object that a client fetches, and its response.
type document struct {
	answer *wire.Answer
	values map[string]any
}

func (d document) text(name string) string {
	text, _ := d.values[name].(string)
	return text
}

func (d document) list(name string) []string {
	values, _ := d.values[name].([]any)
	var out []string
	for _, value := range values {
		if text, ok := value.(string); ok {
			out = append(out, text)
		}
	}
	return out
}

// readObject parses a single JSON object.
func readObject(body []byte) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(body))
	var values map[string]any
	if err := decoder.Decode(&values); err != nil {
		return nil, err
	}
	if values == nil {
		return nil, errors.New("null is not an object")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("unexpected data after the object")
	}
	return values, nil
}

func isJSON(header http.Header) bool {
	kind, _, err := mime.ParseMediaType(header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

// Results of fetch that are not codes of the table.
const (
	missing = "missing" // 404: the client tries the next address
	silent  = "silent"  // no response, which is already recorded
)

// fetch gets a discovery document. It returns "", or why there is none.
func (w *run) fetch(ctx context.Context, address string) (document, string) {
	answer, err := w.send(
		ctx,
		wire.Request{
			Method: http.MethodGet,
			URL:    address,
			Within: w.DiscoveryTimeout,
			Header: map[string]string{
				"Accept": "application/json", "MCP-Protocol-Version": protocolVersion, "Origin": w.profile.origin,
			},
		},
	)
	d := document{answer: answer}
	switch {
	case err != nil:
		return d, silent
	case answer.Status >= 300 && answer.Status < 400:
		return d, "document_redirects"
	case answer.Status == http.StatusNotFound:
		return d, missing
	case answer.Status != http.StatusOK:
		return d, "document_status"
	}
	if d.values, err = readObject(answer.Body); err != nil {
		return d, "document_not_json"
	}
	return d, ""
}

// judgeServing judges how a document is served.
func (w *run) judgeServing(d document) {
	if !isJSON(d.answer.Header) {
		w.find("document_content_type", d.answer)
	}
	if allowed := d.answer.Header.Get("Access-Control-Allow-Origin"); allowed != "*" && allowed != w.profile.origin {
		w.find("document_no_cors", d.answer)
	}
	w.judgeTime(d.answer)
}

// usable reports whether a client can use an address in a document, and records a finding if not. what is the
// name of the member.
func (w *run) usable(address, what string, about *wire.Answer) bool {
	parsed, err := url.Parse(address)
	switch {
	case err != nil || parsed.Host == "" || (parsed.Scheme != "https" && parsed.Scheme != "http") || parsed.User != nil:
		w.find("not_an_address", about, what+" is "+quote(address))
	case isPrivate(parsed.Hostname()) && !isPrivate(w.typed.Hostname()):
		w.find("names_localhost", about, what+" is "+quote(address))
	case parsed.Scheme == "http" && !isLoopback(parsed.Hostname()):
		w.find("names_http", about, what+" is "+quote(address))
	default:
		return true
	}
	return false
}

func quote(text string) string { return `"` + text + `"` }
