package mailbox

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/smtp"
	"net/url"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

var must = testkit.Must

const sent = "From: Almoner <almoner@example.org>\r\nTo: sam@example.org\r\nSubject: Set <a> password\r\n" +
	"MIME-Version: 1.0\r\nContent-Type: multipart/alternative; boundary=x\r\n\r\n" +
	"--x\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nOpen http://localhost:8081/login/reset?token=a_b now.\r\n" +
	"--x\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<p>\"Open\" <script>alert(1)</script></p>\r\n--x--\r\n"

// A browser gets a page, in which the link of a text can be opened and no markup of a mail takes effect. Other clients
// get JSON.
func TestMailbox_IsPageForBrowsersAndJSONForOthers(t *testing.T) {
	box, err := Start()
	must(t, err)
	defer box.Close()
	server, err := url.Parse(box.URL())
	must(t, err)
	arrived := box.Changed()
	err = smtp.SendMail(server.Host, nil, "almoner@example.org", []string{"sam@example.org"}, []byte(sent))
	must(t, err)
	<-arrived
	get := func(accept, path string) *httptest.ResponseRecorder {
		request := httptest.NewRequest(http.MethodGet, "http://localhost:8083"+path, nil)
		request.Header.Set("Accept", accept)
		recorder := httptest.NewRecorder()
		box.ServeHTTP(recorder, request)
		return recorder
	}
	page := get("text/html,*/*;q=0.8", "/").Body.String()
	for _, want := range []string{
		`<a href="http://localhost:8081/login/reset?token=a_b">`,
		"<strong>Set &lt;a&gt; password</strong> to sam@example.org",
		`sandbox="allow-popups" srcdoc="&lt;base target=&#34;_blank&#34;&gt;`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not contain %s:\n%s", want, page)
		}
	}
	if strings.Contains(page, "<script") {
		t.Errorf("the page contains a script of the mail:\n%s", page)
	}
	if other := get("text/html", "/?to=kim@example.org"); strings.Contains(other.Body.String(), "sam@") {
		t.Error("?to= does not select")
	}
	answer := get("*/*", "/")
	var all []Message
	if err := json.Unmarshal(answer.Body.Bytes(), &all); err != nil || len(all) != 1 ||
		answer.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%v %v", err, answer.Header())
	}
}

// A page of another site must not read the links in mails through a host name that resolves to this machine (DNS
// rebinding).
func TestMailbox_RefusesOtherHosts(t *testing.T) {
	for host, want := range map[string]int{
		"localhost:8083":       http.StatusOK,
		"127.0.0.1:8083":       http.StatusOK,
		"[::1]:8083":           http.StatusOK,
		"localhost":            http.StatusOK,
		"evil.example":         http.StatusForbidden,
		"localhost.evil.com:1": http.StatusForbidden,
		"192.0.2.1:8083":       http.StatusForbidden,
		"":                     http.StatusForbidden,
	} {
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		request.Host = host
		recorder := httptest.NewRecorder()
		new(Mailbox).ServeHTTP(recorder, request)
		if recorder.Code != want {
			t.Errorf("%q: %d, want %d", host, recorder.Code, want)
		}
	}
}
