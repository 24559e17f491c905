package app

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

// Unknown parameters and members are refused by name, not ignored (contract, section 6).
func TestUnknownNames_AreRefused(t *testing.T) {
	s := newService(t)
	workspaceID, h := s.workspace()
	f := s.makeForm(h, allTypes)
	sent := s.accepted(f)
	user := s.User()
	held := []perm.Permission{perm.ProgrammesRead, perm.ProgrammesWrite}
	s.Member(workspaceID, user, held...)
	p := as(s.PAT(workspaceID, user, held...).Reveal(), workspaceID).json()
	one := listPath + "/" + s.Programmes(workspaceID, 1)[0].String()
	form, submissions := formsPath+"/"+f.ID.String(), f.path()+"/submissions"
	asked := submissionOf(s.submissionToken(f), goodAnswers())
	public := header{}.json()
	const field = `{"title":"T","allowedOrigins":[],"fields":[{"name":"a","label":"A","type":"text","Required":true}]}`
	for _, c := range []struct {
		method, path string
		h            header
		body, name   string
	}{
		{"GET", listPath + "?sort=name", p, "", "sort"},
		{"GET", listPath + "?Limit=5", p, "", "Limit"},
		{"GET", one + "?fields=id", p, "", "fields"},
		{"POST", listPath + "?dryRun=1", p, `{"name":"x"}`, "dryRun"},
		{"PATCH", one + "?x", p, `{"name":"x"}`, "x"},
		{"POST", one + "/transitions?x=", p, `{"to":"active"}`, "x"},
		{"GET", formsPath + "?status=x", h, "", "status"},
		{"GET", form + "?x=1", h, "", "x"},
		{"GET", form + "/submissions?since=1", h, "", "since"},
		{"POST", formsPath + "?x=1", h, allTypes, "x"},
		{"GET", f.path() + "?x=1", public, "", "x"},
		{"POST", submissions + "?x=1", public, asked, "x"},
		{"GET", sent.StatusURL[len(base):] + "&x=1", public, "", "x"},
		{"POST", listPath, p, `{"name":"x","endson":"2026-01-01"}`, "endson"},
		{"POST", listPath, p, `{"name":"x","Name":"y"}`, "Name"},
		{"PATCH", one, p, `{"id":"x"}`, "id"},
		{"POST", one + "/transitions", p, `{"to":"active","reason":"x"}`, "reason"},
		{"POST", formsPath, h, field, "fields[0].Required"},
		{"POST", formsPath, h, strings.Replace(allTypes, `"title"`, `"Title":"x","title"`, 1), "Title"},
		{"PATCH", form, h, `{"Enabled":false}`, "Enabled"},
		{"POST", submissions, public, strings.Replace(asked, "{", `{"captcha":"x",`, 1), "captcha"},
	} {
		a := s.do(c.method, c.path, c.h, c.body)
		if a.Status != 400 || a.code(t) != "VALIDATION_ERROR" || a.fields(t)[c.name] == "" {
			t.Errorf("%s %s %s: %d %s", c.method, c.path, c.body, a.Status, a.Body)
		}
	}
	if n := s.rows("resource.programmes", "name = 'x'") + s.submissions() - 1; n != 0 {
		t.Errorf("%d records of refused requests", n)
	}
	// Users reach the page of a form by links to which other sites have added parameters.
	s.get(f.path()+"/embed?utm_source=mail", header{}).wants(t, 200)
	s.do("POST", submissions, public, asked).wants(t, 202)
}
