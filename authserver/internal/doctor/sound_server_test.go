package doctor_test

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/doctor"
)

func TestRun_CorrectServerHasNoFindings(t *testing.T) {
	t.Parallel()
	s := newSound(t, nil)
	report := run(t, s.unattended())
	wantSound(t, report)
	wantFindings(t, "a sound server", report,
		"refused_401", "challenge_ok", "cors_ok", "resource_ok", "resource_document_again", "server_ok", "alias_ok",
		"registered_client", "token_probe_ok", "authorize_ok", "form_action_ok", "approval_redirects", "callback_ok",
		"token_ok", "initialize_ok", "tools_ok", "workspace_told", "wrong_token_ok", "refresh_ok", "new_token_ok",
		"former_token_works", "repeat_ok", "replay_ok", "revoked", "signed_out")
	if f, _ := found(report, "workspace_told"); !strings.Contains(f.Detail, "Harbour Kitchen") {
		t.Errorf("the workspace is not named: %q", f.Detail)
	}
	if !s.ended || len(s.live) != 0 {
		t.Error("D4: the grant was not revoked")
	}
	var out bytes.Buffer
	var read doctor.Report
	if err := report.JSON(&out); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(out.Bytes(), &read); err != nil || read.Verdict != doctor.OK ||
		len(read.Findings) != len(report.Findings) || read.As != "generic" {
		t.Errorf("as JSON: %v, %d findings, %s", err, len(read.Findings), read.Verdict)
	}
}

// Without credentials the run ends before the sign-in, without a failure.
func TestRun_StopsAfterDiscoveryWithoutCredentials(t *testing.T) {
	t.Parallel()
	for as, id := range map[string]string{
		"claude": "", "claude-code": "", "chatgpt": "", "vscode": "", "generic": clientID,
	} {
		s := newSound(t, nil)
		report := run(t, doctor.Options{URL: s.URL + "/mcp", As: as, ClientID: id})
		if report.Count(doctor.Fail) != 0 || !strings.Contains(report.Stopped, "No user signed in") {
			t.Errorf("%s: %s", as, codes(report))
		}
		if id == "" {
			wantFindings(t, as, report, "metadata_client")
		}
		if as == "claude" || as == "chatgpt" {
			wantFindings(t, as, report, "guess_authorize_ok", "guess_token_ok", "guess_register_ok")
		}
	}
}

// D1: no output, text or JSON, contains a secret that the server issued or the password.
func TestD1_NoSecretIsShown(t *testing.T) {
	t.Parallel()
	echo := func(body string) string {
		return `{"error":"invalid_request","error_description":"you sent ` + body + `"}`
	}
	for name, broken := range map[string]breakage{
		"sound": nil,
		"the token endpoint repeats what it was sent": at("/oauth/token", func(s *sound, r request, a answer) {
			if slices.Contains(s.secrets, r.PostForm.Get("code")) {
				replace(a, 400, "application/json", echo(strings.ReplaceAll(r.PostForm.Encode(), `"`, "")))
			}
		}),
		"the API repeats the token": at("/mcp", func(_ *sound, r request, a answer) {
			if r.Header.Get("Authorization") != "" {
				replace(a, 403, "application/json", echo(r.Header.Get("Authorization")))
			}
		}),
		"the API repeats the token alone": at("/mcp", func(_ *sound, r request, a answer) {
			if token, has := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); has {
				replace(a, 403, "application/json", echo(token))
			}
		}),
		"the sign-in page repeats the password": at("/login", func(_ *sound, r request, a answer) {
			replace(a, 400, "text/html", "<h1>No user with the password "+r.PostForm.Get("password")+"</h1>")
		}),
		"the callback names the password and the cookie": at("/oauth/authorize", func(s *sound, r request, a answer) {
			if r.Method == "POST" {
				a.Header().Set("Location", a.Header().Get("Location")+
					"&error=access_denied&error_description="+strings.ReplaceAll(password, " ", "+"))
			}
		}),
	} {
		s := newSound(t, broken)
		var text bytes.Buffer
		o := s.unattended()
		o.Tell = (&doctor.Text{Out: &text}).Tell
		report := run(t, o)
		report.End(&text)
		if err := report.JSON(&text); err != nil {
			t.Fatal(err)
		}
		for _, secret := range append(s.secrets, password) {
			if strings.Contains(text.String(), secret) {
				t.Errorf("%s: a secret is shown: %s…", name, secret[:6])
			}
		}
		if len(s.secrets) == 0 && !strings.Contains(name, "sign-in") {
			t.Errorf("%s: nothing secret was given out: %s", name, codes(report))
		}
	}
}

// Responses may be a stream of events, with other messages before the response.
func TestRun_ReadsEventStreams(t *testing.T) {
	t.Parallel()
	s := newSound(t, at("/mcp", func(_ *sound, _ request, a answer) {
		if a.Code == 200 {
			other := `{"jsonrpc":"2.0","method":"notifications/message","params":{}}`
			replace(a, 200, "text/event-stream", "event: message\ndata: "+other+"\n\n"+
				"event: message\ndata: "+strings.TrimSpace(a.Body.String())+"\n\n")
		}
	}))
	wantSound(t, run(t, s.unattended()))
}
