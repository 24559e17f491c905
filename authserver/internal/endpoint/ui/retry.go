package ui

import (
	"net/http"
	"slices"
)

// A Retry repeats a request that could not be served: a link for a GET, and for a form of this site a form with the
// same fields.
type Retry struct {
	Path   string // local, with its query
	Form   bool
	Fields []RetryField // what was typed
	Asked  []RetryField // passwords, without their values: a page does not repeat them
}

// A RetryField is a field of a Retry.
type RetryField struct{ ID, Label, Name, Value string }

// secretFields are the labels of the fields that a page never repeats.
var secretFields = map[string]string{
	"password":     "Password",
	"new-password": "New password",
	"code":         "Code",
	"answer":       "", // of a passkey: a new one is needed
	"credential":   "",
}

// maxRetry limits the fields of a Retry.
const maxRetry = 64 << 10

// retry returns how to repeat the request, or nil if the user must go back. A form of another site is not repeated: the
// button would send it as one of this site.
func retry(w http.ResponseWriter, r *http.Request) *Retry {
	path := r.URL.RequestURI()
	if LocalPath(path, "") == "" {
		return nil
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		if query := r.URL.Query(); query.Has("token") || query.Has("code") { // no page repeats a secret
			return nil
		}
		return &Retry{Path: path}
	}
	named := r.Header.Get("Sec-Fetch-Site") != "" || r.Header.Get("Origin") != ""
	if !named || http.NewCrossOriginProtection().Check(r) != nil {
		return nil
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxRetry)
	if r.ParseForm() != nil {
		return nil
	}
	again := &Retry{Path: path, Form: true}
	names := make([]string, 0, len(r.PostForm))
	for name := range r.PostForm {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		label, secret := secretFields[name]
		switch {
		case secret && label == "":
			return nil
		case secret:
			again.Asked = append(again.Asked, RetryField{ID: "again-" + name, Label: label, Name: name})
		default:
			for _, value := range r.PostForm[name] {
				again.Fields = append(again.Fields, RetryField{Name: name, Value: value})
			}
		}
	}
	return again
}
