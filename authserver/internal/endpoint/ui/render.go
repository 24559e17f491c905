// Package ui renders the pages of the server.
//
// Pages are html/template files, parsed once at start, each with its own view struct (views.go, and the pages of the
// settings in endpoint/settings). They work without scripts, load nothing from another host, and are written completely
// or not at all. The words of the error pages are in messages.json. The package does not depend on stores, sessions or
// OAuth.
//
// render.go has the templates and static files, views.go the views, and request.go the error pages, forms and
// redirects.
//
// Every endpoint that serves a browser uses it. Package app mounts Static at /static/ and uses NotAllowed.
package ui

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"html/template"
	"log/slog"
	"math"
	"mime"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/page/brand"
)

//go:embed templates/*.html
var templateFiles embed.FS

// Pages renders views. It is safe for concurrent use.
type Pages struct {
	templates *template.Template
	files     map[string]staticFile
	offer     Offer
	identify  func(http.ResponseWriter, *http.Request) // see With
	brand     brand.Brand
	contact   brand.Contact
	sections  []Section
	log       *slog.Logger
}

// New parses every template into one set: a set for each page would keep 5 MB more in memory. Each page is the template
// named after its file. It starts with "top" and ends with "bottom" (layout.html), or with "shelltop" and "shellbottom"
// on pages of the settings (part_shell.html). All files share one namespace, so a defined name must be unique.
func New(log *slog.Logger) (*Pages, error) {
	files, err := readStatic()
	if err != nil {
		return nil, err
	}
	p := &Pages{files: files, log: log}
	p.templates, err = template.New("").Option("missingkey=zero").Funcs(p.functions()).
		ParseFS(templateFiles, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("parse the pages: %w", err)
	}
	return p, nil
}

// A View is the content of one page. It embeds Frame.
type View interface{ frame() *Frame }

// Query parameters that tell the sign-in page what happened.
const (
	Unsent         = "unsent"          // a form was refused because the session had ended
	PasswordSet    = "password-set"    // a password was set with a link
	AccountDeleted = "account-deleted" // an account was deleted
)

// ExpectsCookie is the field of the sign-in form that says that the page set a cookie.
const ExpectsCookie = "cookies"

// NoCookie is the problem of a sign-in by a browser that sends no cookie.
const NoCookie = "Your browser sent no cookie. Cookies keep you signed in: allow them for this site, and then sign " +
	"in again."

// signInNotice returns what the sign-in page says first, or "".
func signInNotice(r *http.Request) string {
	query := r.URL.Query()
	switch {
	case r.URL.Path != "/login":
		return ""
	case query.Has(PasswordSet):
		return "Your new password is set, and all browsers were signed out. Sign in with it."
	case query.Has(AccountDeleted):
		return "Your account was deleted."
	case query.Has(Unsent):
		return "You were signed out. Nothing was changed, and your input was not saved."
	}
	return ""
}

// Show writes a page. The caller sets other headers, such as Retry-After, before.
func (p *Pages) Show(w http.ResponseWriter, r *http.Request, status int, view View) {
	frame := view.frame()
	frame.Template = cmp.Or(frame.Template, strings.ToLower(reflect.TypeOf(view).Elem().Name()))
	frame.Offer, frame.Sections = p.offer, p.sections
	m, message := view.(*Message)
	if message {
		frame.Return = cmp.Or(m.Switch, m.Retry.leadsTo())
	}
	if status >= http.StatusInternalServerError || (message && status >= 400) {
		frame.RequestID = web.RequestID(r.Context())
	}
	frame.Refused = frame.Problem != "" || (!message && status >= 400)
	if signIn, is := view.(*Login); is {
		signIn.Unsent = r.URL.Query().Has(Unsent)
		frame.AsksPasskey, frame.AsksPassword = p.offer.Passkeys, true
		frame.Notice = cmp.Or(signInNotice(r), frame.Notice)
		if p.identify != nil {
			p.identify(w, r)
		}
	}
	var page bytes.Buffer
	if err := p.templates.ExecuteTemplate(&page, frame.Template+".html", view); err != nil {
		p.log.ErrorContext(r.Context(), "page not rendered", "page", frame.Template, "error", err)
		w.Header().Set("Cache-Control", "no-store")
		http.Error(w, "Something went wrong on our side. Please try again.", http.StatusInternalServerError)
		return
	}
	p.headers(w, frame, leadsOutside(frame.Return))
	w.Header().Set("Content-Length", strconv.Itoa(page.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes()) // an error means that the client has closed the connection
}

// headers sets the headers that isolate a page: nothing from elsewhere runs in it, loads into it or frames it, and it
// is not stored.
//
// Referrer-Policy is same-origin and not no-referrer. With no-referrer, a browser without Sec-Fetch-Site would send the
// page's own forms with Origin: null, and they would be refused as cross-origin (Fetch standard, "append a request
// Origin header"). No other site gets a referrer with either policy. There is no Cross-Origin-Opener-Policy, because
// applications open the consent page in a window and wait for its result.
//
// form-action keeps an injected form from sending its fields elsewhere. Chromium also applies it to every redirect that
// follows a form (CSP level 3, section 6.4.1), and would stay on a page whose form ends at a client that leads the
// browser on, to addresses and schemes that only the client knows. Such a page, outside, has no form-action (contract,
// section 4).
func (p *Pages) headers(w http.ResponseWriter, frame *Frame, outside bool) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	policy := "default-src 'none'; style-src 'self'; img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'"
	if !outside {
		policy += "; form-action 'self'"
	}
	if frame.Scripts() {
		policy += "; script-src 'self'"
	}
	if frame.AsksPasskey || frame.AsksPassword || frame.Watches {
		policy += "; connect-src 'self'" // for the challenge, to send the password again, and for new connections
	}
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

func (p *Pages) functions() template.FuncMap {
	return template.FuncMap{
		"asset":    p.asset,
		"brand":    func() string { return p.brand.Name() },
		"contact":  func() template.HTML { return p.contact.Link() },
		"named":    func(text string) template.HTML { return p.contact.In(text, brand.Unnamed) },
		"moment":   func(t time.Time) string { return t.UTC().Format(toMinute) },
		"ago":      timeElement("ago", toMinute),
		"agoexact": timeElement("ago", toSecond),
		"localday": timeElement("day", toDay),
		"local":    timeElement("moment", toMinute),
		"brief":    func(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04:05") },
		"initials": initials,
		"cursor":   p.cursorLink,
		"vscode":   p.vscodeLink,
		"address":  addressParts,
		"count":    Count,
		"number":   Number,
		"plainday": func(t time.Time) string { return t.UTC().Format("2 January") },
		"describe": describe,
		"byrisk":   byRisk,
		"field":    func(id, label, value string) copyField { return copyField{id, label, value} },
		"boxes":    boxes,
		"askat":    func(i int, a Ask) askForm { return askForm{a, "ask-" + strconv.Itoa(i)} },
	}
}

// cursorLink returns the link that adds the MCP endpoint with this address to Cursor (cursor.com, MCP install links).
func (p *Pages) cursorLink(address string) template.URL {
	server, _ := web.EncodeJSON(map[string]string{"url": address}) // strings can always be encoded
	query := url.Values{"name": {p.brand.Name()}, "config": {base64.StdEncoding.EncodeToString(server)}}.Encode()
	return template.URL("cursor://anysphere.cursor-deeplink/mcp/install?" + strings.ReplaceAll(query, "+", "%20"))
}

// vscodeLink returns the link that adds the MCP endpoint with this address to VS Code (code.visualstudio.com, MCP
// developer guide).
func (p *Pages) vscodeLink(address string) template.URL {
	server, _ := web.EncodeJSON(map[string]string{"name": p.brand.Name(), "type": "http", "url": address})
	return template.URL("vscode:mcp/install?" + url.PathEscape(string(server)))
}

// initials returns the one or two letters that represent a name in a tile. Words in lower case after the first, such as
// "for", have none.
func initials(name string) string {
	var out []rune
	for _, word := range strings.Fields(name) {
		first := []rune(word)[0]
		if (unicode.IsLetter(first) || unicode.IsDigit(first)) && (len(out) == 0 || !unicode.IsLower(first)) {
			out = append(out, unicode.ToUpper(first))
		}
	}
	if len(out) > 2 {
		out = out[:2]
	}
	return string(out)
}

// addressParts returns what is before and after the @ of an e-mail address: the address may be broken there.
func addressParts(email string) []string { return strings.SplitN(email, "@", 2) }

// Count returns a number of things, whose plural has an s, in words.
func Count(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return Number(n) + " " + what
}

// Number returns a number that is not negative with a comma after each three digits.
func Number(n int) string {
	digits := strconv.Itoa(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// A Permission is one permission as a page shows it.
type Permission struct {
	perm.Entry
	Risk     string // low, sensitive, high: the style
	RiskWord string // the same in words, because colour alone must not carry the meaning
	Reads    bool   // read-only access includes it
}

// describe returns the titles and descriptions of permissions. A permission that is no longer known is shown by its
// identifier.
func describe(set perm.Set) []Permission {
	out := make([]Permission, 0, len(set))
	for _, id := range set {
		entry, known := perm.Describe(id)
		if !known {
			retired := perm.Entry{ID: id, Title: string(id), Sentence: "This permission is no longer in use."}
			out = append(out, Permission{Entry: retired, Risk: "low"})
			continue
		}
		out = append(out, Permission{entry, entry.Risk.String(), riskWords[entry.Risk], id.Reads()})
	}
	return out
}

// byRisk returns what describe returns, grouped by risk. The risk of the first permission comes first.
func byRisk(set perm.Set) [][]Permission {
	var out [][]Permission
	for _, p := range describe(set) {
		same := slices.IndexFunc(out, func(of []Permission) bool { return of[0].RiskWord == p.RiskWord })
		if same < 0 {
			out = append(out, []Permission{p})
			continue
		}
		out[same] = append(out[same], p)
	}
	return out
}

var riskWords = map[perm.Risk]string{
	perm.Low:       "Read only",
	perm.Sensitive: "Personal data",
	perm.High:      "Makes changes",
}

// An askForm is the form of an Ask whose button is inside another form. Form is its id.
type askForm struct {
	Ask
	Form string
}

// A copyField is a value that the user can select and copy.
type copyField struct{ ID, Label, Value string }

// A box is a checkbox of a permission.
type box struct {
	Permission
	Chosen bool
}

func boxes(held, chosen perm.Set) []box {
	var out []box
	for _, p := range describe(held) {
		out = append(out, box{p, chosen.Has(p.ID)})
	}
	return out
}

// Formats of times in UTC: to the minute, to the second, and to the day.
const (
	toMinute = "2 January 2006, 15:04 UTC"
	toSecond = "2 Jan 2006, 15:04:05 UTC"
	toDay    = "2 January 2006"
)

// timeElement returns a function that writes a time as a time element in UTC. The script times.js replaces it by the
// time in the reader's time zone, with the time in UTC as its title. kind is the attribute data-local: with "ago", the
// script writes a time of the last or next week relative to now, like "2 minutes ago". The parts come from formatted
// times alone and need no escaping.
func timeElement(kind, format string) func(time.Time) template.HTML {
	return func(t time.Time) template.HTML {
		return template.HTML(`<time datetime="` + t.UTC().Format(time.RFC3339) + `" data-local="` + kind + `">` +
			t.UTC().Format(format) + `</time>`)
	}
}

// Wait returns a wait in words, rounded up.
func Wait(wait time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		most int
		name string
	}{{time.Minute, 90, "minute"}, {time.Hour, 47, "hour"}, {24 * time.Hour, math.MaxInt, "day"}} {
		switch n := int((wait + unit.of - 1) / unit.of); {
		case n <= 1 && unit.name == "minute":
			return "a minute"
		case n <= unit.most:
			return strconv.Itoa(n) + " " + unit.name + "s"
		}
	}
	return ""
}

//go:embed static/*
var staticFiles embed.FS

type staticFile struct {
	content []byte
	version string // hash of the content: changed content gets a new URL, so browsers may cache each URL for ever

	contentType string // empty to derive it from the file's name
}

func newStaticFile(content []byte) staticFile {
	sum := sha256.Sum256(content)
	return staticFile{content: content, version: hex.EncodeToString(sum[:6])}
}

func readStatic() (map[string]staticFile, error) {
	entries, err := staticFiles.ReadDir("static")
	if err != nil {
		return nil, fmt.Errorf("read static files: %w", err)
	}
	files := map[string]staticFile{}
	for _, entry := range entries {
		content, err := staticFiles.ReadFile(path.Join("static", entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("read static file: %w", err)
		}
		if entry.Name() == sheetFile {
			content = append([]byte(brand.Tokens()), content...)
		}
		files[entry.Name()] = newStaticFile(content)
	}
	return files, nil
}

// asset returns the URL of a static file, for the templates.
func (p *Pages) asset(name string) (string, error) {
	file, ok := p.files[name]
	if !ok {
		return "", fmt.Errorf("no static file %q", name)
	}
	return "/static/" + name + "?v=" + file.version, nil
}

// Static serves the files under /static/.
func (p *Pages) Static() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, "/static/")
		file, ok := p.files[name]
		if !ok {
			p.ShowError(w, r, MessageOf("page not found", ""))
			return
		}
		w.Header().Set("Content-Type", cmp.Or(file.contentType, mime.TypeByExtension(path.Ext(name))))
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if name == iconFile { // the logo of a deployment runs no script when a browser opens it as a page
			policy := "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"
			w.Header().Set("Content-Security-Policy", policy)
		}
		w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		w.Header().Set("Cache-Control", "no-cache")
		if r.URL.Query().Get("v") == file.version {
			w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
		}
		_, _ = w.Write(file.content)
	})
}

// SetBrand makes the pages show the name, the logo and the colour of a deployment. It is called before any page is
// shown.
func (p *Pages) SetBrand(b brand.Brand) {
	p.brand = b
	logo := b.Logo()
	icon := newStaticFile(logo.Content)
	icon.contentType = logo.ContentType
	p.files[iconFile] = icon
	if colour, own := b.Colour(); own {
		sheet := bytes.Clone(p.files[sheetFile].content)
		p.files[sheetFile] = newStaticFile(append(sheet, accent(colour)...))
	}
}

// SetContact makes the pages name the contact of a deployment. It is called before any page is shown.
func (p *Pages) SetContact(c brand.Contact) { p.contact = c }

const (
	iconFile  = "icon.svg"
	sheetFile = "site.css"
)

// accent returns a style sheet that replaces the colour of buttons and links by shades of c that can be read on both
// grounds.
func accent(c brand.Colour) string {
	declare := func(ground brand.Colour) string {
		ink := c.Accent(ground).Ink
		button := ink.Accent(ground)
		return "--brand:" + ink.String() + ";--brand-strong:" + button.Strong.String() + ";--on-brand:" +
			button.On.String() + ";--link:" + ink.String()
	}
	return brand.Override(declare(brand.LightGround), declare(brand.DarkGround))
}
