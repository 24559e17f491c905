package mail

import (
	"encoding/json"
	"errors"
	"net"
	netmail "net/mail"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"
	"github.com/google/uuid"
	"github.com/riverqueue/river"
	gomail "github.com/wneessen/go-mail"

	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/devkit/mailbox"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/page/brand"
)

var must = testkit.Must

func opened(t *testing.T) *mailbox.Mailbox {
	t.Helper()
	box, err := mailbox.Start()
	must(t, err)
	t.Cleanup(box.Close)
	return box
}

func senderTo(t *testing.T, url string) *Sender {
	t.Helper()
	server, err := ParseServer(credential.Secret(url))
	must(t, err)
	return NewSender(server, netmail.Address{Name: "Almoner", Address: "almoner@example.org"}, time.Now)
}

func TestParseServer_FormsThatOperatorsKnow(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Server{
		"smtps://ada:p%40ss@mail.example.org":     {"mail.example.org", 465, "ada", "p@ss", true, gomail.TLSMandatory},
		"smtp://ada:pass@mail.example.org":        {"mail.example.org", 587, "ada", "pass", false, gomail.TLSMandatory},
		"smtp://mail.example.org:2525":            {"mail.example.org", 2525, "", "", false, gomail.TLSMandatory},
		"smtp://relay?tls=none":                   {"relay", 25, "", "", false, gomail.NoTLS},
		"smtp://ada:pass@127.0.0.1:1025?tls=none": {"127.0.0.1", 1025, "ada", "pass", false, gomail.NoTLS},
		"smtp://[::1]:1025?tls=none":              {"::1", 1025, "", "", false, gomail.NoTLS},
	} {
		if got, err := ParseServer(credential.Secret(text)); err != nil || got != want {
			t.Errorf("%s: %+v %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "mail.example.org", "http://mail.example.org", "smtp://", "smtp://ada@mail.example.org",
		"smtp://hidden:hidden@mail.example.org?tls=none", "smtp://mail.example.org?tls=maybe",
		"smtp://mail.example.org/path", "smtp://mail.example.org:70000", "smtps://mail.example.org?tls=none",
		"smtp://hidden:hid%zzden@mail.example.org",
	} {
		_, err := ParseServer(credential.Secret(text))
		if err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// TestRender_DataAddNoHeader (M5) puts line breaks and characters that change the direction of writing into everything
// that another person chooses.
func TestRender_DataAddNoHeader(t *testing.T) {
	t.Parallel()
	box := opened(t)
	const evil = "Ada\r\nBcc: eve@example.org\r\n\r\n<b>\u202egro.elpmaxe\u2066 \"x\" <script>"
	data := Data{
		At:          time.Now(),
		Person:      evil,
		Email:       evil,
		Workspace:   evil,
		Application: evil,
		Token:       evil,
		Host:        evil,
		Device:      evil,
		Network:     evil,
		Permissions: []string{evil},
	}
	here := site{appURL: "https://app.example.org"}
	id := uuid.New()
	for _, kind := range Kinds() {
		content, err := here.render(Message{
			ID:      id,
			Kind:    kind,
			Address: "ada@example.org",
			Name:    evil,
			Data:    data,
			Token:   "s3cret",
			Expires: time.Now(),
		})
		must(t, err)
		if err = senderTo(t, box.URL()).Send(t.Context(), content); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		got := box.Messages("")[0]
		header, _, _ := strings.Cut(got.Raw, "\r\n\r\n")
		parsed, err := netmail.ReadMessage(strings.NewReader(got.Raw))
		if err != nil || parsed.Header.Get("Bcc") != "" || strings.ContainsAny(header, "\u202e\u2066") {
			t.Errorf("%s: %v %s", kind, err, header)
		}
		to, err := parsed.Header.AddressList("To")
		if err != nil || len(to) != 1 || to[0].Address != "ada@example.org" {
			t.Errorf("%s: to %v %v", kind, to, err)
		}
		for _, text := range []string{got.Subject, got.Text, got.HTML} {
			if strings.ContainsAny(text, "\u202e\u2066") {
				t.Errorf("%s: the direction of writing changes in %q", kind, text)
			}
		}
		if strings.Contains(got.HTML, "<script") || strings.Contains(got.HTML, "<b>") ||
			strings.Contains(got.HTML, "<img") || strings.Contains(got.HTML, "src=") {
			t.Errorf("%s: %s", kind, got.HTML)
		}
		path, withToken := map[Kind]string{
			Invitation:     "/invitation",
			Reset:          ResetPath,
			EmailChangeOld: EmailChangePath,
			EmailChangeNew: EmailChangePath,
		}[kind]
		if withToken && !strings.Contains(got.Text, here.appURL+path+"?token=s3cret\n") ||
			strings.Contains(got.Text, "s3cret") != withToken || strings.Contains(header, "s3cret") {
			t.Errorf("%s: the secret is in the wrong place: %s", kind, got.Raw)
		}
		if got.MessageID != id.String()+"@app.example.org" || parsed.Header.Get("Auto-Submitted") != "auto-generated" {
			t.Errorf("%s: %s", kind, header)
		}
	}
}

func TestSend_ErrorsNameNoAddressAndNoPassword(t *testing.T) {
	t.Parallel()
	box := opened(t)
	answer := &smtp.SMTPError{Code: 550, EnhancedCode: smtp.EnhancedCode{5, 1, 1}, Message: "no ada@example.org here"}
	box.Refuse(func(string) error { return answer })
	sender := senderTo(t, box.URL())
	envelope := Envelope{MessageID: "1@x", Address: "ada@example.org", Subject: "x", Text: "x", HTML: "x"}
	err := sender.Send(t.Context(), envelope)
	if !errors.Is(err, ErrRefused) || strings.Contains(err.Error(), "ada@") {
		t.Errorf("refused for good: %v", err)
	}
	answer = &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 7, 1}, Message: "later"}
	if err := sender.Send(t.Context(), envelope); err == nil || errors.Is(err, ErrRefused) {
		t.Errorf("refused for now: %v", err)
	}
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	_ = closed.Close()
	sender = senderTo(t, "smtp://ada:hidden@"+closed.Addr().String()+"?tls=none")
	if err := sender.Send(t.Context(), envelope); err == nil || errors.Is(err, ErrRefused) ||
		strings.Contains(err.Error(), "hidden") {
		t.Errorf("a server that does not listen: %v", err)
	}
	// A server without STARTTLS gets nothing if the URL requires it.
	sender = senderTo(t, strings.TrimSuffix(box.URL(), "?tls=none"))
	box.Refuse(nil)
	if err := sender.Send(t.Context(), envelope); err == nil || len(box.Messages("")) != 0 {
		t.Errorf("sent without encryption: %v", err)
	}
}

// TestKinds_SecurityCannotBeTurnedOff requires that only mails that are not about security are optional, and those of
// which the contract says so (section 5b): a new network and the end of a connection.
func TestKinds_SecurityCannotBeTurnedOff(t *testing.T) {
	t.Parallel()
	want := []Kind{TokenExpiring, NewNetwork, ConnectionEnding, Removed, PermissionsChanged, AccessRequested,
		WebhookDisabled}
	if optional := OptionalKinds(); !slices.Equal(optional, want) {
		t.Errorf("%v", optional)
	}
}

func TestKinds_NoActionHasTwoMails(t *testing.T) {
	t.Parallel()
	count := 0
	for _, k := range kinds() {
		count += len(k.Actions)
	}
	if count != len(Notices()) {
		t.Errorf("%d actions of all kinds, %d notices", count, len(Notices()))
	}
}

func TestClean_ShortensAndKeepsLetters(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Zoë Müller":      "Zoë Müller",
		" a \t b\x00c ":   "a b c",
		"भारत":            "भारत",
		"a\u2028b\u200bc": "a b c",
	} {
		if got := clean(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
	if got := clean(strings.Repeat("x", 5000)); len(got) > maxWords+4 {
		t.Errorf("%d bytes", len(got))
	}
}

func TestLetters_OperatorsChangeSaysWhoToTell(t *testing.T) {
	t.Parallel()
	here := site{appURL: "https://app.example.org"}
	for _, kind := range []Kind{PasswordChanged, PasskeyRemoved, AuthenticatorRemoved, AccountUnlinked, EmailChanged} {
		for operator, want := range map[bool]string{
			true: "\nChanged by: the person who runs this service\n", false: "\nIP address: 192.0.2.1\n",
		} {
			data := Data{Operator: operator}
			if !operator {
				data.Network = "192.0.2.1"
			}
			content, err := here.render(Message{Kind: kind, Data: data})
			told := strings.Contains(content.Text, "tell the person who runs this service or an administrator")
			if err != nil || !strings.Contains(content.Text, want) || told != (operator || kind == EmailChanged) ||
				operator && strings.Contains(content.Text, "If this was not you") {
				t.Errorf("%s, operator %v: %v\n%s", kind, operator, err, content.Text)
			}
		}
	}
}

func TestRender_NamesBrandOfDeployment(t *testing.T) {
	b, err := (&brand.Options{BrandName: "Harbour <Trust>", BrandColour: "#7a1fa2"}).Read()
	must(t, err)
	contact := (&brand.ContactOptions{Contact: "help@example.org", ContactName: "Ada <IT>"}).Read()
	here := site{"https://app.example.org", b, contact}
	content, err := here.render(Message{Kind: Reset, Name: "Ada", Token: "s3cret", Expires: time.Now()})
	if err != nil || !strings.HasSuffix(content.Text,
		"-- \nHarbour <Trust> at app.example.org\nQuestions? Ask Ada <IT> (help@example.org).\n") ||
		!strings.Contains(content.HTML, "Harbour &lt;Trust&gt; at app.example.org") ||
		!strings.Contains(content.HTML, `Ask <a href="mailto:help@example.org">Ada &lt;IT&gt;</a>.`) ||
		!strings.Contains(content.HTML, "background:#7a1fa2;color:#ffffff") {
		t.Errorf("%v %s %s", err, content.Text, content.HTML)
	}
}

// A message of a kind that only a later release knows is left to the processes of that release until it expires.
func TestWork_LeavesUnknownKindToOtherProcesses(t *testing.T) {
	t.Parallel()
	box, err := seal.NewBox(seal.NewKeys(make([]byte, 32)), purpose)
	must(t, err)
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	s := &sender{box: box, WorkerDeps: WorkerDeps{Now: func() time.Time { return now }, Count: func(Kind, string) {}}}
	content, err := json.Marshal(stored{Message: Message{
		ID:      uuid.New(),
		Kind:    "of_a_later_release",
		Address: "ada@example.org",
		Expires: now.Add(time.Hour),
	}})
	must(t, err)
	work := func() error {
		return s.Work(t.Context(), &river.Job[job]{Args: job{Sealed: box.Seal(content)}})
	}
	if _, left := errors.AsType[*river.JobSnoozeError](work()); !left {
		t.Errorf("not left to another process: %v", work())
	}
	now = now.Add(time.Hour)
	if _, cancelled := errors.AsType[*river.JobCancelError](work()); !cancelled {
		t.Errorf("not cancelled after it expired: %v", work())
	}
}

// TestLanguages_HaveEachTextWithItsFacts compares the files to English, text by text.
func TestLanguages_HaveEachTextWithItsFacts(t *testing.T) {
	t.Parallel()
	fact := regexp.MustCompile(`\{\{(?:or |with |if (?:not )?|else if )?\.[^{}` + "`" + `]*|\.[A-Z]\w*`)
	var compare func(at string, english, other any)
	compare = func(at string, english, other any) {
		switch english := english.(type) {
		case map[string]any:
			translated, _ := other.(map[string]any)
			if len(translated) != len(english) {
				t.Errorf("%s has %d texts, English has %d", at, len(translated), len(english))
			}
			for name, text := range english {
				compare(at+"."+name, text, translated[name])
			}
		case []any:
			translated, _ := other.([]any)
			for i, text := range english {
				if len(translated) != len(english) {
					t.Errorf("%s has %d texts, English has %d", at, len(translated), len(english))
					return
				}
				compare(at+"["+strconv.Itoa(i)+"]", text, translated[i])
			}
		case string:
			translated, _ := other.(string)
			facts, same := fact.FindAllString(translated, -1), fact.FindAllString(english, -1)
			if slices.Sort(facts); translated == "" || !slices.Equal(facts, slices.Sorted(slices.Values(same))) {
				t.Errorf("%s is %q", at, translated)
			}
		}
	}
	contents := map[string]map[string]any{}
	for _, l := range Languages() {
		file, err := languageFiles.ReadFile("languages/" + l.Name + ".json")
		must(t, err)
		decoded := contents[l.Name]
		must(t, json.Unmarshal(file, &decoded))
		contents[l.Name] = decoded
		compare(l.Name, contents[DefaultLanguage], decoded)
	}
	for _, kind := range Kinds() {
		if texts := languageOf("en").Letters[kind]; texts.Subject.Template == nil || len(texts.Lines) == 0 {
			t.Errorf("%s has no subject or no text", kind)
		}
	}
	if all := Languages(); len(all) != 2 || all[0] != (Language{"en", "English"}) {
		t.Errorf("%v", all)
	}
}

func TestRender_WritesTimesInZoneAndLanguageOfRecipient(t *testing.T) {
	t.Parallel()
	here := site{appURL: "https://app.example.org"}
	at := time.Date(2026, 7, 1, 23, 5, 0, 0, time.UTC)
	for m, want := range map[[2]string]string{
		{"", ""}:                      "When: 1 July 2026, 23:05 UTC\n",
		{"en", "Europe/London"}:       "When: 2 July 2026, 00:05 BST\n",
		{"cy", "Europe/London"}:       "Pryd: 2 Gorffennaf 2026, 00:05 BST\n",
		{"xx", "Asia/Kathmandu"}:      "When: 2 July 2026, 04:50 UTC+0545\n",
		{"en", "Local"}:               "When: 1 July 2026, 23:05 UTC\n",
		{"en", "../../etc/localtime"}: "When: 1 July 2026, 23:05 UTC\n",
	} {
		content, err := here.render(Message{Kind: PasswordChanged, Language: m[0], Zone: m[1], Data: Data{At: at}})
		if err != nil || !strings.Contains(content.Text, want) {
			t.Errorf("%v: %v %s", m, err, content.Text)
		}
	}
}
