package client_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"

	"github.com/almonerhq/almoner/shared/client"
)

// standIn responds to the examples as Almoner does. The tests in e2e use the client with Almoner itself.
func standIn() *httptest.Server {
	const programmes = "/v1/programmes/programmes"
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+programmes, func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("cursor") == "" {
			answer(w, 200, `{"data":[{"name":"Night shelter","startsOn":"2026-11-01"},
				{"name":"Tool bank","startsOn":"2026-03-01"}],"meta":{"count":2,"nextCursor":"2"}}`)
		} else {
			answer(w, 200, `{"data":[{"name":"Seed library","startsOn":null}],"meta":{"count":1}}`)
		}
	})
	mux.HandleFunc("GET "+programmes+"/night-shelter", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"1"`)
		answer(w, 200, `{"id":"night-shelter","name":"Night shelter"}`)
	})
	mux.HandleFunc("PATCH "+programmes+"/night-shelter", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 412,
			`{"error":{"code":"PRECONDITION_FAILED","message":"The programme has changed since you read it."}}`)
	})
	mux.HandleFunc("POST "+programmes+"/imports", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 202, `{"id":"i1","status":"accepted","statusUrl":"…"}`)
	})
	mux.HandleFunc("GET "+programmes+"/imports/i1", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, `{"id":"i1","status":"rejected","imported":0,
			"errors":[{"row":3,"field":"startsOn","message":"Must be a date in the format YYYY-MM-DD."}]}`)
	})
	mux.HandleFunc("POST /v1/account/oauth/token", func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("grant_type") == "refresh_token" {
			answer(w, 400, `{"error":"invalid_grant","error_description":"The grant was revoked."}`)
			return
		}
		answer(w, 200, `{"access_token":"a","token_type":"Bearer","expires_in":1,"tenant_id":"t","refresh_token":"r"}`)
	})
	return httptest.NewServer(mux)
}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprint(w, body)
}

// consents plays the user's browser and gives consent.
func consents(q client.Question) url.Values {
	asked, err := url.Parse(q.URL)
	if err != nil {
		panic(err)
	}
	return url.Values{"state": {asked.Query().Get("state")}, "code": {"c"}, "iss": {asked.Scheme + "://" + asked.Host}}
}
