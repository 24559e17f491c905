package apitest

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/fuzzkit"
)

// An Answer is a response.
type Answer = fuzzkit.Answer

// Send sends a request to a path of the server and does not follow redirects. headers are pairs of name and value.
func (s *Server) Send(method, path, body string, headers ...string) Answer {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+path, strings.NewReader(body))
	s.Must(err)
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Add(headers[i], headers[i+1])
	}
	if s.address != "" && request.Header.Get("X-Forwarded-For") == "" {
		request.Header.Set("X-Forwarded-For", s.address)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	s.Must(err)
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	s.Must(err)
	answer := Answer{Status: response.StatusCode, Header: response.Header, Body: string(content)}
	s.sent.Store(answer.Header.Get(requestID), sentRequest{request, body})
	return answer
}

// Form posts pairs of name and value as a form.
func (s *Server) Form(path string, pairs ...string) Answer {
	s.t.Helper()
	return s.FormWith(path, nil, pairs...)
}

// FormWith is Form with headers.
func (s *Server) FormWith(path string, headers []string, pairs ...string) Answer {
	s.t.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Add(pairs[i], pairs[i+1])
	}
	return s.Send(http.MethodPost, path, form.Encode(),
		append([]string{"Content-Type", "application/x-www-form-urlencoded"}, headers...)...)
}

// PostJSON posts pairs of name and value as a JSON object.
func (s *Server) PostJSON(path string, pairs ...string) Answer {
	s.t.Helper()
	members := map[string]string{}
	for i := 0; i+1 < len(pairs); i += 2 {
		members[pairs[i]] = pairs[i+1]
	}
	body, err := json.Marshal(members)
	s.Must(err)
	return s.Send(http.MethodPost, path, string(body), "Content-Type", "application/json")
}

// Basic returns the Authorization header of a client.
func Basic(id string, secret credential.Secret) []string {
	request := http.Request{Header: http.Header{}}
	request.SetBasicAuth(url.QueryEscape(id), url.QueryEscape(secret.Reveal()))
	return []string{"Authorization", request.Header.Get("Authorization")}
}

// Bearer returns the Authorization header of a bearer token.
func Bearer(token credential.Secret) []string {
	return []string{"Authorization", "Bearer " + token.Reveal()}
}
