package client_test

import (
	"net/http"
	"slices"
	"testing"

	"github.com/almonerhq/almoner/shared/client"
)

// Records may be long: a program with little memory requests fewer per page (F12).
func TestLists_UsePageSize(t *testing.T) {
	var asked []string
	c := against(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+"?"+r.URL.Query().Get("limit"))
		answer(w, 200, `{"data":[],"meta":{"count":0}}`)
	})
	for range c.Programmes.List(t.Context(), client.ProgrammeFilter{PageSize: 3}) {
		t.Error("got a programme")
	}
	for range c.Forms.List(t.Context(), client.FormFilter{PageSize: 4}) {
		t.Error("got a form")
	}
	for range c.Forms.List(t.Context()) {
		t.Error("got a form")
	}
	for range c.Forms.Submissions(t.Context(), "f", client.SubmissionFilter{PageSize: 5}) {
		t.Error("got a submission")
	}
	want := []string{
		"/v1/programmes/programmes?3",
		"/v1/engage/forms?4",
		"/v1/engage/forms?",
		"/v1/engage/forms/f/submissions?5",
	}
	if !slices.Equal(asked, want) {
		t.Errorf("%v", asked)
	}
}
